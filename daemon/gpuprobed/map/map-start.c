/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes of the host to maps (map.h).
 *
 * Values that the host writes (UpdateMap, DeleteMap). They are the inputs of programs: what new
 * instances start with.
 *
 * They lie in an instance of their own, map->start, which no process gets: it is made with the
 * first write, kept for the next daemon as others are, and copied into each new instance. A
 * kernel's map has none: it is one for all, and is written itself. Arrays of maps to which programs
 * only add hold what is to be added to the sum of all instances, which start with zeros; those of
 * LATEST maps a value with a stamp.
 *
 * After a write the map reads as what was written, whatever processes have left behind; what
 * instances add from then on comes to it. So an instance that is there either gets the value, too
 * (host memory), or has no part in it (sums, stamps), or the write is refused: what is in the
 * memory of a device is changed by the programs there alone.
 */

#include "map-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "map-table.h"

#define START_SIZE_MAX \
	(UINT64_C(16) << 20) /* is copied into each new instance, in one turn of the loop */
#define FOLDS_MAX \
	64 /* megabytes of instances of processes that have just ended, which are waited for */

/* ---- hash maps: what GPUs do, on memory of our own that nobody else has ---- */

typedef unsigned int u32;
typedef unsigned long long u64;

static inline u64 start_load(u64 address) {
	return *(const u64 *)(uintptr_t)address;
}

static inline void start_store(u64 address, u64 value) {
	*(u64 *)(uintptr_t)address = value;
}

static inline u64 start_swap(u64 address, u64 expected, u64 value) {
	const u64 before = start_load(address);

	if (before == expected)
		start_store(address, value);
	return before;
}

static inline u64 start_add(u64 address, u64 value) {
	const u64 before = start_load(address);

	start_store(address, before + value);
	return before;
}

static inline u32 shard(void) {
	return 0;
}

static inline void look_again(void) {
}

#define load(h, address) ((void)(h), start_load(address))
#define load_pair(h, address, strong, a, b) \
	((void)(h), (void)(strong), *(a) = start_load(address), *(b) = start_load((address) + 8))
#define store(h, address, value) ((void)(h), start_store(address, value))
#define compare_and_swap(h, address, expected, value) \
	((void)(h), start_swap(address, expected, value))
#define add(h, address, value) start_add(address, value)
#define fence_all(h) ((void)(h))
#include "daemon/translator/device/device-lib-hash.c"
#undef load
#undef load_pair
#undef store
#undef compare_and_swap
#undef add
#undef fence_all

static struct hash start_hash(const struct map *map) {
	const struct map_spec *spec = &map->spec;
	const struct map_layout *layout = &spec->layout;

	return (struct hash){
		.base = (u64)(uintptr_t)map->start_data,
		.mask = layout->capacity - 1,
		.stride = layout->entry_stride,
		.group_bits = map_hash_group_bits(layout),
		.key_words = (u32)(map_round_up(spec->key_size, 8) / 8),
		.shards = layout->shards,
		.value_stride = (u32)layout->value_stride,
		.max_entries = spec->max_entries,
		.small = spec->key_size <= 4,
	};
}

/* A key padded with zeros. */
static void pad_key(const struct map *map, const void *key,
		    u64 words[static MAP_KEY_SIZE_MAX / 8]) {
	memset(words, 0, MAP_KEY_SIZE_MAX);
	memcpy(words, key, map->spec.key_size);
}

/* The values of the key, value_stride apart; NULL: there is no such element. */
static unsigned char *start_find(const struct map *map, const u64 *words) {
	struct hash hash = start_hash(map);
	struct element element;

	if (!map->start)
		return NULL;
	element = find(&hash, words, 1);
	return element.found ? (unsigned char *)(uintptr_t)element.value : NULL;
}

/* ---- what starts with what ---- */

const unsigned char *map_start_value(const struct map *map, uint64_t at, uint32_t shard_number) {
	const struct map_layout *layout = &map->spec.layout;

	if (map_is_sum(&map->spec) || layout->merge == MAP_MERGE_LATEST)
		return NULL;
	if (!map->start)
		return map->spec.initial;
	return map->start_data + shard_number * layout->shard_stride + at * layout->value_stride;
}

const unsigned char *map_initial_value(const struct map *map, uint64_t at, uint32_t shard_number) {
	const struct map_layout *layout = &map->spec.layout;

	if (!map->start)
		return map->spec.initial;
	return map->start_data +
	       (layout->merge == MAP_MERGE_PERCPU ? shard_number * layout->shard_stride : 0) +
	       at * layout->value_stride;
}

bool map_start_element(const struct map *map, const unsigned char *key, unsigned char *element) {
	const struct map_spec *spec = &map->spec;
	u64 words[MAP_KEY_SIZE_MAX / 8];
	const unsigned char *values;

	if (!map->start)
		return false;
	pad_key(map, key, words);
	values = start_find(map, words);
	for (uint32_t i = 0; values && i < map->n_values; i++)
		memcpy(element + (size_t)i * spec->value_size,
		       values + i * spec->layout.value_stride, spec->value_size);
	return values;
}

/* The instance, if there is none yet. 0, MAP_E_* or -ENOMEM. */
static int start_make(struct map *map, uint64_t id) {
	const struct map_spec *spec = &map->spec;
	struct map_instance *start;
	int r;

	if (map->start)
		return 0;
	if (spec->layout.data_size > START_SIZE_MAX)
		return MAP_E_LARGE;
	r = map_charge(map, map_memfd_size(&spec->layout), false);
	if (r)
		return r;
	r = map_instance_make(&start, map, id);
	if (r) {
		map_discharge(map, map_memfd_size(&spec->layout));
		return r;
	}
	start->uid = map->owner;
	r = map_start_adopt(map, start);
	if (r) {
		map_discharge(map, map_memfd_size(&spec->layout));
		map_instance_free(start);
		return r;
	}
	if (spec->initial)
		memcpy(map->start_data, spec->initial, spec->value_size);
	map_instance_keep(start);
	return 0;
}

int map_start_adopt(struct map *map, struct map_instance *start) {
	void *bytes = mmap(NULL, start->size, PROT_READ | PROT_WRITE, MAP_SHARED, start->fd, 0);

	if (bytes == MAP_FAILED)
		return -ENOMEM;
	map->start = start;
	map->start_data = (unsigned char *)bytes + MAP_DATA_OFFSET;
	return 0;
}

void map_start_free(struct map *map) {
	if (!map->start)
		return;
	munmap(map->start_data - MAP_DATA_OFFSET, map->start->size);
	map->start = map_instance_free(map->start);
	map->start_data = NULL;
}

/* ---- writing ---- */

/* Processes that have just ended: what they had is in the totals from here on. 0, MAP_E_AGAIN:
 * there is too much of it, or -ENOMEM. */
static int fold_all(struct map *map) {
	int r = MAP_E_AGAIN;

	for (int i = 0; r == MAP_E_AGAIN && i < FOLDS_MAX; i++) {
		uint64_t budget = MAP_FOLD_BYTES;

		r = map_fold(map, &budget);
	}
	return r;
}

/* Stores a value as programs do: in pieces of 8 bytes. Values have room for whole ones. */
static void store_words(unsigned char *to, const unsigned char *value, size_t size) {
	for (size_t i = 0; i < size; i += 8) {
		uint64_t piece = 0;

		memcpy(&piece, value + i, size - i < 8 ? size - i : 8);
		__atomic_store_n((uint64_t *)(void *)(to + i), piece, __ATOMIC_RELAXED);
	}
}

/* Stores a value of an array, or of all threads or SMs. data: of an instance. */
static void store_element(const struct map *map, unsigned char *data, uint32_t index,
			  const unsigned char *value) {
	const struct map_layout *layout = &map->spec.layout;
	const uint64_t n = layout->threads ? layout->threads : 1, first = index * n;

	for (uint32_t i = 0; i < layout->shards; i++)
		for (uint64_t at = first; at < first + n; at++)
			store_words(data + i * layout->shard_stride + at * layout->value_stride,
				    value, map->spec.value_size);
}

/* The same for an instance that a process has, in host memory. 0 or -ENOMEM. */
static int write_instance(const struct map_instance *instance, uint32_t index,
			  const unsigned char *value) {
	unsigned char *bytes =
		mmap(NULL, instance->size, PROT_READ | PROT_WRITE, MAP_SHARED, instance->fd, 0);

	if (bytes == MAP_FAILED)
		return -ENOMEM;
	store_element(instance->map, bytes + (instance->data - instance->bytes), index, value);
	munmap(bytes, instance->size);
	return 0;
}

/* What processes have left behind of an element no longer counts. */
static void forget_totals(struct map *map, uint32_t index, const unsigned char *value) {
	const struct map_layout *layout = &map->spec.layout;
	const uint64_t n = layout->threads ? layout->threads : 1;
	const size_t size = map_scratch_size(map);

	for (uint64_t at = index * n; map->totals && at < (index + UINT64_C(1)) * n; at++) {
		memset(map->totals->sums + at * size, 0, size);
		for (uint32_t i = 0; map->totals->latest && i < map->n_values; i++)
			memcpy(map->totals->latest + at * size + (size_t)i * map->spec.value_size,
			       value, map->spec.value_size);
	}
}

/* A map to which programs only add: what makes the sum the value. */
static void update_sum(struct map *map, uint32_t index, const unsigned char *value) {
	const struct map_spec *spec = &map->spec;
	unsigned char *start = map->start_data + index * spec->layout.value_stride;
	struct map_entry entry;

	map_read(map, index, &entry);
	map_value_add(spec, start, value, false);
	map_value_add(spec, start, entry.values, true);
}

/* A map in which the youngest value counts: this one is younger than those that there are, and
 * older than whatever comes. */
static void update_latest(struct map *map, uint32_t index, const unsigned char *value) {
	uint64_t *start = (void *)(map->start_data + index * map->spec.layout.value_stride), stamp;
	struct map_entry entry;

	map_read(map, index, &entry); /* with its stamp behind it */
	memcpy(&stamp, entry.values + sizeof(uint64_t), sizeof(stamp));
	start[1] = stamp < UINT64_MAX ? stamp + 1 : stamp;
	start[0] = 0;
	memcpy(start, value, map->spec.value_size);
}

static int update_array(struct map *map, uint32_t index, const unsigned char *value, uint64_t flags,
			uint64_t id) {
	const struct map_spec *spec = &map->spec;
	const struct map_layout *layout = &spec->layout;
	const bool apart = map_is_sum(spec) ||
			   layout->merge == MAP_MERGE_LATEST; /* instances have no part in it */
	int r;

	if (index >= spec->max_entries)
		return MAP_E_NO_KEY;
	if (flags == MAP_UPDATE_NOEXIST)
		return MAP_E_EXISTS;
	if (layout->place == MAP_PLACE_KERNEL)
		return write_instance(map->instances, index, value);
	if (layout->place == MAP_PLACE_DEVICE && !apart && map->n_instances)
		return MAP_E_RUNNING;
	r = fold_all(map);
	if (!r)
		r = start_make(map, id);
	if (r)
		return r;
	if (layout->merge == MAP_MERGE_LATEST) {
		update_latest(map, index, value);
	} else if (apart) {
		update_sum(map, index, value);
	} else {
		store_element(map, map->start_data, index, value);
		for (const struct map_instance *i = map->instances; !r && i; i = i->next)
			r = write_instance(i, index, value);
		forget_totals(map, index, value);
	}
	return r;
}

/* The entry of the totals for a key; NULL: there is none, or it does not count. */
static struct map_table_entry *totals_entry(const struct map *map, const u64 *words) {
	struct map_table *table = map->totals ? map->totals->table : NULL;
	struct map_table_entry *entry;

	for (uint32_t i = 0; table && i < map_table_count(table); i++) {
		entry = map_table_at(table, i);
		if (!memcmp(entry->key, words, map_round_up(map->spec.key_size, 8)))
			return entry->instance == MAP_TOTALS_DELETED ? NULL : entry;
	}
	return NULL;
}

static int update_hash(struct map *map, const u64 *words, const unsigned char *value,
		       uint64_t flags, uint64_t id) {
	const struct map_spec *spec = &map->spec;
	const struct hash_value stored = { .data = (const char *)value, .size = spec->value_size };
	struct map_table_entry *entry;
	unsigned char *values;
	struct hash hash;
	int r;

	if (map->n_instances)
		return MAP_E_RUNNING;
	r = fold_all(map);
	if (!r)
		r = start_make(map, id);
	if (r)
		return r;
	entry = totals_entry(map, words);
	if (flags == MAP_UPDATE_NOEXIST && (entry || start_find(map, words)))
		return MAP_E_EXISTS;
	if (flags == MAP_UPDATE_EXIST && !entry && !start_find(map, words))
		return MAP_E_NO_KEY;
	hash = start_hash(map);
	if (update(&hash, words, &stored, 0))
		return MAP_E_FULL;
	values = start_find(map, words);
	for (uint32_t i = 0; i < map->n_values; i++)
		store_words(values + i * spec->layout.value_stride, value, spec->value_size);
	if (entry) /* what is there is what was written, and nothing more */
		entry->instance = MAP_TOTALS_DELETED;
	return 0;
}

int map_update(struct map *map, const void *key, const void *value, uint64_t flags, uint64_t id) {
	u64 words[MAP_KEY_SIZE_MAX / 8];
	uint32_t index;

	switch (map->spec.layout.kind) {
	case MAP_KIND_RING:
		return MAP_E_RING;
	case MAP_KIND_HASH:
		pad_key(map, key, words);
		return update_hash(map, words, value, flags, id);
	default:
		memcpy(&index, key, sizeof(index));
		return update_array(map, index, value, flags, id);
	}
}

int map_delete(struct map *map, const void *key) {
	u64 words[MAP_KEY_SIZE_MAX / 8];
	struct map_table_entry *entry;
	struct hash hash;
	bool there;
	int r;

	if (map->spec.layout.kind != MAP_KIND_HASH)
		return map->spec.layout.kind == MAP_KIND_RING ? MAP_E_RING : MAP_E_ARRAY;
	if (map->n_instances)
		return MAP_E_RUNNING;
	r = fold_all(map);
	if (r)
		return r;
	pad_key(map, key, words);
	entry = totals_entry(map, words);
	there = start_find(map, words);
	if (!entry && !there)
		return MAP_E_NO_KEY;
	if (there) {
		hash = start_hash(map);
		erase(&hash, words);
	}
	if (entry)
		entry->instance = MAP_TOTALS_DELETED;
	return 0;
}
