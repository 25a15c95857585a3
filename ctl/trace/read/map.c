/* SPDX-License-Identifier: Apache-2.0 */

/* A hash table from two numbers to a pointer (map.h). Readers of traces and statistics use it. */

#include <errno.h>
#include <stdlib.h>

#include "map.h"

/* The slot of the two numbers, or the free one where it would be; NULL only if the map has no
 * slots. */
static struct trace_map_slot *find_slot(const struct trace_map *map, uint64_t a, uint64_t b) {
	size_t mask = map->n_slots - 1;

	if (!map->n_slots)
		return NULL;
	for (size_t i = trace_map_hash(a, b) & mask;; i = (i + 1) & mask) {
		struct trace_map_slot *slot = &map->slots[i];

		if (!slot->value || (slot->a == a && slot->b == b))
			return slot;
	}
}

void *trace_map_get(const struct trace_map *map, uint64_t a, uint64_t b) {
	const struct trace_map_slot *slot = find_slot(map, a, b);

	return slot ? slot->value : NULL;
}

static int grow(struct trace_map *map) {
	struct trace_map larger = { .n = map->n, .n_slots = map->n_slots ? map->n_slots * 2 : 64 };

	larger.slots = calloc(larger.n_slots, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < map->n_slots; i++)
		if (map->slots[i].value)
			*find_slot(&larger, map->slots[i].a, map->slots[i].b) = map->slots[i];
	free(map->slots);
	*map = larger;
	return 0;
}

int trace_map_set(struct trace_map *map, uint64_t a, uint64_t b, void *value) {
	struct trace_map_slot *slot;

	if (map->n * 4 >= map->n_slots * 3 && grow(map))
		return -ENOMEM;
	slot = find_slot(map, a, b);
	map->n += !slot->value;
	*slot = (struct trace_map_slot){ a, b, value };
	return 0;
}

int trace_map_filter(struct trace_map *map, bool (*keep)(void *value, void *userdata),
		     void *userdata) {
	struct trace_map kept = { .n_slots = map->n_slots };

	if (!map->n)
		return 0;
	kept.slots = calloc(kept.n_slots, sizeof(*kept.slots));
	if (!kept.slots)
		return -ENOMEM;
	for (size_t i = 0; i < map->n_slots; i++)
		if (map->slots[i].value && keep(map->slots[i].value, userdata)) {
			*find_slot(&kept, map->slots[i].a, map->slots[i].b) = map->slots[i];
			kept.n++;
		}
	free(map->slots);
	*map = kept;
	return 0;
}

void trace_map_deinit(struct trace_map *map, void (*free_value)(void *value)) {
	for (size_t i = 0; free_value && i < map->n_slots; i++)
		if (map->slots[i].value)
			free_value(map->slots[i].value);
	free(map->slots);
	*map = (struct trace_map){};
}
