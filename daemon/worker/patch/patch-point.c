/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of the sanitizer engine's points (patch-point.h): classes of instructions and the
 * fields that a program can read there.
 */

#include "patch-point.h"

#include <stdio.h>
#include <string.h>

/* Indexes into point_spaces. */
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
	{ PATCH_BLOCK_ENTER, POINT_KERNEL_CONTEXT },
	{ PATCH_BLOCK_EXIT, POINT_KERNEL_CONTEXT },
	{ PATCH_GLOBAL_MEMORY, POINT_MEMORY_CONTEXT, SPACE_GLOBAL, MEMORY },
	{ PATCH_SHARED_MEMORY, POINT_MEMORY_CONTEXT, SPACE_SHARED, MEMORY },
	{ PATCH_LOCAL_MEMORY, POINT_MEMORY_CONTEXT, SPACE_LOCAL, MEMORY },
	{ PATCH_BARRIER,
	  POINT_EVENT_CONTEXT,
	  0,
	  { { "index", 32 }, { "threads", 32 }, { "flags", 32 } },
	  { "index", "threads" } },
	{ PATCH_SYNCWARP, POINT_EVENT_CONTEXT, 0, { { "mask", 32 } }, { "mask" } },
	{ PATCH_SHFL, POINT_EVENT_CONTEXT },
	{ PATCH_CALL, POINT_EVENT_CONTEXT, 0, { { "target", 64 }, { "flags", 32 } }, { "target" } },
	{ PATCH_RET, POINT_EVENT_CONTEXT },
	{ PATCH_MALLOC,
	  POINT_EVENT_CONTEXT,
	  0,
	  { { "address", 64 }, { "size", 64 } },
	  { "address", "size" } },
	{ PATCH_FREE, POINT_EVENT_CONTEXT, 0, { { "address", 64 } }, { "address" } },
	{ PATCH_REMOTE_SHARED_MEMORY, POINT_MEMORY_CONTEXT, SPACE_GLOBAL, MEMORY },
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

uint32_t patch_point_classes(const struct point *point, uint32_t spaces) {
	uint32_t found = point->instructions;

	for (size_t i = 0; point->kind == POINT_MEMORY && i < sizeof(classes) / sizeof(*classes);
	     i++)
		if (!is_wanted(&classes[i], spaces))
			found &= ~(1u << classes[i].instruction);
	return found;
}

bool patch_context_has(enum point_context context, uint32_t offset) {
	return point_is_on_sass(context, offset);
}

void patch_context_format(enum point_context context, uint32_t offset, char *text, size_t size) {
	if (context == POINT_KERNEL_CONTEXT && offset == 56)
		snprintf(text, size, "param_count");
	else if (context == POINT_KERNEL_CONTEXT && offset > 56)
		snprintf(text, size, "params[%u]", (offset - 64) / 8);
	else
		snprintf(text, size, "the 8 bytes at offset %u", offset);
}
