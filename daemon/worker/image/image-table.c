/* SPDX-License-Identifier: Apache-2.0 */

/* Writes the table behind the image of a twin (image-table.h). */

#include "image-table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/twin.h"

static int add_name(struct image_table *table, const char *name, size_t length, uint32_t *offset) {
	if (table->names_size + length + 1 > table->names_allocated) {
		size_t size = 2 * table->names_allocated + length + 256;
		char *more = realloc(table->names, size);

		if (!more)
			return -ENOMEM;
		table->names = more;
		table->names_allocated = size;
	}
	*offset = (uint32_t)table->names_size;
	memcpy(table->names + table->names_size, name, length);
	table->names[table->names_size + length] = '\0';
	table->names_size += length + 1;
	return 0;
}

/* Room for one more of `size` bytes each. NULL: no memory. */
static void *grow(void *members, size_t count, size_t *allocated, size_t size) {
	void *more;

	if (count < *allocated)
		return members;
	more = reallocarray(members, 2 * *allocated + 16, size);
	if (more)
		*allocated = 2 * *allocated + 16;
	return more;
}

int image_table_add_variable(struct image_table *table, const char *name, uint64_t offset,
			     int64_t addend) {
	struct twin_variable *more;
	uint32_t at;
	int r;

	if (table->count == TWIN_VARIABLES_MAX)
		return 1;
	more = grow(table->variables, table->count, &table->allocated, sizeof(*more));
	if (!more)
		return -ENOMEM;
	table->variables = more;
	r = add_name(table, name, strlen(name), &at);
	if (r)
		return r;
	table->variables[table->count++] =
		(struct twin_variable){ .offset = offset, .name = at, .addend = addend };
	return 0;
}

int image_table_add_kernel(struct image_table *table, const char *name, size_t length,
			   uint32_t parameter_count, uint32_t size, uint32_t offset) {
	struct twin_kernel *more;
	uint32_t at;
	int r;

	if (table->kernel_count == TWIN_KERNELS_MAX)
		return 1;
	more = grow(table->kernels, table->kernel_count, &table->kernels_allocated, sizeof(*more));
	if (!more)
		return -ENOMEM;
	table->kernels = more;
	r = add_name(table, name, length, &at);
	if (r)
		return r;
	table->kernels[table->kernel_count++] = (struct twin_kernel){
		.name = at, .parameter_count = parameter_count, .size = size, .offset = offset
	};
	return 0;
}

int image_table_append(const struct image_table *table, struct image_built *result) {
	const size_t begin = (result->size + 7) & ~(size_t)7;
	const struct twin_table header = {
		.magic = TWIN_MAGIC,
		.version = TWIN_VERSION,
		.variable_count = (uint32_t)table->count,
		.kernel_count = (uint32_t)table->kernel_count,
		.names_size = (uint32_t)table->names_size,
	};
	const size_t variables = table->count * sizeof(*table->variables),
		     kernels = table->kernel_count * sizeof(*table->kernels),
		     size = begin + sizeof(header) + variables + kernels + table->names_size;
	uint8_t *data = realloc(result->data, size), *to;

	if (!data)
		return -ENOMEM;
	memset(data + result->size, 0, begin - result->size);
	to = mempcpy(data + begin, &header, sizeof(header));
	if (variables)
		to = mempcpy(to, table->variables, variables);
	if (kernels)
		to = mempcpy(to, table->kernels, kernels);
	if (table->names_size)
		memcpy(to, table->names, table->names_size);
	result->data = data;
	result->size = size;
	return 0;
}

void image_table_deinit(struct image_table *table) {
	free(table->variables);
	free(table->kernels);
	free(table->names);
	*table = (struct image_table){};
}
