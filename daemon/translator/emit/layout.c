/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides how the values of a map lie in memory (layout.h), from what all programs of the object do
 * with them.
 *
 * An array whose values are only ever added to need not be one array: each SM adds to a copy of its
 * own, and who reads sums them. That takes programs that never look at the values, and additions of
 * one width, so that the sum is one of lanes of that width. Then each module may have a copy of its
 * own, too, and the probe has its address as a constant: waiting for a pointer at a kernel's entry
 * costs more than the addition (vectorAdd, 16.8M threads, H200: 1.44x against 1.10x).
 *
 * The same holds where programs only ever store whole values of at most 8 bytes: each SM stores to
 * a copy of its own, with the time, and the youngest is the value.
 */

#include "layout.h"

#include "daemon/translator/check/analysis.h"

/* Threads with many elements to store to rarely meet, and the copies would cost more than that. */
#define LATEST_ENTRIES_MAX (MAP_RESIDENT_SIZE_MAX / MAP_SHARDS_MAX / 16)

static enum map_merge merge_of(const struct translate_map *map, uint8_t uses) {
	switch (uses & ~MAP_USE_ANY) {
	case MAP_USE_ADD64:
		return MAP_MERGE_SUM64;
	case MAP_USE_ADD32:
		return MAP_MERGE_SUM32;
	case MAP_USE_UPDATE:
		return map->value_size <= 8 && map->max_entries <= LATEST_ENTRIES_MAX
			       ? MAP_MERGE_LATEST
			       : MAP_MERGE_NONE;
	default:
		return MAP_MERGE_NONE;
	}
}

int layout_map(const struct translate_map *map, uint8_t uses, struct translate_map_result *result,
	       const char **reason) {
	struct map_shape shape = {
		.type = map->type,
		.key_size = map->key_size,
		.value_size = map->value_size,
		.max_entries = map->max_entries,
		.place = map->place,
		.merge = merge_of(map, uses),
		.threads = map->threads,
		.ring_bytes = map->ring_bytes,
	};
	struct map_layout *layout = &result->layout;

	*result = (struct translate_map_result){ .layout.shards = 1 };
	if (!uses)
		return 0;
	*reason = map_layout_init(layout, &shape);
	if (*reason)
		return TRANSLATE_E_MAP;
	result->used = true;
	result->deletes = uses & MAP_USE_DELETE;
	result->resident = map_can_be_resident(layout);
	return 0;
}
