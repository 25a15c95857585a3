/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Entries lie in one array, in the order in which they were added; an index of their numbers, at
 * most half full, finds them by linear probing.
 */

#include "map-table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "map.h"

#define ENTRIES_FIRST 64
#define NO_ENTRY UINT32_MAX

struct map_table {
	size_t key_size, payload_size, entry_size;
	uint64_t seed;
	struct map_table_memory memory; /* resize NULL: none */
	uint32_t n, capacity;
	unsigned char *entries;
	uint32_t *index; /* twice the capacity; NO_ENTRY: free */
};

size_t map_table_entry_bytes(size_t key_size, size_t payload_size) {
	return sizeof(struct map_table_entry) + map_round_up(key_size, 8) + map_round_up(payload_size, 8);
}

int map_table_new_in(struct map_table **tablep, size_t key_size, size_t payload_size, const struct map_table_memory *memory) {
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
	free(table->index);
	free(table);
	return NULL;
}

static uint64_t bytes_for(const struct map_table *table, uint64_t capacity) {
	return capacity * (table->entry_size + 2 * sizeof(table->index[0]));
}

uint64_t map_table_bytes(const struct map_table *table) {
	return sizeof(*table) + bytes_for(table, table->capacity);
}

uint32_t map_table_capacity(const struct map_table *table) {
	return table->capacity;
}

uint32_t map_table_count(const struct map_table *table) {
	return table->n;
}

struct map_table_entry *map_table_at(const struct map_table *table, uint32_t i) {
	return (void *)(table->entries + i * table->entry_size);
}

uint32_t map_table_number(const struct map_table *table, const struct map_table_entry *entry) {
	return (uint32_t)((size_t)((const unsigned char *)entry - table->entries) / table->entry_size);
}

unsigned char *map_table_payload(const struct map_table *table, struct map_table_entry *entry) {
	return entry->key + table->key_size;
}

/* Where the number of the key's entry is in the index, or the free place where it would be. */
static uint32_t *index_of(const struct map_table *table, const unsigned char *key) {
	uint64_t hash = table->seed, word, mask = 2 * (uint64_t)table->capacity - 1;

	for (size_t i = 0; i < table->key_size; i += sizeof(word)) {
		memcpy(&word, key + i, sizeof(word));
		hash = map_hash_mix(hash, word);
	}
	hash = map_hash_mix(hash, table->seed);
	for (;; hash++) {
		uint32_t *at = &table->index[hash & mask];

		if (*at == NO_ENTRY || !memcmp(map_table_at(table, *at)->key, key, table->key_size))
			return at;
	}
}

/* Room for so many entries, and an index of those that are there. 0 or -ENOMEM. */
static int map_table_set_capacity(struct map_table *table, uint64_t capacity) {
	const size_t bytes = capacity * table->entry_size;
	unsigned char *entries;
	uint32_t *index;

	entries = table->memory.resize ? table->memory.resize(bytes, table->memory.userdata) : realloc(table->entries, bytes);
	if (!entries)
		return -ENOMEM;
	table->entries = entries;
	index = malloc(2 * capacity * sizeof(*index));
	if (!index)
		return -ENOMEM;
	free(table->index);
	table->index = index;
	table->capacity = (uint32_t)capacity;
	memset(index, 0xff, 2 * capacity * sizeof(*index)); /* NO_ENTRY */
	for (uint32_t i = 0; i < table->n; i++)
		*index_of(table, map_table_at(table, i)->key) = i;
	return 0;
}

/* Twice the room, or the first. */
static int map_table_grow(struct map_table *table, uint64_t room) {
	uint64_t capacity = table->capacity ? 2 * (uint64_t)table->capacity : ENTRIES_FIRST;

	if (capacity > UINT32_MAX / 2 || bytes_for(table, capacity) - bytes_for(table, table->capacity) > room)
		return MAP_E_QUOTA;
	return map_table_set_capacity(table, capacity);
}

int map_table_adopt(struct map_table *table, uint32_t n, uint32_t capacity) {
	table->n = n;
	return map_table_set_capacity(table, capacity);
}

int map_table_get(struct map_table *table, const unsigned char *key, uint64_t room,
		  struct map_table_entry **entryp, bool *addedp) {
	struct map_table_entry *entry;
	uint32_t *at = table->capacity ? index_of(table, key) : NULL;
	int r;

	if (at && *at != NO_ENTRY) {
		*entryp = map_table_at(table, *at);
		*addedp = false;
		return 0;
	}
	if (table->n == table->capacity) {
		r = map_table_grow(table, room);
		if (r)
			return r;
		at = index_of(table, key);
	}
	entry = map_table_at(table, table->n);
	memset(entry, 0, table->entry_size);
	memcpy(entry->key, key, table->key_size);
	*at = table->n++;
	*entryp = entry;
	*addedp = true;
	return 0;
}
