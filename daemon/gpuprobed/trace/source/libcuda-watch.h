/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tells when a process maps a libcuda: the kernel's perf events of executable mappings, of all
 * processes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct libcuda_watch;

/* 0 or negative errno: it needs CAP_PERFMON. */
int libcuda_watch_new(struct libcuda_watch **watchp);
struct libcuda_watch *libcuda_watch_free(struct libcuda_watch *watch);

/* A process has mapped one; the path is that of the kernel's event. */
typedef void (*libcuda_watch_fn)(void *userdata, pid_t pid, const char *path, uint64_t inode);

/* Calls back for each process that has mapped one since the last time. False: some events may have
 * been lost. */
bool libcuda_watch_read(struct libcuda_watch *watch, libcuda_watch_fn mapped, void *userdata);

/*
 * Watches these CPUs, in ascending order, and no others; libcuda_watch_read() does so with those
 * that run, and tests. *changedp: some have come. 0, or the negative errno of one that cannot be
 * watched.
 */
int libcuda_watch_set_cpus(struct libcuda_watch *watch, const int *cpus, size_t n, bool *changedp);
