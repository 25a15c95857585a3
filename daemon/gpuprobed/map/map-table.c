/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The hash table behind merged hash maps (map-table.h).
 *
 * Entries lie in one array, in the order in which they were added; an index of their numbers, at
 * most half full, finds them by linear probing.
 *
 * Tables grow large, and whoever adds a key must not wait until all others are found anew: an index
 * that is full is kept beside the next one, and each key that is added takes some of its entries
 * along. Until all are, both are searched.
 *
 * What counts as the table's memory are the entries that are there, not those that there is room
 * for: nobody has touched that memory. One more key is one more entry, then, and at times an index.
 */

#include "map-table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "map.h"

#define ENTRIES_FIRST 64
#define ENTRIES_ALONG \
	4 /* with each that is added, so that all are there before the index is full again */

/* Of entries by their numbers. */
struct map_table_index {
	uint32_t capacity; /* a power of two; 0: there is no index */
	uint32_t *places; /* twice the capacity; number + 1, 0: free, as calloc() has it without
			     touching the memory */
};

struct map_table {
	size_t key_size, payload_size, entry_size;
	uint64_t seed;
	struct map_table_memory memory; /* resize NULL: none */
	uint32_t n;
	unsigned char *entries;
	struct map_table_index index; /* there is room for as many entries as it can have */
	struct map_table_index before; /* of the first entries, as many as it can have */
	uint32_t along; /* so many of them are in `index` */
};

size_t map_table_entry_bytes(size_t key_size, size_t payload_size) {
	return sizeof(struct map_table_entry) + map_round_up(key_size, 8) +
	       map_round_up(payload_size, 8);
}

int map_table_new_in(struct map_table **tablep, size_t key_size, size_t payload_size,
		     const struct map_table_memory *memory) {
	int r = map_table_new(tablep, key_size, payload_size);

	if (r == 0)
		(*tablep)->memory = *memory;
	return r;
}

int map_table_new(struct map_table **tablep, size_t key_size, size_t payload_size) {
	struct map_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	if (getrandom(&table->seed, sizeof(table->seed), 0) != sizeof(table->seed)) {
		free(table);
		return -EIO;
	}
	table->key_size = map_round_up(key_size, 8);
	table->payload_size = map_round_up(payload_size, 8);
	table->entry_size = map_table_entry_bytes(key_size, payload_size);
	*tablep = table;
	return 0;
}

struct map_table *map_table_free(struct map_table *table) {
	if (!table)
		return NULL;
	if (!table->memory.resize)
		free(table->entries);
	free(table->index.places);
	free(table->before.places);
	free(table);
	return NULL;
}

static uint64_t index_bytes(uint64_t capacity) {
	return 2 * capacity * sizeof(uint32_t);
}

uint64_t map_table_bytes(const struct map_table *table) {
	return sizeof(*table) + table->n * (uint64_t)table->entry_size +
	       index_bytes(table->index.capacity) + index_bytes(table->before.capacity);
}

uint32_t map_table_capacity(const struct map_table *table) {
	return table->index.capacity;
}

uint32_t map_table_count(const struct map_table *table) {
	return table->n;
}

struct map_table_entry *map_table_at(const struct map_table *table, uint32_t i) {
	return (void *)(table->entries + i * table->entry_size);
}

uint32_t map_table_number(const struct map_table *table, const struct map_table_entry *entry) {
	return (uint32_t)((size_t)((const unsigned char *)entry - table->entries) /
			  table->entry_size);
}

unsigned char *map_table_payload(const struct map_table *table, struct map_table_entry *entry) {
	return entry->key + table->key_size;
}

static uint64_t hash_of(const struct map_table *table, const unsigned char *key) {
	uint64_t hash = table->seed, word;

	for (size_t i = 0; i < table->key_size; i += sizeof(word)) {
		memcpy(&word, key + i, sizeof(word));
		hash = map_hash_mix(hash, word);
	}
	return map_hash_mix(hash, table->seed);
}

/* Where the number of the key's entry is in the index, or the free place where it would be. */
static uint32_t *index_find(const struct map_table *table, const struct map_table_index *index,
			    const unsigned char *key, uint64_t hash) {
	const uint64_t mask = 2 * (uint64_t)index->capacity - 1;

	for (;; hash++) {
		uint32_t *at = &index->places[hash & mask];

		if (!*at || !memcmp(map_table_at(table, *at - 1)->key, key, table->key_size))
			return at;
	}
}

/* The entry of a key, NULL if there is none. */
static struct map_table_entry *table_find(const struct map_table *table, const unsigned char *key,
					  uint64_t hash) {
	const struct map_table_index *const indexes[] = { &table->index, &table->before };

	for (size_t i = 0; i < 2 && indexes[i]->capacity; i++) {
		const uint32_t number = *index_find(table, indexes[i], key, hash);

		if (number)
			return map_table_at(table, number - 1);
	}
	return NULL;
}

/* Puts some of the first entries into the index, up to this one; the index before goes when it has
 * no others. */
static void table_take_along(struct map_table *table, uint64_t end) {
	const uint32_t n = table->before.capacity;

	for (; table->along < n && table->along < end; table->along++) {
		const unsigned char *key = map_table_at(table, table->along)->key;

		*index_find(table, &table->index, key, hash_of(table, key)) = table->along + 1;
	}
	if (n && table->along == n) {
		free(table->before.places);
		table->before = (struct map_table_index){};
	}
}

/* Room for so many entries, and an index that is empty. 0 or -ENOMEM. */
static int table_make_room(struct map_table *table, uint64_t capacity,
			   struct map_table_index *index) {
	const size_t bytes = capacity * table->entry_size;
	unsigned char *entries;

	entries = table->memory.resize ? table->memory.resize(bytes, table->memory.userdata)
				       : realloc(table->entries, bytes);
	if (!entries)
		return -ENOMEM;
	table->entries = entries;
	index->places = calloc(1, index_bytes(capacity));
	if (!index->places)
		return -ENOMEM;
	index->capacity = (uint32_t)capacity;
	return 0;
}

/* The table is full: twice the room, or the first. 0, MAP_E_QUOTA or -ENOMEM. */
static int table_grow(struct map_table *table, uint64_t room) {
	const uint64_t capacity = table->n ? 2 * (uint64_t)table->n : ENTRIES_FIRST;
	struct map_table_index index;
	int r;

	if (capacity > UINT32_MAX / 2 || index_bytes(capacity) > room)
		return MAP_E_QUOTA;
	r = table_make_room(table, capacity, &index);
	if (r)
		return r;
	table->before = table->index;
	table->index = index;
	table->along = 0;
	return 0;
}

int map_table_adopt(struct map_table *table, uint32_t n, uint32_t capacity) {
	int r = table_make_room(table, capacity, &table->index);

	if (r)
		return r;
	for (; table->n < n; table->n++) {
		const unsigned char *key = map_table_at(table, table->n)->key;

		*index_find(table, &table->index, key, hash_of(table, key)) = table->n + 1;
	}
	return 0;
}

int map_table_get(struct map_table *table, const unsigned char *key, uint64_t room,
		  struct map_table_entry **entryp, bool *addedp) {
	const uint64_t hash = hash_of(table, key);
	struct map_table_entry *entry = table_find(table, key, hash);
	int r;

	if (entry) {
		*entryp = entry;
		*addedp = false;
		return 0;
	}
	if (room < table->entry_size)
		return MAP_E_QUOTA;
	if (table->n == table->index.capacity) {
		r = table_grow(table, room - table->entry_size);
		if (r)
			return r;
	}
	table_take_along(table, (uint64_t)table->along + ENTRIES_ALONG);
	entry = map_table_at(table, table->n);
	memset(entry, 0, table->entry_size);
	memcpy(entry->key, key, table->key_size);
	*index_find(table, &table->index, key, hash) = ++table->n;
	*entryp = entry;
	*addedp = true;
	return 0;
}
