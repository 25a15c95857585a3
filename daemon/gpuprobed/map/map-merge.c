/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads elements of arrays (map.h).
 *
 * Elements of arrays and per-thread arrays: shards and instances become one value.
 *
 * Integers (lanes) are summed: value = initial + sum over instances of (theirs - what they started
 * with), modulo their width, so that what a data section starts with counts once, however many
 * processes there are. A SUM map's instance first becomes one value, the sum over its shards. Bytes
 * that are in no lane cannot be added; they are those of the instance that was mirrored last, of
 * those whose value is not what it started with (a SUM map has none that change). Who asks for the
 * latest gets all of the value from the instance that was mirrored last.
 *
 * A LATEST map has a stamp with each value: the value is that with the highest, over shards and
 * instances.
 *
 * The totals of processes that are gone have the same form: in the lanes the sum of the
 * differences, elsewhere the bytes of the last one; of a LATEST map value and stamp. Beside them is
 * what the newest instance held. They are not created for instances that never differed (.rodata, a
 * probe that never ran).
 *
 * A per-thread array is an array of max_entries * threads elements here.
 */

#include "map-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map-table.h"

#define RUN 512 /* elements that are looked at together, to skip zeros */

/* What an element of a LATEST map is on the way. */
struct stamped {
	uint64_t value, stamp;
};

/* Adds lanes of a size that lie side by side, eight bytes at once: added without their highest
 * bits, none carries into the next one. */
static void add_side_by_side(unsigned char *value, const unsigned char *other, size_t n_bytes,
			     uint32_t lane_size, bool negative) {
	static const uint64_t tops[] = { [1] = UINT64_C(0x8080808080808080),
					 [2] = UINT64_C(0x8000800080008000),
					 [4] = UINT64_C(0x8000000080000000),
					 [8] = UINT64_C(1) << 63 };
	const uint64_t top = tops[lane_size];
	uint64_t a, b;

	for (size_t n; n_bytes; n_bytes -= n, value += n, other += n) {
		n = n_bytes < sizeof(a) ? n_bytes : sizeof(a);
		a = b = 0;
		memcpy(&a, value, n); /* little-endian, as the GPU */
		memcpy(&b, other, n);
		a = negative ? ((a | top) - (b & ~top)) ^ ((a ^ ~b) & top)
			     : ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
		memcpy(value, &a, n);
	}
}

void map_value_add(const struct map_spec *spec, unsigned char *value, const unsigned char *other,
		   bool negative) {
	const uint32_t size = map_lane_size(spec);
	size_t n = spec->lanes ? spec->n_lanes : 0, next;

	if (other && !spec->lanes)
		add_side_by_side(value, other, spec->value_size - spec->value_size % size, size,
				 negative);
	for (size_t i = 0; other && i < n; i = next) {
		const struct map_lane *lane = &spec->lanes[i];

		for (next = i + 1;
		     next < n && spec->lanes[next].size == lane->size &&
		     spec->lanes[next].offset == lane->offset + (next - i) * lane->size;)
			next++;
		add_side_by_side(value + lane->offset, other + lane->offset,
				 (next - i) * lane->size, lane->size, negative);
	}
}

void map_value_copy_rest(const struct map_spec *spec, unsigned char *value,
			 const unsigned char *other) {
	size_t at = 0;

	if (!spec->lanes) /* lanes are all there is, or all that changes */
		return;
	for (size_t i = 0; i < spec->n_lanes; i++) {
		if (spec->lanes[i].offset > at)
			memcpy(value + at, other + at, spec->lanes[i].offset - at);
		at = (size_t)spec->lanes[i].offset + spec->lanes[i].size;
	}
	memcpy(value + at, other + at, spec->value_size - at);
}

bool map_is_zero(const unsigned char *bytes, size_t size) {
	return !size || (!bytes[0] && !memcmp(bytes, bytes + 1, size - 1));
}

void map_copy_words(unsigned char *out, const unsigned char *from, size_t size) {
	const uint64_t *words = (const void *)from;
	uint64_t word;

	for (; size >= sizeof(word); size -= sizeof(word), out += sizeof(word)) {
		word = __atomic_load_n(words++, __ATOMIC_RELAXED);
		memcpy(out, &word, sizeof(word));
	}
	if (size) {
		word = __atomic_load_n(words, __ATOMIC_RELAXED);
		memcpy(out, &word, size);
	}
}

size_t map_scratch_size(const struct map *map) {
	return map->spec.layout.merge == MAP_MERGE_LATEST
		       ? sizeof(struct stamped)
		       : (size_t)map->n_values * map->spec.value_size;
}

uint32_t map_n_values(const struct map *map, const unsigned char *values) {
	size_t size = map->spec.value_size;
	uint32_t n = map->n_values;

	while (n > 1 && map_is_zero(values + (size_t)(n - 1) * size, size))
		n--;
	return n;
}

/* Elements of an instance. */
uint64_t map_n_elements(const struct map *map) {
	const struct map_layout *layout = &map->spec.layout;

	return (uint64_t)map->spec.max_entries * (layout->threads ? layout->threads : 1);
}

/*
 * Copies an element out of the instance as it is now: one value, or one for each shard of a percpu
 * map, or the latest with its stamp.
 */
static void element_copy(const struct map_instance *instance, uint64_t at, unsigned char *out) {
	const struct map_spec *spec = &instance->map->spec;
	const struct map_layout *layout = &spec->layout;
	const unsigned char *value = instance->data + at * layout->value_stride;
	struct stamped best = {}, other;

	if (layout->merge != MAP_MERGE_LATEST)
		map_copy_words(out, value, spec->value_size);
	for (uint32_t shard = 0; shard < layout->shards; shard++, value += layout->shard_stride) {
		if (layout->merge == MAP_MERGE_LATEST) {
			map_copy_words((unsigned char *)&other, value, sizeof(other));
			best = other.stamp > best.stamp ? other : best;
		} else if (shard && layout->merge == MAP_MERGE_PERCPU) {
			map_copy_words(out + (size_t)shard * spec->value_size, value,
				       spec->value_size);
		} else if (shard) {
			map_value_add(spec, out, value, false);
		}
	}
	if (layout->merge == MAP_MERGE_LATEST)
		memcpy(out, &best, sizeof(best));
}

/* Whether value i of element `at` is not what instances start with. */
static bool value_differs(const struct map *map, uint64_t at, uint32_t i,
			  const unsigned char *value) {
	const unsigned char *start = map_start_value(map, at, i);

	return start ? memcmp(value, start, map->spec.value_size) != 0
		     : !map_is_zero(value, map->spec.value_size);
}

/* The same of an element with all its values, as element_copy() makes it. */
static bool element_differs(const struct map *map, uint64_t at, const unsigned char *element) {
	const size_t size = map->spec.value_size;

	if (!map_start_value(map, at, 0))
		return !map_is_zero(element, map_scratch_size(map));
	for (uint32_t i = 0; i < map->n_values; i++)
		if (value_differs(map, at, i, element + i * size))
			return true;
	return false;
}

/* ---- what processes leave behind ---- */

uint64_t map_totals_bytes(const struct map *map) {
	const struct map_totals *totals = map->totals;
	uint64_t size;

	if (!totals)
		return 0;
	if (totals->table)
		return map_table_count(totals->table) ? map_table_bytes(totals->table) : 0;
	size = map_n_elements(map) * map_scratch_size(map);
	return (totals->sums ? size : 0) + (totals->latest ? size : 0);
}

/* Adds an element that differs from the start to the totals. latest: what is kept of it alone. */
static void totals_add_element(struct map *map, uint64_t at, const unsigned char *element,
			       unsigned char *latest) {
	const struct map_spec *spec = &map->spec;
	size_t size = map_scratch_size(map);
	unsigned char *total = map->totals->sums + at * size;

	if (spec->layout.merge == MAP_MERGE_LATEST) {
		const struct stamped *now = (const void *)element, *before = (const void *)total;

		if (now->stamp > before->stamp)
			memcpy(total, element, size);
		return;
	}
	if (latest)
		memcpy(latest + at * size, element, size);
	for (uint32_t i = 0; i < map->n_values; i++) {
		const unsigned char *value = element + (size_t)i * spec->value_size;
		unsigned char *out = total + (size_t)i * spec->value_size;

		map_value_add(spec, out, value, false);
		map_value_add(spec, out, map_start_value(map, at, i), true);
		if (value_differs(map, at, i, value))
			map_value_copy_rest(spec, out, value);
	}
}

/* Whether elements of an instance of a per-thread array are zeros. */
static bool run_is_zero(const struct map_instance *instance, uint64_t first, uint64_t n) {
	uint64_t stride = instance->map->spec.layout.value_stride;

	return map_is_zero(instance->data + first * stride, n * stride);
}

int map_totals_step(struct map *map, uint64_t *budgetp) {
	const struct map_spec *spec = &map->spec;
	const struct map_layout *layout = &spec->layout;
	const uint64_t n = map_n_elements(map), cost = layout->value_stride * layout->shards;
	struct map_fold *fold = &map->fold;
	size_t size = map_scratch_size(map);
	int r;

	if (layout->kind == MAP_KIND_HASH)
		return map_hash_totals_step(map, budgetp);
	for (; fold->at < n; fold->at++) {
		if (!*budgetp)
			return MAP_E_AGAIN;
		map_spend(budgetp, cost);
		if (layout->threads && !map->start && fold->at % RUN == 0 && n - fold->at >= RUN &&
		    run_is_zero(fold->instance, fold->at, RUN)) {
			map_spend(budgetp, (RUN - 1) * cost);
			fold->at += RUN - 1;
			continue;
		}
		element_copy(fold->instance, fold->at, map->scratch);
		if (!element_differs(map, fold->at, map->scratch))
			continue;
		r = map_totals_make(map);
		if (!r && fold->newest && !fold->latest)
			r = map_totals_fold_latest(map);
		if (r)
			return -ENOMEM;
		map_totals_step_begin(map, map->totals->sums + fold->at * size, size, 0);
		totals_add_element(map, fold->at, map->scratch, fold->latest);
		map_totals_step_end(map);
	}
	return 0;
}

/* ---- reading ---- */

/* The instance that was mirrored last. NULL: none ever was. */
static struct map_instance *newest(const struct map *map, const struct map_source *source) {
	struct map_instance *best = NULL;
	uint64_t recency, best_recency = 0;

	for (struct map_instance *i = map->instances; i; i = i->next) {
		recency = map_source_has(source, i) ? map_instance_recency(i) : 0;
		if (recency > best_recency) {
			best = i;
			best_recency = recency;
		}
	}
	return best;
}

/* The highest stamp of all, or the initial bytes where nothing was ever written. */
static bool merge_stamped(struct map *map, uint64_t at, const struct map_source *source) {
	struct stamped best = {}, other;
	bool whole = true;

	if (source->gone && map->totals)
		memcpy(&best, map->totals->sums + at * sizeof(best), sizeof(best));
	for (struct map_instance *i = map->instances; i; i = i->next) {
		if (!map_source_has(source, i))
			continue;
		whole &= map_instance_read(i, element_copy, at, (unsigned char *)&other);
		best = other.stamp > best.stamp ? other : best;
	}
	if (source->gone && map->start) {
		memcpy(&other, map_initial_value(map, at, 0), sizeof(other));
		best = other.stamp > best.stamp || !best.stamp ? other : best;
	} else if (!best.stamp && map->spec.initial) {
		memcpy(&best.value, map->spec.initial, map->spec.value_size);
	}
	memcpy(map->scratch, &best, sizeof(best));
	return whole;
}

/* All of the newest instance. */
static bool merge_latest(struct map *map, uint64_t at, const struct map_source *source) {
	const struct map_totals *totals = source->gone ? map->totals : NULL;
	struct map_instance *instance = newest(map, source);
	unsigned char *out = map->scratch;
	size_t size = map_scratch_size(map);
	bool whole = true;

	memset(out, 0, size);
	if (instance && (!totals || map_instance_recency(instance) >= totals->recency))
		whole = map_instance_read(instance, element_copy, at, out);
	else if (totals && totals->latest)
		memcpy(out, totals->latest + at * size, size);
	else
		for (uint32_t i = 0; i < map->n_values && map_start_value(map, at, i); i++)
			memcpy(out + (size_t)i * map->spec.value_size, map_start_value(map, at, i),
			       map->spec.value_size);
	if (map_is_sum(&map->spec))
		map_value_add(&map->spec, out, map_initial_value(map, at, 0), false);
	return whole;
}

/* What sums begin with: the initial bytes and what processes left behind. */
static void sum_begin(struct map *map, uint64_t at, const struct map_source *source) {
	const struct map_spec *spec = &map->spec;
	unsigned char *out = map->scratch;
	size_t size = map_scratch_size(map);
	const unsigned char *totals =
		source->gone && map->totals ? map->totals->sums + at * size : NULL;

	memset(out, 0, size);
	for (uint32_t i = 0; i < map->n_values && map_initial_value(map, at, i); i++)
		memcpy(out + (size_t)i * spec->value_size, map_initial_value(map, at, i),
		       spec->value_size);
	for (uint32_t i = 0; totals && i < map->n_values; i++) {
		size_t offset = (size_t)i * spec->value_size;

		map_value_add(spec, out + offset, totals + offset, false);
		/* an element that never differed has no bytes in the totals */
		if (!map_is_sum(spec) && !map_is_zero(totals + offset, spec->value_size))
			map_value_copy_rest(spec, out + offset, totals + offset);
	}
}

static bool merge_sums(struct map *map, uint64_t at, const struct map_source *source) {
	const struct map_spec *spec = &map->spec;
	unsigned char *out = map->scratch, *element = map->scratch + map_scratch_size(map);
	uint64_t newest_rest[MAP_SHARDS_MAX] = {}; /* of each value: how new its bytes in no lane
						      are */
	uint64_t recency;
	bool whole = true;

	sum_begin(map, at, source);
	for (struct map_instance *instance = map->instances; instance; instance = instance->next) {
		if (!map_source_has(source, instance) || map_is_folded(instance, at))
			continue;
		whole &= map_instance_read(instance, element_copy, at, element);
		recency = map_instance_recency(instance);
		for (uint32_t i = 0; i < map->n_values; i++) {
			size_t offset = (size_t)i * spec->value_size;

			map_value_add(spec, out + offset, element + offset, false);
			map_value_add(spec, out + offset, map_start_value(map, at, i), true);
			if (map_is_sum(spec) || recency <= newest_rest[i] ||
			    !value_differs(map, at, i, element + offset))
				continue;
			map_value_copy_rest(spec, out + offset, element + offset);
			newest_rest[i] = recency;
		}
	}
	return whole;
}

void map_element(struct map *map, uint64_t at, const struct map_source *source, bool latest,
		 struct map_entry *entry) {
	const uint32_t threads = map->spec.layout.threads;
	bool whole;

	if (map->spec.layout.merge == MAP_MERGE_LATEST)
		whole = merge_stamped(map, at, source);
	else if (latest)
		whole = merge_latest(map, at, source);
	else
		whole = merge_sums(map, at, source);
	map->index = (uint32_t)(threads ? at / threads : at);
	*entry = (struct map_entry){
		.key = (const unsigned char *)&map->index,
		.index = map->index,
		.thread = threads ? (uint32_t)(at % threads) : 0,
		.pid = source->pid,
		.n_values = map_n_values(map, map->scratch),
		.values = map->scratch,
		.torn = !whole,
	};
}

bool map_elements_zero(const struct map *map, uint64_t first, uint64_t n,
		       const struct map_source *source) {
	const struct map_totals *totals = source->gone ? map->totals : NULL;
	size_t size = map_scratch_size(map);

	if (source->gone && map->start &&
	    !map_is_zero(map_initial_value(map, first, 0), n * map->spec.layout.value_stride))
		return false;
	if (totals && (!map_is_zero(totals->sums + first * size, n * size) ||
		       (totals->latest && !map_is_zero(totals->latest + first * size, n * size))))
		return false;
	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (map_source_has(source, i) && !run_is_zero(i, first, n))
			return false;
	return true;
}
