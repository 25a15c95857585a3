/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Addresses that a kernel's code has: of variables, functions and constants of its module. In a
 * twin they would be those of the twin's copies. Code of the application must find the original's.
 *
 * Code finds the address of a variable in 8 bytes of constant bank 4, which have a relocation.
 * These slots are collected; who loads the twin writes the original's addresses into them.
 * Everything else that would be another address in a twin is refused, and so are calls by pointers:
 * a pointer that is read from memory leads to the original's code. Addresses of functions that
 * every module has of its own from the driver (printf, assert, malloc) are left to the driver.
 */

#include "cubin-edit.h"
#include "kernel.h"

struct sass_slot {
	uint32_t at; /* offset in the bank */
	uint32_t relocation, entry; /* the section, and the entry in it */
	const char *variable; /* its name, in the strings of the cubin as it was opened */
	int64_t addend; /* to its address */
};

struct sass_slots {
	struct sass_slot *slots; /* owned, no two with the same `at` */
	size_t n, allocated;
};

/* Adds the slots that a kernel reads. 0; SASS_REFUSED: it cannot have a twin; -ENOMEM. */
int sass_slots_add(struct sass_slots *slots, const struct sass_cubin *cubin,
		   const struct sass_kernel *kernel, struct sass_refusal *refusal);

/* Makes the driver leave the slots alone, whose addends are then taken out. -ENOMEM. */
int sass_slots_drop(const struct sass_slots *slots, struct sass_cubin *cubin);
void sass_slots_deinit(struct sass_slots *slots);
