/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names of kernels that were probed: for the next daemon, which else could not say what the numbers
 * in maps stand for until the modules are loaded again. In a memfd that somebody keeps (store.h).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kernel_names;

#define KERNEL_NAMES_SIZE ((size_t)1 << 20) /* bytes of all */
#define KERNEL_NAMES_UID_SIZE (KERNEL_NAMES_SIZE / 2) /* of one user */

/* fd: of an earlier daemon, consumed; -1: there is none. What is no such memfd is not used. 0 or
 * -errno. */
int kernel_names_new(struct kernel_names **namesp, int fd);
struct kernel_names *kernel_names_free(struct kernel_names *names);
int kernel_names_fd(const struct kernel_names *names);
/* Whether it is that of an earlier daemon. */
bool kernel_names_inherited(const struct kernel_names *names);

/* A kernel of a user's process; nothing if it is known, or there is no room. names may be NULL. */
void kernel_names_add(struct kernel_names *names, uid_t uid, const char *name,
		      const char *demangled, bool device_function);

struct kept_name {
	uid_t uid;
	const char *name, *demangled;
	bool device_function;
};

/* In the order in which they came; what fn returns other than 0 ends the walk, and is returned.
 * names may be NULL. */
int kernel_names_each(const struct kernel_names *names,
		      int (*fn)(const struct kept_name *name, void *userdata), void *userdata);
