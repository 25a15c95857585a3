/* SPDX-License-Identifier: Apache-2.0 */

/* A hash table from two numbers to a pointer (map.h). Readers of traces and statistics use it. */

#include <errno.h>

#include "map.h"

struct entry {
	uint64_t a, b;
	void *value;
};

void *trace_map_get(const struct trace_map *map, uint64_t a, uint64_t b) {
	const uint64_t key[] = { a, b };
	const struct entry *entry = hash_table_find(&map->table, key);

	return entry ? entry->value : NULL;
}

int trace_map_set(struct trace_map *map, uint64_t a, uint64_t b, void *value) {
	const uint64_t key[] = { a, b };
	struct entry *entry;

	map->table.key_size = sizeof(key);
	map->table.entry_size = sizeof(*entry);
	entry = hash_table_add(&map->table, key, NULL);
	if (!entry)
		return -ENOMEM;
	entry->value = value;
	return 0;
}

void trace_map_filter(struct trace_map *map, bool (*keep)(void *value, void *userdata),
		      void *userdata) {
	for (size_t i = map->table.n; i-- > 0;) {
		struct entry *entry = hash_table_at(&map->table, i);

		if (!keep(entry->value, userdata))
			hash_table_remove(&map->table, entry);
	}
}

void trace_map_deinit(struct trace_map *map, void (*free_value)(void *value)) {
	for (size_t i = 0; free_value && i < map->table.n; i++)
		free_value(((struct entry *)hash_table_at(&map->table, i))->value);
	hash_table_deinit(&map->table);
}
