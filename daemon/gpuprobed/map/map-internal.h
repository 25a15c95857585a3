/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the map library: whose instances make a value, what instances start with, and the totals
 * of processes that are gone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "map.h"

struct map_table_memory;

/* Instances that make a value. */
struct map_source {
	bool every; /* of all processes that are there */
	bool gone; /* of those that are gone */
	uint64_t process; /* if not of every one, of this one */
	pid_t pid;
};

static inline bool map_source_has(const struct map_source *source,
				  const struct map_instance *instance) {
	return source->every || instance->process == source->process;
}

/* What processes that are gone leave behind; NULL: they had nothing of the kind. */
struct map_totals {
	uint64_t recency; /* of `latest`, see map_instance_recency() */
	unsigned char *sums; /* arrays: see map-merge.c */
	unsigned char *latest; /* arrays: of the newest instance; NULL: what it started with */
	struct map_table *table; /* hash maps: see map-hash.c */
	/* map-totals.c's: the memory that all of it lies in */
	struct map_totals_page *page;
	size_t size;
	int fd;
	uint32_t slot; /* of who keeps it; 0: nobody */
	const struct map_keeper *keeper; /* NULL: none */
};

/* Whether programs only ever add to the values. */
static inline bool map_is_sum(const struct map_spec *spec) {
	return spec->layout.merge == MAP_MERGE_SUM64 || spec->layout.merge == MAP_MERGE_SUM32;
}

/* ---- map-start.c ---- */

/*
 * What value `at` of an instance (of a percpu map in that shard) starts with; NULL: zeros. Those of
 * a SUM map are zeros always, as modules may hold such data themselves, and those of a LATEST map
 * have no stamp yet: the initial bytes come in when the map is read.
 */
const unsigned char *map_start_value(const struct map *map, uint64_t at, uint32_t shard);

/* What reading begins with; NULL: zeros. Of a LATEST map with start: with a stamp. */
const unsigned char *map_initial_value(const struct map *map, uint64_t at, uint32_t shard);

/* The same of a hash map: copies the values of a key. False: instances start without it. */
bool map_start_element(const struct map *map, const unsigned char *key, unsigned char *element);

/* An instance of an earlier daemon that is what others start with. 0 or -ENOMEM. */
int map_start_adopt(struct map *map, struct map_instance *start);
void map_start_free(struct map *map);

#define MAP_TOTALS_DELETED                                                                     \
	UINT64_MAX /* instance of an entry of a hash map's totals that the host has deleted or \
		      written over: it does not count */

/* ---- map.c ---- */

/* Charges the owner of a map. force: even over the limit. 0, MAP_E_QUOTA or -ENOMEM. */
int map_charge(struct map *map, uint64_t bytes, bool force);
void map_discharge(struct map *map, uint64_t bytes);

/* Charges what the totals take now, whatever the limit; and what those of hash maps may take more
 * for keys of processes that are not the owner's. 0 or -ENOMEM. */
int map_charge_totals(struct map *map);
uint64_t map_totals_room(const struct map *map);

/* Of the lanes that fill the values of a map without lanes of its own. */
uint32_t map_lane_size(const struct map_spec *spec);

/* Memory for dumps of who reads: *heldp bytes become `bytes`. 0, MAP_E_QUOTA or -ENOMEM; less, and
 * as much, always can. */
int map_accounts_hold(struct map_accounts *accounts, uid_t reader, uint64_t *heldp, uint64_t bytes);
uint64_t map_accounts_room(const struct map_accounts *accounts, uid_t reader);

/* ---- map-instance.c ---- */

/*
 * The instance that a map in a kernel's map has from the start; fd is borrowed. 0, MAP_E_QUOTA or
 * negative errno.
 */
int map_instance_add_kernel(struct map *map, int fd);
struct map_instance *map_instance_free(struct map_instance *instance);

/* One that is not the map's yet, with what instances start with. 0 or negative errno. */
int map_instance_make(struct map_instance **instancep, struct map *map, uint64_t id);

/* map_fold() of a map whose instances are rings. 0 or MAP_E_AGAIN. */
int map_fold_rings(struct map *map, uint64_t *budgetp);

/* Takes an instance out of its list, and gives its memory back. */
void map_instance_remove(struct map *map, struct map_instance **at);

/* Which of several instances is newer; 0: it never had anything. */
uint64_t map_instance_recency(const struct map_instance *instance);

/*
 * Calls copy() between two copies from the device. False if one was under way for too long: what
 * was copied may be torn.
 */
typedef void (*map_copy)(const struct map_instance *instance, uint64_t at, unsigned char *out);
bool map_instance_read(struct map_instance *instance, map_copy copy, uint64_t at,
		       unsigned char *out);

/* ---- map-fold.c ---- */

/* Whether the totals have this element of the instance already. */
static inline bool map_is_folded(const struct map_instance *instance, uint64_t at) {
	const struct map_fold *fold = &instance->map->fold;

	return fold->instance == instance && at < fold->at;
}

static inline void map_spend(uint64_t *budgetp, uint64_t bytes) {
	*budgetp -= bytes < *budgetp ? bytes : *budgetp;
}

/* ---- map-merge.c ---- */

/* Bytes of an element as it is worked on: its values; of a LATEST map value and stamp. */
size_t map_scratch_size(const struct map *map);

/* Copies from an instance, which is written meanwhile: 8 bytes at once. from: aligned to 8. */
void map_copy_words(unsigned char *out, const unsigned char *from, size_t size);
bool map_is_zero(const unsigned char *bytes, size_t size);

/* value += sign * other, lane by lane. other NULL: zeros. */
void map_value_add(const struct map_spec *spec, unsigned char *value, const unsigned char *other,
		   bool negative);
void map_value_copy_rest(const struct map_spec *spec, unsigned char *value,
			 const unsigned char *other);

/* Values of an element up to the last that is not zero, at least 1. */
uint32_t map_n_values(const struct map *map, const unsigned char *values);

/* Element `at` of an array or per-thread array, from these instances. */
void map_element(struct map *map, uint64_t at, const struct map_source *source, bool latest,
		 struct map_entry *entry);

/* Whether elements of a per-thread array are zeros everywhere. */
bool map_elements_zero(const struct map *map, uint64_t first, uint64_t n,
		       const struct map_source *source);

/*
 * Adds more of what map->fold.instance holds to the totals, which are created when it holds
 * anything. 0: that is all, MAP_E_AGAIN, or -ENOMEM.
 */
int map_totals_step(struct map *map, uint64_t *budgetp);

/* Elements of an instance of an array. */
uint64_t map_n_elements(const struct map *map);
uint64_t map_totals_bytes(const struct map *map);

/* ---- map-totals.c ---- */

/* The totals, empty, if the map has none yet. 0 or -ENOMEM. */
int map_totals_make(struct map *map);
struct map_totals *map_totals_free(struct map_totals *totals);

/* map->fold has just begun; gets an area for what it keeps as the newest (0 or -errno); is over. */
void map_totals_fold_begin(struct map *map);
int map_totals_fold_latest(struct map *map);
void map_totals_fold_end(struct map *map, bool newest);

/* Around a change for element map->fold.at: of these bytes, or (size 0) of none that count before;
 * entry: of a table. */
void map_totals_step_begin(struct map *map, const void *bytes, size_t size, uint64_t entry);
void map_totals_step_end(struct map *map);

/* A ring goes; what the map has counted with it. */
void map_totals_ring_gone(struct map *map, uint64_t instance, uint64_t written, uint64_t lost);

/* Whether an instance is in the totals already; and if it is partly, goes on with that. */
bool map_totals_have(const struct map *map, uint64_t instance);
bool map_totals_resume(struct map *map, struct map_instance *instance);

const struct map_keeper *map_accounts_keeper(const struct map_accounts *accounts);

/* ---- map-hash.c ---- */

/* Of an entry of the totals' table; and that table. 0 or -ENOMEM. */
size_t map_hash_entry_size(const struct map *map);
int map_hash_totals_table(struct map *map, const struct map_table_memory *memory);

int map_hash_totals_step(struct map *map, uint64_t *budgetp);

/* The elements of some instances of a hash map, at one time. */
int map_snapshot_new(struct map_snapshot **snapshotp, struct map *map,
		     const struct map_source *source, const struct map_order *order);
struct map_snapshot *map_snapshot_free(struct map_snapshot *snapshot);
const struct map_source *map_snapshot_source(const struct map_snapshot *snapshot);

/*
 * The next element. 0, MAP_E_END, MAP_E_AGAIN: not yet, it took *spentp bytes of memory so far;
 * MAP_E_QUOTA or -ENOMEM.
 */
int map_snapshot_next(struct map_snapshot *snapshot, struct map *map, struct map_entry *entry,
		      uint64_t *spentp);

#define MAP_STEP_BYTES (UINT64_C(8) << 20) /* memory touched in one map_next() */
