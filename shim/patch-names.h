/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of the kernels of a cubin, from its symbol table. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATCH_NAME_NONE UINT32_MAX

struct patch_names {
	char *text; /* the names one behind the other, each with its NUL */
	size_t size; /* of the text */
	uint32_t count;
	uint32_t *offsets; /* of each name in the text */
	uint32_t *order; /* the names' numbers, sorted by name */
	bool acts; /* kernels of it call functions of CUDA that act on graphs: they set conditions, change nodes or launch */
};

/* Reads what it can of the bytes, which may be anything. false: no kernels, or no memory. */
bool patch_names_read(struct patch_names *names, const void *cubin, size_t size);

void patch_names_free(struct patch_names *names);

/* The number of a name, or PATCH_NAME_NONE. */
uint32_t patch_names_find(const struct patch_names *names, const char *name);
