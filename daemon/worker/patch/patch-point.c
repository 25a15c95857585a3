/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of the SASS engine's points (patch-point.h): classes of instructions and the fields
 * that a program can read there.
 */

#include "patch-point.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* As enum gpuprobe_space of proto/gpuprobe.bpf.h counts them. */
enum {
	SPACE_GENERIC,
	SPACE_GLOBAL,
	SPACE_SHARED,
	SPACE_LOCAL,
};

#define MEMORY                     \
	{                          \
		{ "address", 64 }, \
		{ "size", 32 },    \
		{ "flags", 32 },   \
		{ "pointer", 64 }, \
	}

static const struct patch_class classes[] = {
	{ PATCH_BLOCK_ENTER, "entry", PATCH_CONTEXT_KERNEL },
	{ PATCH_BLOCK_EXIT, "return", PATCH_CONTEXT_KERNEL },
	{ PATCH_GLOBAL_MEMORY, "memory", PATCH_CONTEXT_MEMORY, SPACE_GLOBAL, MEMORY },
	{ PATCH_SHARED_MEMORY, "memory", PATCH_CONTEXT_MEMORY, SPACE_SHARED, MEMORY },
	{ PATCH_LOCAL_MEMORY, "memory", PATCH_CONTEXT_MEMORY, SPACE_LOCAL, MEMORY },
	{ PATCH_BARRIER,
	  "barrier",
	  PATCH_CONTEXT_EVENT,
	  0,
	  { { "index", 32 }, { "threads", 32 }, { "flags", 32 } },
	  { "index", "threads" } },
	{ PATCH_SYNCWARP, "syncwarp", PATCH_CONTEXT_EVENT, 0, { { "mask", 32 } }, { "mask" } },
	{ PATCH_SHFL, "shfl", PATCH_CONTEXT_EVENT },
	{ PATCH_CALL,
	  "call",
	  PATCH_CONTEXT_EVENT,
	  0,
	  { { "target", 64 }, { "flags", 32 } },
	  { "target" } },
	{ PATCH_RET, "ret", PATCH_CONTEXT_EVENT },
	{ PATCH_MALLOC,
	  "malloc",
	  PATCH_CONTEXT_EVENT,
	  0,
	  { { "address", 64 }, { "size", 64 } },
	  { "address", "size" } },
	{ PATCH_FREE, "free", PATCH_CONTEXT_EVENT, 0, { { "address", 64 } }, { "address" } },
	{ PATCH_REMOTE_SHARED_MEMORY, "memory", PATCH_CONTEXT_MEMORY, SPACE_GLOBAL, MEMORY },
};

/*
 * What of spaces (bits of 1 << space) reaches a class of memory; generic addresses are of the class
 * of global ones.
 */
static bool is_wanted(const struct patch_class *class, uint32_t spaces) {
	return spaces & 1u << class->space ||
	       (class->instruction == PATCH_GLOBAL_MEMORY && spaces & 1u << SPACE_GENERIC);
}

const struct patch_class *patch_class_find(uint32_t instruction) {
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (classes[i].instruction == instruction)
			return &classes[i];
	return NULL;
}

int patch_point_find(const char *point, uint32_t spaces, uint32_t *found,
		     enum patch_context *context) {
	bool known = false;

	*found = 0;
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
		if (strcmp(classes[i].point, point))
			continue;
		known = true;
		*context = classes[i].context;
		if (classes[i].context != PATCH_CONTEXT_MEMORY || is_wanted(&classes[i], spaces))
			*found |= 1u << classes[i].instruction;
	}
	return known ? 0 : -ENOENT;
}

bool patch_context_has(enum patch_context context, uint32_t offset) {
	/* A kernel's context ends before param_count, the others have all their members. */
	static const uint32_t ends[] = { 56, 48, 40 };

	return offset < ends[context];
}

void patch_context_format(enum patch_context context, uint32_t offset, char *text, size_t size) {
	if (context == PATCH_CONTEXT_KERNEL && offset == 56)
		snprintf(text, size, "param_count");
	else if (context == PATCH_CONTEXT_KERNEL && offset > 56)
		snprintf(text, size, "params[%u]", (offset - 64) / 8);
	else
		snprintf(text, size, "the 8 bytes at offset %u", offset);
}
