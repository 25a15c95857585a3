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

/* All of them, sorted by name (entry.c). */
extern const struct wrapper wrappers[] __attribute__((visibility("hidden")));
extern const size_t wrapper_count __attribute__((visibility("hidden")));

/* Replaces what cuGetProcAddress found by our wrapper, if there is one. flags: as cuGetProcAddress got them. */
void symbols_swap(const char *name, void **found, uint64_t flags);
