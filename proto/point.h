/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The points where a program can stand: one row for each. Sections (lib/pass/section.c), the
 * translator, the daemon, both engines and gpuprobectl read this table; test-docs.py compares the
 * documents and the completion with it. gpuprobe.bpf.h declares the contexts for authors.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "patch.h"

/* The numbers are those of the state file. */
enum point_kind {
	POINT_ENTRY, /* of a kernel or device function */
	POINT_RETURN,
	POINT_MEMORY, /* instructions that access memory */
	POINT_LINE, /* a source line */
	POINT_BLOCK, /* a basic block */
	POINT_CLASS, /* instructions of a class: machine code alone has these */
};

enum point_engine {
	POINT_ON_PTX = 1 << 0,
	POINT_ON_SASS = 1 << 1,
	POINT_ON_BOTH = POINT_ON_PTX | POINT_ON_SASS,
};

/* The struct of gpuprobe.bpf.h that a program gets there. */
enum point_context {
	POINT_KERNEL_CONTEXT,
	POINT_MEMORY_CONTEXT,
	POINT_EVENT_CONTEXT,
	POINT_LAUNCH_CONTEXT, /* what a program may take in place of a KERNEL_CONTEXT */
};

/*
 * A context that a program takes has at most 168 bytes: the kernel verifies reads of it as those of
 * a struct pt_regs. Two structs of a kernel's points therefore share one list of fields: that of
 * gpuprobe_kernel_ctx, and behind it the launch, which gpuprobe_launch_ctx has in place of the last
 * parameters.
 */
#define POINT_STRUCT_MAX 168
#define POINT_LAUNCH_SIZE 32 /* of a struct gpuprobe_launch */
#define POINT_CONTEXT_MAX (POINT_STRUCT_MAX + POINT_LAUNCH_SIZE) /* bytes of the longest list */
/*
 * Behind all lists: no field of a struct, but what a translated program may ask of its place. 1:
 * the fields that the place or the launch fixes (point_is_uniform()) are the same in all lanes that
 * can be together in the program there. 0: they may not be.
 */
#define POINT_UNIFORM POINT_CONTEXT_MAX
#define POINT_FIELDS (POINT_CONTEXT_MAX / 8 + 1)

/*
 * Variables of a thread (section .thread) are no part of a context, but a program gets their words
 * of 8 bytes as it gets fields: word n has this offset. Unlike a field, a word is given back, too.
 */
#define POINT_THREAD 1024
#define POINT_THREAD_WORDS 8 /* of all variables of an object */

static inline bool point_is_thread(uint32_t offset) {
	return offset >= POINT_THREAD && offset < POINT_THREAD + 8 * POINT_THREAD_WORDS;
}

static const struct {
	const char *name;
	uint32_t size;
	uint32_t sass_size; /* bytes that the sanitizer engine has: of a kernel's up to param_count
			     */
	uint32_t launch; /* offset of the launch, which is 0 on the sanitizer engine; 0: it has none
			  */
} point_contexts[] = {
	[POINT_KERNEL_CONTEXT] = { "gpuprobe_kernel_ctx", POINT_CONTEXT_MAX, 56, POINT_STRUCT_MAX },
	[POINT_MEMORY_CONTEXT] = { "gpuprobe_memory_ctx", 48 + POINT_LAUNCH_SIZE, 48, 48 },
	[POINT_EVENT_CONTEXT] = { "gpuprobe_event_ctx", 40, 40, 0 },
	[POINT_LAUNCH_CONTEXT] = { "gpuprobe_launch_ctx", POINT_STRUCT_MAX, 56,
				   POINT_STRUCT_MAX - POINT_LAUNCH_SIZE },
};
#define POINT_CONTEXTS (sizeof(point_contexts) / sizeof(point_contexts[0]))

/* Is a field of a context, at this offset, one of its launch? */
static inline bool point_is_launch(enum point_context context, uint32_t offset) {
	const uint32_t launch = point_contexts[context].launch;

	return launch && offset >= launch && offset < launch + POINT_LAUNCH_SIZE;
}

/*
 * Is a field one that POINT_UNIFORM speaks of, whichever struct a program takes? Those of places
 * and launches in gpuprobe_kernel_ctx and gpuprobe_memory_ctx; at offset 8 one has the device and
 * the other an address, at 40 the block's size and a value.
 */
static inline bool point_is_uniform(uint32_t offset) {
	const uint32_t field = offset / 8;

	return field == 0 || (field >= 2 && field <= 4) || field == 6 || field == 7;
}

/* Has the sanitizer engine something for the field? */
static inline bool point_is_on_sass(enum point_context context, uint32_t offset) {
	return offset < point_contexts[context].sass_size || point_is_launch(context, offset) ||
	       offset == POINT_UNIFORM;
}

/* May a program take this struct where the point gives that one? */
static inline bool point_takes(enum point_context given, const char *name) {
	return !strcmp(name, point_contexts[given].name) ||
	       (given == POINT_KERNEL_CONTEXT &&
		!strcmp(name, point_contexts[POINT_LAUNCH_CONTEXT].name));
}

/* Where a field that a program reads of its struct is in the point's list. */
static inline uint32_t point_field(enum point_context given, const char *name, uint32_t offset) {
	if (given == POINT_KERNEL_CONTEXT &&
	    !strcmp(name, point_contexts[POINT_LAUNCH_CONTEXT].name) &&
	    point_is_launch(POINT_LAUNCH_CONTEXT, offset))
		return offset + POINT_LAUNCH_SIZE;
	return offset;
}

struct point {
	const char *name;
	enum point_kind kind;
	const char *section; /* what begins its section; of a line, block or class '@' follows */
	enum point_context context;
	unsigned int engines; /* enum point_engine */
	uint32_t instructions; /* where the sanitizer engine patches: bits of enum patch_instruction
				*/
};

#define POINT_MEMORY_INSTRUCTIONS                                                           \
	(1u << PATCH_GLOBAL_MEMORY | 1u << PATCH_SHARED_MEMORY | 1u << PATCH_LOCAL_MEMORY | \
	 1u << PATCH_REMOTE_SHARED_MEMORY)

static const struct point point_table[] = {
	{ "entry", POINT_ENTRY, "kprobe", POINT_KERNEL_CONTEXT, POINT_ON_BOTH,
	  1u << PATCH_BLOCK_ENTER },
	{ "return", POINT_RETURN, "kretprobe", POINT_KERNEL_CONTEXT, POINT_ON_BOTH,
	  1u << PATCH_BLOCK_EXIT },
	{ "memory", POINT_MEMORY, "memcapture", POINT_MEMORY_CONTEXT, POINT_ON_BOTH,
	  POINT_MEMORY_INSTRUCTIONS },
	{ "line", POINT_LINE, "kprobe", POINT_KERNEL_CONTEXT, POINT_ON_PTX, 0 },
	{ "block", POINT_BLOCK, "kprobe", POINT_KERNEL_CONTEXT, POINT_ON_PTX, 0 },
	{ "call", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS, 1u << PATCH_CALL },
	{ "ret", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS, 1u << PATCH_RET },
	{ "barrier", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS,
	  1u << PATCH_BARRIER },
	{ "syncwarp", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS,
	  1u << PATCH_SYNCWARP },
	{ "shfl", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS, 1u << PATCH_SHFL },
	{ "malloc", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS, 1u << PATCH_MALLOC },
	{ "free", POINT_CLASS, "kprobe", POINT_EVENT_CONTEXT, POINT_ON_SASS, 1u << PATCH_FREE },
};
#define POINT_COUNT (sizeof(point_table) / sizeof(point_table[0]))

/* Is it the same point? Each file has a table of its own, so addresses do not tell. */
static inline bool point_is(const struct point *point, const struct point *other) {
	return point && other && !strcmp(point->name, other->name);
}

/* The point of that name; NULL: there is none. */
static inline const struct point *point_find(const char *name) {
	for (size_t i = 0; name && i < POINT_COUNT; i++)
		if (!strcmp(point_table[i].name, name))
			return &point_table[i];
	return NULL;
}

/* The point whose programs stand at such instructions of machine code; NULL: none. */
static inline const struct point *point_of_instruction(uint32_t instruction) {
	for (size_t i = 0; i < POINT_COUNT; i++)
		if (instruction < 32 && point_table[i].instructions >> instruction & 1)
			return &point_table[i];
	return NULL;
}

/* The point of a kind; of classes the one with that instruction (NULL: none). */
static inline const struct point *point_of(enum point_kind kind, uint32_t instruction) {
	return kind == POINT_CLASS ? point_of_instruction(instruction) : &point_table[kind];
}

static inline enum point_context point_context_of(enum point_kind kind) {
	size_t i = 0;

	while (point_table[i].kind != kind)
		i++;
	return point_table[i].context;
}

/* State spaces of memory points, by enum gpuprobe_space. */
static const char *const point_spaces[] = {
	"generic", "global", "shared", "local", "const", "param"
};
#define POINT_SPACES (sizeof(point_spaces) / sizeof(point_spaces[0]))
#define POINT_SPACES_DEFAULT UINT32_C(0x1f) /* as bits: all but param */
#define POINT_SPACES_SASS                                                                        \
	UINT32_C(0xf) /* that accesses of machine code can be to: generic, global, shared, local \
		       */

/* The bit of a space, 1 << its number; 0: there is none of this name. */
static inline uint32_t point_space(const char *name) {
	for (size_t i = 0; name && i < POINT_SPACES; i++)
		if (!strcmp(name, point_spaces[i]))
			return UINT32_C(1) << i;
	return 0;
}
