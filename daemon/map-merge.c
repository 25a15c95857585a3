/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reading: shards and instances become one value.
 *
 * Integers (lanes) are summed: value = initial + sum over instances of (theirs - what they started
 * with), modulo their width, so that what a data section starts with counts once, however many
 * processes there are. A SUM map's instance first becomes one value, the sum over its shards. Bytes
 * that are in no lane cannot be added; they are those of the instance that was mirrored last (a SUM
 * map has none that change).
 *
 * The totals of processes that are gone have the same form: in the lanes the sum of the
 * differences, elsewhere the bytes of the last one. They are not created for instances that never
 * differed (.rodata, a probe that never ran).
 *
 * An instance is read under the sequence lock in its header. A process can leave that lock odd for
 * ever, by dying or on purpose; we wait for a bounded time, once for each odd number, and then take
 * what is there.
 */

#include "map-merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPINS 1000 /* looks at an odd sequence number before we give up */
#define CURSOR_BUDGET (UINT64_C(8) << 20) /* bytes of memory touched in one map_next() */
#define CACHE_LINE 64

static uint64_t lane_get(const unsigned char *value, const struct map_lane *lane) {
	uint64_t v = 0;

	memcpy(&v, value + lane->offset, lane->size); /* little-endian, as the GPU */
	return v;
}

static void lane_set(unsigned char *value, const struct map_lane *lane, uint64_t v) {
	memcpy(value + lane->offset, &v, lane->size);
}

/* value += sign * other, lane by lane. other NULL: zeros. */
static void value_add(const struct map_spec *spec, unsigned char *value, const unsigned char *other,
		      bool negative) {
	if (!other)
		return;
	for (size_t i = 0; i < spec->n_lanes; i++) {
		uint64_t v = lane_get(other, &spec->lanes[i]);

		lane_set(value, &spec->lanes[i],
			 lane_get(value, &spec->lanes[i]) + (negative ? -v : v));
	}
}

/* Copies the bytes that are in no lane. */
static void value_copy_rest(const struct map_spec *spec, unsigned char *value,
			    const unsigned char *other) {
	size_t at = 0;

	for (size_t i = 0; i < spec->n_lanes; i++) {
		memcpy(value + at, other + at, spec->lanes[i].offset - at);
		at = (size_t)spec->lanes[i].offset + spec->lanes[i].size;
	}
	memcpy(value + at, other + at, spec->value_size - at);
}

static bool is_zero(const unsigned char *bytes, size_t size) {
	return !size || (!bytes[0] && !memcmp(bytes, bytes + 1, size - 1));
}

/* Bytes of one element as it is shown. */
static size_t element_size(const struct map *map) {
	return (size_t)map->n_values * map->spec.value_size;
}

/*
 * Copies an element out of the instance as it is now: one value, or one for each shard of a percpu
 * map.
 */
static void instance_copy(const struct map_instance *instance, uint32_t index,
			  unsigned char *element) {
	const struct map_spec *spec = &instance->map->spec;
	const unsigned char *value = instance->bytes + MAP_DATA_OFFSET + index * spec->value_stride;

	memcpy(element, value, spec->value_size);
	for (uint32_t shard = 1; shard < spec->shards; shard++) {
		value += spec->shard_stride;
		if (spec->merge == MAP_MERGE_PERCPU)
			memcpy(element + (size_t)shard * spec->value_size, value, spec->value_size);
		else
			value_add(spec, element, value, false);
	}
}

/*
 * The same between two copies from the device. False if one was under way for too long: the element
 * may be torn.
 */
static bool instance_read(struct map_instance *instance, uint32_t index, unsigned char *element) {
	const struct map_header *header = (const struct map_header *)(const void *)instance->bytes;
	uint64_t before = 0;

	for (int i = 0; i < SPINS; i++) {
		before = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
		if (before & 1) {
			if (before == instance->stuck)
				break;
			__builtin_ia32_pause();
			continue;
		}
		instance_copy(instance, index, element);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&header->sequence, __ATOMIC_RELAXED) == before)
			return true;
	}
	if (before & 1)
		instance->stuck = before;
	instance_copy(instance, index, element);
	return false;
}

uint64_t map_instance_mirrored(const struct map_instance *instance) {
	const struct map_header *header = (const struct map_header *)(const void *)instance->bytes;

	return __atomic_load_n(&header->mirrored_ns, __ATOMIC_RELAXED);
}

uint64_t map_totals_size(const struct map *map) {
	return element_size(map) * map->spec.max_entries;
}

int map_totals_add(struct map *map, const struct map_instance *instance) {
	const struct map_spec *spec = &map->spec;
	const unsigned char *start = map_start(spec);
	unsigned char *element = map->scratch, *total;

	for (uint32_t index = 0; index < spec->max_entries; index++) {
		bool same;

		instance_copy(instance, index, element);
		same = start ? !memcmp(element, start, spec->value_size)
			     : is_zero(element, element_size(map));
		if (same)
			continue;
		if (!map->totals) {
			map->totals = calloc(spec->max_entries, element_size(map));
			if (!map->totals)
				return -ENOMEM;
		}
		total = map->totals + index * element_size(map);
		for (uint32_t i = 0; i < map->n_values; i++) {
			const unsigned char *value = element + (size_t)i * spec->value_size;

			value_add(spec, total + (size_t)i * spec->value_size, value, false);
			value_add(spec, total + (size_t)i * spec->value_size, start, true);
			value_copy_rest(spec, total + (size_t)i * spec->value_size, value);
		}
	}
	return 0;
}

/* Starts an element: the initial bytes plus, if asked, the totals. */
static void element_begin(const struct map *map, uint32_t index, bool with_totals,
			  unsigned char *out) {
	const struct map_spec *spec = &map->spec;
	const unsigned char *totals = map->totals ? map->totals + index * element_size(map) : NULL;

	memset(out, 0, element_size(map));
	if (spec->initial)
		memcpy(out, spec->initial, spec->value_size);
	if (!with_totals || !totals)
		return;
	for (uint32_t i = 0; i < map->n_values; i++) {
		size_t at = (size_t)i * spec->value_size;

		value_add(spec, out + at, totals + at, false);
		/* an element that never differed has no bytes in the totals */
		if (!map_is_sum(spec) && !is_zero(totals + at, spec->value_size))
			value_copy_rest(spec, out + at, totals + at);
	}
}

/*
 * Adds an instance to an element. rest: the bytes in no lane are this one's. False: perhaps torn.
 */
static bool element_add(struct map *map, struct map_instance *instance, uint32_t index, bool rest,
			unsigned char *out) {
	const struct map_spec *spec = &map->spec;
	unsigned char *element = map->scratch + element_size(map);
	bool whole = instance_read(instance, index, element);

	for (uint32_t i = 0; i < map->n_values; i++) {
		size_t at = (size_t)i * spec->value_size;

		value_add(spec, out + at, element + at, false);
		value_add(spec, out + at, map_start(spec), true);
		if (rest && !map_is_sum(spec))
			value_copy_rest(spec, out + at, element + at);
	}
	return whole;
}

/*
 * Fills in an entry from the instances of one process or, with `process` NULL, from all and the
 * totals.
 */
static void entry_merge(struct map *map, uint32_t index, const struct map_instance *process,
			struct map_entry *entry) {
	unsigned char *out = map->scratch;
	struct map_instance *latest = NULL;
	bool torn = false;
	uint32_t n = map->n_values;

	for (struct map_instance *i = map->instances; i; i = i->next)
		if ((!process || i->process == process->process) && map_instance_mirrored(i) &&
		    (!latest || map_instance_mirrored(i) > map_instance_mirrored(latest)))
			latest = i;
	element_begin(map, index, !process, out);
	for (struct map_instance *i = map->instances; i; i = i->next)
		if (!process || i->process == process->process)
			torn |= !element_add(map, i, index, i == latest, out);
	while (n > 1 && is_zero(out + (size_t)(n - 1) * map->spec.value_size, map->spec.value_size))
		n--;
	*entry = (struct map_entry){
		.index = index,
		.pid = process ? process->pid : 0,
		.n_values = n,
		.values = out,
		.torn = torn,
	};
}

int map_read(struct map *map, uint32_t index, struct map_entry *entry) {
	if (index >= map->spec.max_entries)
		return MAP_E_END;
	entry_merge(map, index, NULL, entry);
	return 0;
}

void map_cursor_init(struct map_cursor *cursor, bool per_process, bool nonzero) {
	*cursor = (struct map_cursor){ .per_process = per_process, .nonzero = nonzero };
}

/* The totals alone: the entry of the processes that are gone. */
static void entry_totals(struct map *map, uint32_t index, struct map_entry *entry) {
	uint32_t n = map->n_values;

	element_begin(map, index, true, map->scratch);
	while (n > 1 &&
	       is_zero(map->scratch + (size_t)(n - 1) * map->spec.value_size, map->spec.value_size))
		n--;
	*entry = (struct map_entry){ .index = index, .n_values = n, .values = map->scratch };
}

/*
 * The entry at the cursor, which moves on by one. False: there was none, only the index moved on.
 */
static bool cursor_step(struct map *map, struct map_cursor *cursor, struct map_entry *entry) {
	struct map_instance *i;

	if (!cursor->per_process) {
		entry_merge(map, cursor->index++, NULL, entry);
		return true;
	}
	for (i = map->instances; i; i = i->next)
		if (i->process >= cursor->process)
			break;
	if (i && cursor->process != UINT64_MAX) {
		entry_merge(map, cursor->index, i, entry);
		cursor->process = i->process + 1;
		return true;
	}
	cursor->process = 0;
	if (!map->retained) {
		cursor->index++;
		return false;
	}
	entry_totals(map, cursor->index++, entry);
	return true;
}

int map_next(struct map *map, struct map_cursor *cursor, struct map_entry *entry) {
	const struct map_spec *spec = &map->spec;
	uint64_t line = spec->value_stride > CACHE_LINE ? spec->value_stride : CACHE_LINE;
	uint64_t cost = line * spec->shards * (map->n_instances + 1), spent = 0;
	struct map_entry e;

	while (cursor->index < spec->max_entries) {
		if (spent > CURSOR_BUDGET)
			return MAP_E_AGAIN;
		spent += cost;
		if (!cursor_step(map, cursor, &e))
			continue;
		if (cursor->nonzero && is_zero(e.values, (size_t)e.n_values * spec->value_size))
			continue;
		*entry = e;
		return 0;
	}
	return MAP_E_END;
}
