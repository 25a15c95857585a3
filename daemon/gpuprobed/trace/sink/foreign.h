/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of /proc/PID that show the memory of a process: environ, maps. The kernel takes the lock of
 * that memory for them, and the process can hold that for good: it maps a file of a FUSE server
 * that does not answer. So a thread reads, and nobody waits for it longer than a moment.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The first bytes of /proc/PID/NAME, max at most, with a NUL behind them, to be freed; NULL with
 * errno: ETIMEDOUT, it does not answer; EBUSY, it has not answered before, or too many do not.
 */
char *foreign_read(pid_t pid, const char *name, size_t max, size_t *np);

/* Code of a file that a process has mapped. */
struct foreign_mapping {
	uint64_t start, end, offset, inode;
	char *path; /* "" of no file; may be written to */
};

/* Calls fn for each, in the order of addresses, until it returns false. 0, or -errno as above. */
typedef bool (*foreign_mapping_fn)(void *userdata, const struct foreign_mapping *mapping);
int foreign_each_mapping(pid_t pid, foreign_mapping_fn fn, void *userdata);

/* What no process's mappings are longer than, if it has not so many as to keep others busy. */
#define FOREIGN_MAPS_MAX ((size_t)16 << 20)
