/* SPDX-License-Identifier: Apache-2.0 */

#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#define FIRST_PID_NAMESPACE 0xeffffffc /* its inode, in every kernel */

/* Whether this daemon is in a PID namespace of its own (in a container, say), where the kernel's
 * programs see other numbers of processes than we; namespace is what they know it by. */
static inline bool pid_namespace_is_own(struct stat *namespace) {
	return stat("/proc/self/ns/pid", namespace) == 0 &&
	       namespace->st_ino != FIRST_PID_NAMESPACE;
}
