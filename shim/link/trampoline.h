/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One trampoline for each function of the driver (proto/functions.txt), and some spare ones without
 * a name for functions of newer drivers. Programs find them under the functions' names (libcuda.c).
 *
 * If nobody traces (trace.h), a trampoline jumps to its target: our wrapper of that function, else
 * the driver's. It changes only one scratch register. If the process is traced it goes through
 * trace_call, which makes a frame of its own around the call.
 */

#define TRAMPOLINE_SPARE 64
#if defined(__x86_64__)
#define TRAMPOLINE_STRIDE 64
#else
#define TRAMPOLINE_STRIDE 128
#endif

/* Offsets in struct trace_frame, which trace_call makes. */
#define TRACE_FRAME_STACK 0
#define TRACE_FRAME_WORDS 128
#define TRACE_FRAME_FLOATS 192
#define TRACE_FRAME_RESULT 320
#define TRACE_FRAME_INDEX 352
#define TRACE_FRAME_SIZE 384

#ifndef __ASSEMBLER__

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functions.inc"

#define TRAMPOLINE_COUNT (FUNCTION_COUNT + TRAMPOLINE_SPARE)
#define TRAMPOLINE_NONE (-1)

/* FUNCTION_cuInit and so on: the number of a trampoline. */
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

/* A driver function that has more than a trampoline: what is called in the driver's place. */
struct wrapper {
	int index;
	void *function; /* ours */
	void **real; /* what it calls: NULL if the driver has it not */
};

/* All of them: of graphs (entry-graph.c), and the others (entry.c). */
extern const struct wrapper graph_wrappers[] __attribute__((visibility("hidden")));
extern const size_t graph_wrapper_count __attribute__((visibility("hidden")));
extern const struct wrapper node_wrappers[] __attribute__((visibility("hidden")));
extern const size_t node_wrapper_count __attribute__((visibility("hidden")));
extern const struct wrapper wrappers[] __attribute__((visibility("hidden")));
extern const size_t wrapper_count __attribute__((visibility("hidden")));

/* Where the trampolines jump to. NULL: no driver has come yet, and no program has a trampoline. */
extern void *trampoline_targets[TRAMPOLINE_COUNT] __attribute__((visibility("hidden")));

/* The trampoline of the function with exactly this name, or TRAMPOLINE_NONE. */
int trampoline_find(const char *name);

/*
 * The first trampoline whose name is not less than this one in the order of strcmp();
 * FUNCTION_COUNT if there is none.
 */
int trampoline_lower_bound(const char *name);

/* "" of a spare one that is free. */
const char *trampoline_name(int index);

/* What programs call. */
void *trampoline_function(int index);
bool trampoline_is_ours(const void *function);

/* Does it call a wrapper of ours? */
bool trampoline_has_wrapper(int index);

/* What the driver has of that function, NULL for none: it is what is called from now on. */
void trampoline_set(int index, void *function);

/* A spare trampoline for a function that the table does not know; TRAMPOLINE_NONE: none is left. */
int trampoline_add(const char *name);

#endif
