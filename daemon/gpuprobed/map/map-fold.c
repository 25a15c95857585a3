/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Adds the instances of ended processes to the totals of their maps (map.h).
 *
 * Folding: what instances of processes that are gone hold goes into the totals of their map, one
 * instance after the other, a bit at a time: large maps take seconds, in which nobody may have to
 * wait. Readers of arrays take the part of an instance that is in the totals from there. Dumps of
 * hash maps wait for the end of an instance, and folding does not begin with one while such a dump
 * is being prepared, which would have to begin again.
 */

#include "map-internal.h"
#include "lib/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE 3 /* calls without a sign of a dump */

/*
 * How new an instance is whose process is gone. One that said that it was of the future does not
 * stay the newest for ever.
 */
static uint64_t recency_at_end(const struct map_instance *instance) {
	uint64_t recency = map_instance_recency(instance), now;

	if (instance->map->spec.layout.place != MAP_PLACE_DEVICE)
		return recency;
	now = monotonic_now();
	return recency < now ? recency : now;
}

/* Whether somebody is reading the instances of a hash map one after the other. */
static bool fold_waits(struct map *map) {
	if (map->steps != map->steps_seen) {
		map->steps_seen = map->steps;
		map->patience = PATIENCE;
	}
	return map->patience && map->patience--;
}

/* The next instance whose process is gone, if there is one. 0 or MAP_E_AGAIN: not yet. */
static int fold_begin(struct map *map, uint64_t budget) {
	struct map_instance *instance = map->instances;
	uint64_t recency;

	while (instance && (!instance->gone || instance->consumer))
		instance = instance->next;
	if (!instance)
		return 0;
	if (!budget || fold_waits(map))
		return MAP_E_AGAIN;
	recency = recency_at_end(instance);
	map->fold = (struct map_fold){
		.instance = instance,
		.recency = recency,
		.newest = recency && map->spec.layout.merge != MAP_MERGE_LATEST &&
			  (!map->totals || recency >= map->totals->recency),
	};
	map->folds++;
	map->retained = true;
	map_totals_fold_begin(map);
	return 0;
}

static void fold_end(struct map *map, bool complete) {
	struct map_instance **at = &map->instances;
	struct map_fold fold = map->fold;

	map_totals_fold_end(map, complete && fold.newest && map->spec.layout.kind != MAP_KIND_HASH);
	map->fold = (struct map_fold){};
	while (*at != fold.instance)
		at = &(*at)->next;
	map_instance_remove(map, at);
}

int map_fold(struct map *map, uint64_t *budgetp) {
	int r, error;

	if (map->spec.layout.kind == MAP_KIND_RING)
		return map_fold_rings(map, budgetp);
	for (;;) {
		r = map->fold.instance ? 0 : fold_begin(map, *budgetp);
		if (r || !map->fold.instance)
			return r;
		if (!*budgetp)
			return MAP_E_AGAIN;
		r = map_totals_step(map, budgetp);
		if (r != MAP_E_AGAIN) {
			map_spend(budgetp, map->fold.instance->size); /* its pages are given back */
			fold_end(map, !r);
		}
		error = map_charge_totals(map);
		if (r || error)
			return r ? r : error;
	}
}

int map_process_gone(struct map *map, uint64_t process) {
	uint64_t budget;
	int r, error = 0;

	map_process_end(map, process);
	do {
		budget = UINT64_MAX;
		r = map_fold(map, &budget);
		error = r < 0 ? r : error;
	} while (r);
	return error;
}
