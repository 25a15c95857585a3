/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads maps entry by entry, for dumps and metrics (map.h).
 *
 * Dumps. A cursor is a place: an index, and of which processes (each one that is there in the order
 * of their numbers, then those that are gone), and of a per-thread array the thread. It holds no
 * pointer into the map, so instances may come and go between two steps. Each step touches a bounded
 * number of bytes.
 *
 * Per-thread arrays are large and mostly zeros: these are skipped a run of elements at a time, and
 * where a dump is to show zeros too, threads are shown up to the last that is not zero, which is
 * found from the end. Hash maps are read at one time into a snapshot, see map-hash.c.
 */

#include "map-internal.h"

#define CACHE_LINE 64
#define RUN 512 /* threads that are looked at together */

void map_cursor_init(struct map_cursor *cursor, const struct map_order *order) {
	*cursor = (struct map_cursor){ .order = *order };
}

void map_cursor_deinit(struct map_cursor *cursor) {
	cursor->snapshot = map_snapshot_free(cursor->snapshot);
}

int map_read(struct map *map, uint32_t index, struct map_entry *entry) {
	const struct map_source all = { .every = true, .gone = true };

	if (map->spec.layout.kind != MAP_KIND_ARRAY || index >= map->spec.max_entries)
		return MAP_E_END;
	map_element(map, index, &all, false, entry);
	return 0;
}

/* Whose entries come next at this index. False: nobody's. */
static bool cursor_source(const struct map *map, struct map_cursor *cursor,
			  struct map_source *source) {
	const struct map_instance *i = map->instances;

	if (!cursor->order.per_process) {
		*source = (struct map_source){ .every = true, .gone = true };
		return true;
	}
	while (i && (i->process < cursor->process || cursor->process == UINT64_MAX))
		i = i->next;
	if (!i && !map->retained)
		return false;
	*source = i ? (struct map_source){ .process = i->process, .pid = i->pid }
		    : (struct map_source){ .process = UINT64_MAX, .gone = true };
	if (source->process != cursor->process) /* the one that we were at is gone */
		cursor->thread = cursor->end = 0;
	cursor->process = source->process;
	return true;
}

/* To the next source, and from the last one to the next index. */
static void cursor_advance(struct map_cursor *cursor, const struct map_source *source) {
	cursor->thread = cursor->end = 0;
	cursor->process = source->process + 1;
	if (source->gone) {
		cursor->process = 0;
		cursor->index++;
	}
}

/* Whether the dump leaves an entry out. */
static bool is_left_out(const struct map *map, const struct map_cursor *cursor,
			const struct map_entry *entry) {
	return cursor->order.nonzero &&
	       map_is_zero(entry->values, (size_t)entry->n_values * map->spec.value_size);
}

/* Bytes of memory that n elements take, in all instances. */
static uint64_t cost(const struct map *map, uint64_t n) {
	const struct map_layout *layout = &map->spec.layout;
	uint64_t bytes = n * layout->value_stride;

	return (bytes > CACHE_LINE ? bytes : CACHE_LINE) * layout->shards * (map->n_instances + 1);
}

/* A step gives out an entry (0), comes to nothing (MAP_E_AGAIN), or is the last (else). */

static int step_array(struct map *map, struct map_cursor *cursor, const struct map_source *source,
		      struct map_entry *entry, uint64_t *spentp) {
	map_element(map, cursor->index, source, cursor->order.latest, entry);
	*spentp += cost(map, 1);
	cursor_advance(cursor, source);
	return is_left_out(map, cursor, entry) ? MAP_E_AGAIN : 0;
}

/* Looks at the last threads that are not known to be zeros: cursor->thread of them are. */
static void step_end(const struct map *map, struct map_cursor *cursor,
		     const struct map_source *source, uint64_t *spentp) {
	const uint64_t threads = map->spec.layout.threads, left = threads - cursor->thread,
		       n = left < RUN ? left : RUN, after = cursor->index * threads + left;
	uint64_t zeros = map_elements_zero(map, after - n, n, source) ? n : 0;

	*spentp += cost(map, n);
	while (zeros < n && map_elements_zero(map, after - zeros - 1, 1, source))
		zeros++;
	if (zeros < n) {
		cursor->end = left - zeros;
		cursor->thread = 0;
	} else if (n == left) {
		cursor_advance(cursor, source);
	} else {
		cursor->thread += n;
	}
}

static int step_threads(struct map *map, struct map_cursor *cursor, const struct map_source *source,
			struct map_entry *entry, uint64_t *spentp) {
	const uint64_t threads = map->spec.layout.threads, first = cursor->index * threads;
	uint64_t n;

	if (!cursor->end && cursor->order.nonzero)
		cursor->end = threads;
	if (!cursor->end) {
		step_end(map, cursor, source, spentp);
		return MAP_E_AGAIN;
	}
	if (cursor->thread >= cursor->end) {
		cursor_advance(cursor, source);
		return MAP_E_AGAIN;
	}
	n = cursor->end - cursor->thread < RUN ? cursor->end - cursor->thread : RUN;
	if (cursor->order.nonzero && cursor->thread % RUN == 0 &&
	    map_elements_zero(map, first + cursor->thread, n, source)) {
		*spentp += cost(map, n);
		cursor->thread += n;
		return MAP_E_AGAIN;
	}
	*spentp += cost(map, 1);
	map_element(map, first + cursor->thread++, source, cursor->order.latest, entry);
	return is_left_out(map, cursor, entry) ? MAP_E_AGAIN : 0;
}

static int step_hash(struct map *map, struct map_cursor *cursor, const struct map_source *source,
		     struct map_entry *entry, uint64_t *spentp) {
	int r = 0;

	if (!cursor->snapshot)
		r = map_snapshot_new(&cursor->snapshot, map, source, &cursor->order);
	if (!r)
		r = map_snapshot_next(cursor->snapshot, map, entry, spentp);
	if (r == MAP_E_END) {
		cursor_advance(cursor, map_snapshot_source(cursor->snapshot));
		map_cursor_deinit(cursor);
		return MAP_E_AGAIN;
	}
	return !r && is_left_out(map, cursor, entry) ? MAP_E_AGAIN : r;
}

int map_next(struct map *map, struct map_cursor *cursor, struct map_entry *entry) {
	static int (*const steps[])(struct map *map, struct map_cursor *cursor,
				    const struct map_source *source, struct map_entry *entry,
				    uint64_t *spentp) = {
		[MAP_KIND_ARRAY] = step_array,
		[MAP_KIND_THREADS] = step_threads,
		[MAP_KIND_HASH] = step_hash,
	};
	const uint32_t kind = map->spec.layout.kind,
		       n = kind == MAP_KIND_HASH ? 1 : map->spec.max_entries;
	struct map_source source;
	struct map_entry found;
	uint64_t spent = 0;
	int r;

	if (kind == MAP_KIND_RING)
		return MAP_E_END;
	while (cursor->index < n) {
		if (spent > MAP_STEP_BYTES)
			return MAP_E_AGAIN;
		spent += CACHE_LINE;
		if (!cursor_source(map, cursor, &source)) {
			cursor->process = 0;
			cursor->index++;
			continue;
		}
		r = steps[kind](map, cursor, &source, &found, &spent);
		if (r == MAP_E_AGAIN)
			continue;
		if (!r)
			*entry = found;
		return r;
	}
	return MAP_E_END;
}
