/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The table behind the image of a twin (proto/twin.h), as it grows. */

#include "image-build.h"

struct twin_kernel;
struct twin_variable;

/* All zero: it is empty. */
struct image_table {
	struct twin_variable *variables; /* owned, like all below */
	size_t count, allocated;
	struct twin_kernel *kernels;
	size_t kernel_count, kernels_allocated;
	char *names;
	size_t names_size, names_allocated;
};

/* A slot at `offset` of the image, for the address of a variable. 0; 1: there are too many;
 * -ENOMEM. */
int image_table_add_variable(struct image_table *table, const char *name, uint64_t offset,
			     int64_t addend);

/* A kernel with a block of its launch. The numbers are of a struct twin_kernel. Returns likewise.
 */
int image_table_add_kernel(struct image_table *table, const char *name, size_t length,
			   uint32_t parameter_count, uint32_t size, uint32_t offset);

/* Puts the table behind an image. 0 or -ENOMEM. */
int image_table_append(const struct image_table *table, struct image_built *result);
void image_table_deinit(struct image_table *table);
