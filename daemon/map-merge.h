/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the map library: what instances start with, and the totals of processes that are gone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "map.h"

/* Whether programs only ever add to the values. */
static inline bool map_is_sum(const struct map_spec *spec) {
	return spec->merge == MAP_MERGE_SUM64 || spec->merge == MAP_MERGE_SUM32;
}

/*
 * What the value of an instance starts with; NULL: zeros. Those of a SUM map are zeros always, as
 * modules may hold such data themselves: the initial bytes are added when the map is read.
 */
static inline const unsigned char *map_start(const struct map_spec *spec) {
	return map_is_sum(spec) ? NULL : spec->initial;
}

/* Bytes that the totals of a map take. */
uint64_t map_totals_size(const struct map *map);

/*
 * Adds what an instance holds to its map's totals, which are created when it holds anything. 0 or
 * -ENOMEM.
 */
int map_totals_add(struct map *map, const struct map_instance *instance);
