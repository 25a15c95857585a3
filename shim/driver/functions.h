/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The functions of the driver: those of proto/functions.txt, then some spare places for functions
 * of newer drivers. Each has a number, and (link/trampoline.h) a trampoline with that number.
 */

#define DRIVER_FUNCTION_SPARE 64

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

#include "functions.inc"

#define DRIVER_FUNCTION_COUNT (FUNCTION_COUNT + DRIVER_FUNCTION_SPARE)
#define DRIVER_FUNCTION_NONE (-1)

/* FUNCTION_cuInit and so on: the numbers. */
enum function_index {
#define FUNCTION(number, name, ...) FUNCTION_##name,
#include "functions.inc"
#undef FUNCTION
};

/* What a pointer argument of a function points to (functions.inc). */
struct function_extra {
	uint8_t argument, word, when, size;
};

struct function_row {
	uint16_t number; /* of struct trace_call */
	uint16_t name; /* where it begins in the names */
	uint8_t words, floats, extra_count;
	struct function_extra extras[FUNCTION_EXTRAS_MAX];
};

extern const struct function_row function_rows[] __attribute__((visibility("hidden")));

/* The number of the function with exactly this name, or DRIVER_FUNCTION_NONE. */
int driver_function_find(const char *name);

/*
 * The first function whose name is not less than this one in the order of strcmp();
 * FUNCTION_COUNT if there is none.
 */
int driver_function_lower_bound(const char *name);

/* "" of a spare place that is free. */
const char *driver_function_name(int index);

/* A spare place for a function that the table does not know; DRIVER_FUNCTION_NONE: none is left. */
int driver_function_add(const char *name);

/*
 * Where the loaded driver itself has the function, past the trampolines and every interposer; NULL:
 * it has none.
 */
void *driver_function_own(int index);
void driver_function_set_own(int index, void *function);

/* The number of a function by that address, or DRIVER_FUNCTION_NONE. */
int driver_function_index(const void *function);

#endif
