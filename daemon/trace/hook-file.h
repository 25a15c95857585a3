/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file of a user's, in which he wants a function probed. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a regular file, which belongs to the owner unless any will do; never blocks. The descriptor, or -errno. */
int hook_file_open(const char *path, bool any, uid_t owner);

/* Where a function is in an ELF file. 0, -ENOENT: it has none of that name, -ENOEXEC: it is no program or library, or another -errno. */
int hook_file_find(int fd, const char *function, uint64_t *offsetp);
