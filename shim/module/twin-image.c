/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fills in a twin's image (twin.h, proto/twin.h). The table comes from a worker, which may have
 * been taken over by whoever made the image: nothing in it is believed.
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
	const char *names; /* the last byte is NUL */
	uint32_t names_size;
	size_t image_size;
};

static bool read_table(const struct load *load, struct table *table) {
	const uint8_t *bytes = load->image;
	struct twin_table header;
	struct image image;
	uint64_t at, left;

	if (!image_recognise(&image, load->image, load->size) || image.data != load->image ||
	    image.size > load->length)
		return false;
	at = (image.size + 7) & ~UINT64_C(7);
	if (at > load->length || load->length - at < sizeof(header))
		return false;
	memcpy(&header, bytes + at, sizeof(header));
	left = load->length - at - sizeof(header);
	if (header.magic != TWIN_MAGIC || header.version != TWIN_VERSION ||
	    header.variable_count > TWIN_VARIABLES_MAX ||
	    left != header.variable_count * sizeof(struct twin_variable) +
			    (uint64_t)header.names_size)
		return false;
	*table = (struct table){
		.variables = bytes + at + sizeof(header),
		.count = header.variable_count,
		.names_size = header.names_size,
		.image_size = image.size,
	};
	table->names = (const char *)table->variables + table->count * sizeof(struct twin_variable);
	return !table->count || (table->names_size && !table->names[table->names_size - 1]);
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
	return result ? 0 : where;
}

bool twin_image_fill(struct load *load, enum load_kind kind, driver_handle original,
		     const char **missing) {
	struct twin_variable variable;
	struct image image;
	struct table table;

	*missing = NULL;
	if (!read_table(load, &table))
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
