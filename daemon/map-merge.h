/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the map library: the totals of processes that are gone.
 */

#include <stdint.h>

#include "map.h"

/* Bytes that the totals of a map take. */
uint64_t map_totals_size(const struct map *map);

/* Adds what an instance holds to its map's totals, which are created when it holds anything. 0 or -ENOMEM. */
int map_totals_add(struct map *map, const struct map_instance *instance);
