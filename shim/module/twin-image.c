/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fills in a twin's image, and reads its table (twin.h, proto/twin.h). The table comes from a
 * worker, which may have been taken over by whoever made the image: nothing in it is believed.
 */

#include <string.h>
#include <sys/mman.h>

#include "image.h"
#include "proto/twin.h"
#include "twin.h"

/* The table of a twin's file, checked. */
struct table {
	const uint8_t *variables; /* not aligned */
	uint32_t count;
	const uint8_t *kernels; /* not aligned */
	uint32_t kernel_count;
	const char *names; /* the last byte is NUL */
	uint32_t names_size;
	size_t image_size;
};

static bool read_table(const struct load *load, struct table *table) {
	const uint8_t *bytes = load->image;
	uint64_t at, left, variables, kernels;
	struct twin_table header;
	struct image image;

	if (!image_recognise(&image, load->image, load->size) || image.data != load->image ||
	    image.size > load->length)
		return false;
	at = (image.size + 7) & ~UINT64_C(7);
	if (at > load->length || load->length - at < sizeof(header))
		return false;
	memcpy(&header, bytes + at, sizeof(header));
	left = load->length - at - sizeof(header);
	variables = header.variable_count * sizeof(struct twin_variable);
	kernels = header.kernel_count * sizeof(struct twin_kernel);
	if (header.magic != TWIN_MAGIC || header.version != TWIN_VERSION || header.reserved ||
	    header.variable_count > TWIN_VARIABLES_MAX || header.kernel_count > TWIN_KERNELS_MAX ||
	    left != variables + kernels + header.names_size)
		return false;
	*table = (struct table){
		.variables = bytes + at + sizeof(header),
		.count = header.variable_count,
		.kernels = bytes + at + sizeof(header) + variables,
		.kernel_count = header.kernel_count,
		.names = (const char *)bytes + at + sizeof(header) + variables + kernels,
		.names_size = header.names_size,
		.image_size = image.size,
	};
	return (!table->count && !table->kernel_count) ||
	       (table->names_size && !table->names[table->names_size - 1]);
}

/* A kernel with a block. False: what is said of it cannot be. */
static bool read_kernel(const struct table *table, uint32_t index, struct twin_kernel *kernel) {
	memcpy(kernel, table->kernels + index * sizeof(*kernel), sizeof(*kernel));
	return kernel->name < table->names_size && kernel->parameter_count <= kernel->size &&
	       kernel->size <= LAUNCH_PARAMETERS_MAX_LARGE &&
	       kernel->offset == (kernel->size + 7) / 8 * 8 &&
	       kernel->offset + sizeof(struct launch_block) <= LAUNCH_PARAMETERS_MAX_LARGE;
}

struct launch_form twin_image_form(const struct load *twin, const char *kernel) {
	struct twin_kernel one;
	struct table table;

	if (!read_table(twin, &table))
		return (struct launch_form){};
	for (uint32_t i = 0; i < table.kernel_count; i++)
		if (read_kernel(&table, i, &one) && !strcmp(table.names + one.name, kernel))
			return (struct launch_form){ .count = (uint16_t)one.parameter_count,
						     .size = (uint16_t)one.size,
						     .offset = (uint16_t)one.offset,
						     .has_block = 1 };
	return (struct launch_form){};
}

/* The address of a variable in the current context; 0: the original does not have it there. */
static driver_pointer find_variable(enum load_kind kind, driver_handle original, const char *name) {
	const struct driver *driver = driver_own();
	driver_pointer where = 0;
	driver_result result = -1;
	size_t size;

	if (kind != LOAD_LIBRARY)
		result = driver->module_get_global(&where, &size, original, name);
	else if (driver->library_get_global)
		result = driver->library_get_global(&where, &size, original, name);
	if (result && kind == LOAD_LIBRARY && driver->library_get_managed) /* in no context */
		result = driver->library_get_managed(&where, &size, original, name);
	return result ? 0 : where;
}

bool twin_image_fill(struct load *load, enum load_kind kind, driver_handle original,
		     const char **missing) {
	struct twin_variable variable;
	struct twin_kernel kernel;
	struct image image;
	struct table table;

	*missing = NULL;
	if (!read_table(load, &table))
		return false;
	for (uint32_t i = 0; i < table.kernel_count; i++)
		if (!read_kernel(&table, i, &kernel))
			return false;
	if (!table.count)
		return true;
	if (mprotect(load->image, load->size, PROT_READ | PROT_WRITE))
		return false;
	for (uint32_t i = 0; i < table.count; i++) {
		uint64_t address;

		memcpy(&variable, table.variables + i * sizeof(variable), sizeof(variable));
		if (table.image_size < sizeof(address) || variable.reserved ||
		    variable.offset > table.image_size - sizeof(address) ||
		    variable.name >= table.names_size)
			return false;
		address = find_variable(kind, original, table.names + variable.name);
		if (!address) {
			*missing = table.names + variable.name;
			return false;
		}
		address += (uint64_t)variable.addend;
		memcpy((uint8_t *)load->image + variable.offset, &address, sizeof(address));
	}
	/* the driver finds its end by its headers: these must be as they were */
	return image_recognise(&image, load->image, load->size) && image.size == table.image_size;
}
