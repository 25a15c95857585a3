/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads hash maps (map.h).
 *
 * Hash maps: instances become one table, key by key.
 *
 * A slot is an element if its word says LIVE before and after key and value were copied. Nothing
 * else in an instance is believed: it is gone over from the first slot to the last, a key that
 * comes twice in one instance counts once, and of a torn slot at worst the value is wrong. Integers
 * of several instances are summed, bytes in no lane are from the newest that has the key; or all of
 * the value is, if the latest is asked for.
 *
 * What processes leave behind is a table too, with two elements for each key: the sums, and that of
 * the newest.
 *
 * A dump reads a snapshot: the table of the instances that it is about, made a step at a time. An
 * instance that goes away meanwhile would be missed, or counted twice as it is in the totals then:
 * the snapshot is begun again, a few times; then it is made in one piece. All snapshots together
 * have a limit.
 */

#include "map-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map-table.h"

#define TRIES 4 /* of a slot that changes, and of a snapshot */
#define CHUNK 256 /* entries of the totals that are taken in one go */
#define CACHE_LINE 64

/* Bytes of an element: its values, without padding between them. */
static size_t element_size(const struct map *map) {
	return map_round_up((size_t)map->n_values * map->spec.value_size, 8);
}

static size_t padded_key_size(const struct map *map) {
	return map_round_up(map->spec.key_size, 8);
}

/*
 * Copies slot `at`: its word, the key padded with zeros, the values. The word is 0 where there is
 * no element. A key of at most 4 bytes is in the word.
 */
static void slot_copy(const struct map_instance *instance, uint64_t at, unsigned char *out) {
	const struct map_spec *spec = &instance->map->spec;
	const unsigned char *slot =
		instance->data + sizeof(struct map_hash) + at * spec->layout.entry_stride;
	const size_t key_size = map_round_up(spec->key_size, 8);
	uint64_t before, after = 0;

	for (int i = 0; i < TRIES; i++) {
		before = __atomic_load_n((const uint64_t *)(const void *)slot, __ATOMIC_ACQUIRE);
		if ((before & MAP_SLOT_STATE_MASK) != MAP_SLOT_LIVE)
			break;
		memset(out, 0, 8 + key_size);
		if (spec->key_size <= 4)
			memcpy(out + 8, (const unsigned char *)&before + 4, spec->key_size);
		else
			map_copy_words(out + 8, slot + 8, spec->key_size);
		for (uint32_t v = 0; v < instance->map->n_values; v++)
			map_copy_words(out + 8 + key_size + (size_t)v * spec->value_size,
				       slot + 8 + key_size + v * spec->layout.value_stride,
				       spec->value_size);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = __atomic_load_n((const uint64_t *)(const void *)slot, __ATOMIC_RELAXED);
		if (after == before) {
			memcpy(out, &before, sizeof(before));
			return;
		}
	}
	memset(out, 0, sizeof(before));
}

/* Room for a slot as slot_copy() makes it. */
static unsigned char *slot_buffer(const struct map *map) {
	return calloc(1, 8 + padded_key_size(map) + element_size(map));
}

static bool is_element(const unsigned char *slot) {
	uint64_t word;

	memcpy(&word, slot, sizeof(word));
	return word;
}

/* Adds the values of an element to sums; rest: its bytes in no lane are the newest. */
static void element_add(const struct map *map, unsigned char *sums, const unsigned char *element,
			bool rest) {
	const struct map_spec *spec = &map->spec;

	for (uint32_t i = 0; i < map->n_values; i++) {
		size_t offset = (size_t)i * spec->value_size;

		map_value_add(spec, sums + offset, element + offset, false);
		if (rest)
			map_value_copy_rest(spec, sums + offset, element + offset);
	}
}

/* Takes what instances start with off an element: what is left is what a process has added. */
static void element_sub_start(const struct map *map, const unsigned char *key,
			      unsigned char *sums) {
	unsigned char *start = map->start ? malloc(element_size(map)) : NULL;

	if (start && map_start_element(map, key, start))
		for (uint32_t i = 0; i < map->n_values; i++)
			map_value_add(&map->spec, sums + (size_t)i * map->spec.value_size,
				      start + (size_t)i * map->spec.value_size, true);
	free(start);
}

/* ---- what processes leave behind ---- */

size_t map_hash_entry_size(const struct map *map) {
	return map_table_entry_bytes(map->spec.key_size, 2 * element_size(map));
}

int map_hash_totals_table(struct map *map, const struct map_table_memory *memory) {
	return map_table_new_in(&map->totals->table, map->spec.key_size, 2 * element_size(map),
				memory);
}

/*
 * Adds a slot, as slot_copy() made it. 0 or -ENOMEM. Any process can leave keys behind, and do so
 * again and again: those of other users than the owner leave him half of his memory, and what is
 * new beyond that is counted as lost.
 */
static int totals_add_slot(struct map *map, const unsigned char *slot) {
	const unsigned char *key = slot + 8, *element = key + padded_key_size(map);
	const struct map_fold *fold = &map->fold;
	const bool own = fold->instance->uid == map->owner;
	struct map_table_entry *entry;
	unsigned char *payload;
	bool added, newest;
	int r;

	r = map_totals_make(map);
	if (!r)
		r = map_table_get(map->totals->table, key, own ? UINT64_MAX : map_totals_room(map),
				  &entry, &added);
	if (r == MAP_E_QUOTA && !own) {
		map->lost += map->lost < INT64_MAX;
		return 0;
	}
	if (r)
		return -ENOMEM; /* more keys than a table can have, perhaps */
	if (!added && entry->instance == fold->instance->id)
		return 0;
	if (added)
		map_totals_step_begin(map, NULL, 0, UINT64_MAX);
	else
		map_totals_step_begin(map, entry, map_hash_entry_size(map),
				      map_table_number(map->totals->table, entry));
	payload = map_table_payload(map->totals->table, entry);
	if (entry->instance == MAP_TOTALS_DELETED)
		memset(payload, 0, 2 * element_size(map));
	newest = added || entry->instance == MAP_TOTALS_DELETED || fold->recency >= entry->recency;
	element_add(map, payload, element, newest);
	element_sub_start(map, key, payload);
	if (newest) {
		memcpy(payload + element_size(map), element, element_size(map));
		entry->recency = fold->recency;
	}
	entry->instance = fold->instance->id;
	map_totals_step_end(map);
	return 0;
}

int map_hash_totals_step(struct map *map, uint64_t *budgetp) {
	const struct map_layout *layout = &map->spec.layout;
	unsigned char *slot = slot_buffer(map);
	struct map_fold *fold = &map->fold;
	int r = slot ? 0 : -ENOMEM;

	for (; !r && fold->at < layout->capacity; fold->at++) {
		if (!*budgetp) {
			r = MAP_E_AGAIN;
			break;
		}
		map_spend(budgetp,
			  layout->entry_stride < CACHE_LINE ? layout->entry_stride : CACHE_LINE);
		slot_copy(fold->instance, fold->at, slot);
		if (!is_element(slot))
			continue;
		map_spend(budgetp, CACHE_LINE + 2 * element_size(map));
		r = totals_add_slot(map, slot);
	}
	free(slot);
	return r;
}

/* ---- snapshots ---- */

struct map_snapshot {
	struct map_accounts *accounts;
	struct map_source source;
	struct map_order order;
	struct map_table *table;
	uint64_t held; /* bytes that the accounts know of */
	unsigned char *slot; /* room for one */
	bool torn;
	/* where we are; what belongs to `folds` is good as long as the map's are the same */
	unsigned int begun; /* times */
	uint64_t folds;
	uint32_t total; /* the next entry of the totals */
	uint64_t start; /* the next slot of what instances start with */
	struct map_instance *instance; /* being read; NULL: the next is the first */
	uint64_t at; /* its next slot */
	bool complete;
	uint32_t next; /* entry to be given out */
};

int map_snapshot_new(struct map_snapshot **snapshotp, struct map *map,
		     const struct map_source *source, const struct map_order *order) {
	struct map_snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return -ENOMEM;
	snapshot->accounts = map->accounts;
	snapshot->source = *source;
	snapshot->order = *order;
	snapshot->slot = slot_buffer(map);
	if (!snapshot->slot) {
		map_snapshot_free(snapshot);
		return -ENOMEM;
	}
	*snapshotp = snapshot;
	return 0;
}

struct map_snapshot *map_snapshot_free(struct map_snapshot *snapshot) {
	if (!snapshot)
		return NULL;
	map_accounts_hold(snapshot->accounts, snapshot->order.reader, &snapshot->held, 0);
	map_table_free(snapshot->table);
	free(snapshot->slot);
	free(snapshot);
	return NULL;
}

const struct map_source *map_snapshot_source(const struct map_snapshot *snapshot) {
	return &snapshot->source;
}

/* From the start, with an empty table. 0 or negative errno. */
static int snapshot_begin(struct map_snapshot *snapshot, const struct map *map) {
	snapshot->table = map_table_free(snapshot->table);
	map_accounts_hold(snapshot->accounts, snapshot->order.reader, &snapshot->held, 0);
	snapshot->begun++;
	snapshot->folds = map->folds;
	snapshot->total = 0;
	snapshot->start = 0;
	snapshot->instance = NULL;
	snapshot->at = 0;
	return map_table_new(&snapshot->table, map->spec.key_size, element_size(map));
}

/* Puts an element in. 0, MAP_E_QUOTA or -ENOMEM. */
static int snapshot_add(struct map_snapshot *snapshot, const struct map *map,
			const unsigned char *key, const unsigned char *element, uint64_t recency,
			uint64_t instance) {
	struct map_table_entry *entry;
	unsigned char *payload;
	bool added, newest;
	int r;

	r = map_table_get(snapshot->table, key,
			  map_accounts_room(snapshot->accounts, snapshot->order.reader), &entry,
			  &added);
	if (!r)
		r = map_accounts_hold(snapshot->accounts, snapshot->order.reader, &snapshot->held,
				      map_table_bytes(snapshot->table));
	if (r || (!added && entry->instance == instance))
		return r;
	newest = added || recency >= entry->recency;
	payload = map_table_payload(snapshot->table, entry);
	if (!snapshot->order.latest) {
		element_add(map, payload, element, newest);
		if (instance && instance != MAP_TOTALS_DELETED &&
		    snapshot->source.gone) /* what it started with is there already, once */
			element_sub_start(map, key, payload);
	} else if (newest)
		memcpy(payload, element, element_size(map));
	entry->recency = newest ? recency : entry->recency;
	entry->instance = instance;
	return 0;
}

/* Takes some of what instances start with. As what follows. */
static int snapshot_start(struct map_snapshot *snapshot, struct map *map, uint64_t *spentp) {
	const uint64_t capacity = map->spec.layout.capacity;
	int r = 0;

	if (!map->start || !snapshot->source.gone)
		return 0;
	for (int i = 0;
	     !r && i < CHUNK && snapshot->start < capacity && (!i || *spentp <= MAP_STEP_BYTES);
	     i++) {
		*spentp += CACHE_LINE;
		slot_copy(map->start, snapshot->start++, snapshot->slot);
		if (is_element(snapshot->slot))
			r = snapshot_add(snapshot, map, snapshot->slot + 8,
					 snapshot->slot + 8 + padded_key_size(map), 0, 0);
	}
	return r ? r : snapshot->start < capacity ? MAP_E_AGAIN : 0;
}

/* Takes some of what processes left behind. 0: that is all, MAP_E_AGAIN: more, or an error. */
static int snapshot_totals(struct map_snapshot *snapshot, const struct map *map, uint64_t *spentp) {
	const struct map_table *table =
		snapshot->source.gone && map->totals ? map->totals->table : NULL;
	int r = 0;

	for (int i = 0; table && !r && i < CHUNK && snapshot->total < map_table_count(table) &&
			(!i || *spentp <= MAP_STEP_BYTES);
	     i++) {
		struct map_table_entry *entry = map_table_at(table, snapshot->total++);
		const unsigned char *payload = map_table_payload(table, entry);

		*spentp += CACHE_LINE + 2 * element_size(map);
		if (entry->instance == MAP_TOTALS_DELETED)
			continue;
		r = snapshot_add(snapshot, map, entry->key,
				 payload + (snapshot->order.latest ? element_size(map) : 0),
				 entry->recency, MAP_TOTALS_DELETED);
	}
	if (!r && table && snapshot->total < map_table_count(table))
		return MAP_E_AGAIN;
	return r;
}

/* Takes some slots of the next instance. 0: that is all, MAP_E_AGAIN: more, or an error. */
static int snapshot_slots(struct map_snapshot *snapshot, struct map *map, uint64_t *spentp) {
	const uint64_t capacity = map->spec.layout.capacity, stride = map->spec.layout.entry_stride;
	struct map_instance *instance = snapshot->instance;
	int r = 0;

	if (!instance || snapshot->at == capacity) {
		instance = instance ? instance->next : map->instances;
		while (instance && !map_source_has(&snapshot->source, instance))
			instance = instance->next;
		if (!instance)
			return 0;
		snapshot->instance = instance;
		snapshot->at = 0;
	}
	for (int i = 0;
	     !r && i < CHUNK && snapshot->at < capacity && (!i || *spentp <= MAP_STEP_BYTES); i++) {
		const uint64_t at = snapshot->at++;

		*spentp += stride < CACHE_LINE ? stride : CACHE_LINE;
		slot_copy(instance, at, snapshot->slot);
		if (!is_element(snapshot->slot))
			continue;
		*spentp += stride;
		if (!map_instance_read(instance, slot_copy, at, snapshot->slot))
			snapshot->torn = true;
		if (is_element(snapshot->slot))
			r = snapshot_add(snapshot, map, snapshot->slot + 8,
					 snapshot->slot + 8 + padded_key_size(map),
					 map_instance_recency(instance), instance->id);
	}
	return r ? r : MAP_E_AGAIN;
}

/* Goes on with the table. 0: it is complete, MAP_E_AGAIN: the step is over, or an error. */
static int snapshot_make(struct map_snapshot *snapshot, struct map *map, uint64_t *spentp) {
	int r;

	map->steps++;
	if (map->fold.instance) { /* nothing to be done till that is over */
		*spentp += MAP_STEP_BYTES + 1;
		return MAP_E_AGAIN;
	}
	do {
		if (*spentp > MAP_STEP_BYTES && snapshot->begun <= TRIES)
			return MAP_E_AGAIN;
		r = 0;
		if (!snapshot->table || snapshot->folds != map->folds)
			r = snapshot_begin(snapshot, map);
		if (!r)
			r = snapshot_start(snapshot, map, spentp);
		if (!r)
			r = snapshot_totals(snapshot, map, spentp);
		if (!r)
			r = snapshot_slots(snapshot, map, spentp);
	} while (r == MAP_E_AGAIN);
	return r;
}

int map_snapshot_next(struct map_snapshot *snapshot, struct map *map, struct map_entry *entry,
		      uint64_t *spentp) {
	struct map_table_entry *found;
	int r;

	if (!snapshot->complete) {
		r = snapshot_make(snapshot, map, spentp);
		if (r)
			return r;
		snapshot->complete = true;
	}
	if (snapshot->next == map_table_count(snapshot->table))
		return MAP_E_END;
	*spentp += CACHE_LINE + element_size(map);
	found = map_table_at(snapshot->table, snapshot->next++);
	*entry = (struct map_entry){
		.key = found->key,
		.pid = snapshot->source.pid,
		.values = map_table_payload(snapshot->table, found),
		.torn = snapshot->torn,
	};
	entry->n_values = map_n_values(map, entry->values);
	return 0;
}
