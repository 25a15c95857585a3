/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For the tests of maps: maps by their shape, and instances as a process sees and writes them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "map.h"

#define OWNER 1000

/* A map of these sizes, as map-layout.h lays it out. */
static inline struct map_spec spec_of(const struct map_shape *shape) {
	struct map_spec spec = {
		.name = "values",
		.type = shape->type,
		.key_size = shape->key_size,
		.value_size = shape->value_size,
		.max_entries = shape->max_entries,
		.kernel_fd = -1,
	};

	assert_null(map_layout_init(&spec.layout, shape));
	return spec;
}

/* A process's view of its instance. */
struct view {
	struct map_instance *instance;
	struct map_header *header;
	unsigned char *data;
	size_t size;
};

static inline struct view view_of(struct map_instance *instance) {
	struct view view = { .instance = instance, .size = instance->size };
	unsigned char *bytes;

	bytes = mmap(NULL, view.size, PROT_READ | PROT_WRITE, MAP_SHARED, instance->fd, 0);
	assert_ptr_not_equal(bytes, MAP_FAILED);
	view.header = (struct map_header *)(void *)bytes;
	view.data = bytes;
	if (instance->map->spec.layout.place != MAP_PLACE_KERNEL)
		view.data += MAP_DATA_OFFSET;
	return view;
}

/* Of a new instance. Processes have the pid 100 + their number. */
static inline struct view view_make(struct map *map, uint64_t process, uint32_t device) {
	struct map_instance *instance;

	assert_int_equal(map_instance_get(map, process, (pid_t)(100 + process), device,
					  1000 * (device + 1) + process, &instance),
			 0);
	return view_of(instance);
}

static inline void view_free(struct view *view) {
	munmap(view->header, view->size);
}

static inline void put64(struct view *view, uint64_t offset, uint64_t value) {
	memcpy(view->data + offset, &value, sizeof(value));
}

static inline uint64_t value64(const struct map_entry *entry, uint32_t i) {
	uint64_t value;

	memcpy(&value, entry->values + i * sizeof(value), sizeof(value));
	return value;
}

/* A cursor from the start. */
static inline struct map_cursor cursor_of(bool per_process, bool nonzero, bool latest) {
	struct map_cursor cursor;

	map_cursor_init(&cursor, &(struct map_order){ per_process, nonzero, latest });
	return cursor;
}

/* As a dump does: goes on until there is an entry or none is left. */
static inline int next_entry(struct map *map, struct map_cursor *cursor, struct map_entry *entry) {
	int r;

	do
		r = map_next(map, cursor, entry);
	while (r == MAP_E_AGAIN);
	return r;
}
