/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An array whose values are only ever added to need not be one array: each SM adds to a copy of its
 * own, and who reads sums them. That takes programs that never look at the values, and additions of
 * one width, so that the sum is one of lanes of that width. Then each module may have a copy of its
 * own, too, and the probe has its address as a constant: waiting for a pointer at a kernel's entry
 * costs more than the addition (vectorAdd, 16.8M threads, H200: 1.44x against 1.10x).
 */

#include "layout.h"

#include "analysis.h"

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static enum map_merge merge_of(const struct translate_map *map, uint8_t uses)
{
	if (map->type == BPF_MAP_TYPE_PERCPU_ARRAY)
		return MAP_MERGE_PERCPU;
	switch (uses & ~MAP_USE_ANY) {
	case MAP_USE_ADD64:
		return MAP_MERGE_SUM64;
	case MAP_USE_ADD32:
		return MAP_MERGE_SUM32;
	default:
		return MAP_MERGE_NONE;
	}
}

int layout_map(const struct translate_map *map, uint8_t uses, struct translate_map_result *result,
	       const char **reason)
{
	uint64_t values, stride;
	uint32_t shards;

	*result = (struct translate_map_result){ .merge = MAP_MERGE_NONE, .shards = 1 };
	if (!uses)
		return 0;
	if (map->type != BPF_MAP_TYPE_ARRAY && map->type != BPF_MAP_TYPE_PERCPU_ARRAY &&
	    map->type != 1503) {
		*reason = "its type is not available on the GPU in this release";
		return TRANSLATE_E_MAP;
	}
	if (map->key_size != 4 || map->value_size == 0 || map->max_entries == 0) {
		*reason =
			"an array has keys of 4 bytes, values of at least 1, and at least 1 entry";
		return TRANSLATE_E_MAP;
	}
	stride = round_up(map->value_size, 8);
	if (stride > MAP_DATA_SIZE_MAX / map->max_entries) {
		*reason = "it is larger than 4 GiB";
		return TRANSLATE_E_MAP;
	}
	values = stride * map->max_entries;

	result->used = true;
	result->merge = merge_of(map, uses);
	shards = result->merge == MAP_MERGE_NONE ? 1 : MAP_SHARDS_MAX;
	while (shards > 1 && shards * round_up(values, MAP_SHARD_ALIGN) > MAP_SHARDED_SIZE_MAX)
		shards /= 2;
	result->shards = shards;
	result->value_stride = stride;
	result->shard_stride = shards > 1 ? round_up(values, MAP_SHARD_ALIGN) : values;
	result->data_size = shards * result->shard_stride;
	result->resident = shards > 1 && result->merge != MAP_MERGE_PERCPU &&
			   result->data_size <= MAP_RESIDENT_SIZE_MAX;
	return 0;
}
