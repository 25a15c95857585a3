/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A driver function that we stand in front of. */
struct wrapper {
	const char *name;
	void *function; /* ours */
	void **real; /* the driver's, once somebody has looked it up */
};

/* All of them, each table sorted by name: of graphs (entry-graph.c), and the others (entry.c). */
extern const struct wrapper graph_wrappers[] __attribute__((visibility("hidden")));
extern const size_t graph_wrapper_count __attribute__((visibility("hidden")));
extern const struct wrapper wrappers[] __attribute__((visibility("hidden")));
extern const size_t wrapper_count __attribute__((visibility("hidden")));

/*
 * Replaces what cuGetProcAddress found by our wrapper, if there is one. version, flags: as
 * cuGetProcAddress got them. by_driver: it was the driver's cuGetProcAddress, not one of another
 * interposer.
 */
void symbols_swap(const char *name, void **found, int version, uint64_t flags, int by_driver);

/*
 * Whom a program that links libcuda.so.1 would call if we were not there: the next library with
 * that symbol, else the driver. NULL if there is none.
 */
void *symbols_next(const char *name);
