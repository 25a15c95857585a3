/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The points of the sanitizer engine: their classes of instructions, and what a program can read
 * there.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/point.h"

#define PATCH_CLASSES_MAX 32 /* numbers of classes are below */
#define PATCH_PARAMETERS_MAX 4

/*
 * A class, and the function that is called at its instructions: (u64 data, u64 pc, parameters...).
 */
struct patch_class {
	uint32_t instruction; /* enum patch_instruction */
	enum point_context context; /* of its point */
	uint32_t space; /* of memory: enum gpuprobe_space */
	struct {
		const char *name; /* NULL: no more */
		unsigned int bits;
	} parameters[PATCH_PARAMETERS_MAX];
	const char *arguments[3]; /* of an event: names of parameters */
};

/* The class of that number, NULL if there is none. */
const struct patch_class *patch_class_find(uint32_t instruction);

/* The classes of a point, a bit for each number; `spaces` (probe.h) of memory. 0: none. */
uint32_t patch_point_classes(const struct point *point, uint32_t spaces);

/* Does the context of the sanitizer engine have the field at this offset? */
bool patch_context_has(enum point_context context, uint32_t offset);

/* What a program's author calls that field: "param_count", "params[2]", or its offset. */
void patch_context_format(enum point_context context, uint32_t offset, char *text, size_t size);
