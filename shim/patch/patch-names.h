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
	const char *left; /* why the module is left alone; NULL: it is not */
};

/*
 * Reads what it can of the bytes, which may be anything. A module whose kernels act on graphs is
 * left alone, because patched code does that wrongly (a condition is not set), and one that cannot
 * be read. false: no kernels, or no memory.
 */
bool patch_names_read(struct patch_names *names, const void *cubin, size_t size);

void patch_names_free(struct patch_names *names);

/* The number of a name, or PATCH_NAME_NONE. */
uint32_t patch_names_find(const struct patch_names *names, const char *name);
