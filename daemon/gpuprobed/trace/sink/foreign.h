/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of /proc/PID that show the memory of a process: environ, maps. The kernel takes the lock of
 * that memory for them, and the process can hold that for good: it maps a file of a FUSE server
 * that does not answer. So a thread reads, and nobody waits for it longer than a moment.
 */

#include <stddef.h>
#include <sys/types.h>

/*
 * The first bytes of /proc/PID/NAME, max at most, with a NUL behind them, to be freed; NULL with
 * errno: ETIMEDOUT, it does not answer; EBUSY, it has not answered before, or too many do not.
 */
char *foreign_read(pid_t pid, const char *name, size_t max, size_t *np);

/* What no process's mappings are longer than, if it has not so many as to keep others busy. */
#define FOREIGN_MAPS_MAX ((size_t)16 << 20)
