/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A hash table from numbers to a number or pointer. All zeros is an empty one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/hash-table.h"

struct number_entry {
	uint64_t key;
	union {
		uint64_t value;
		void *pointer;
	};
};

struct number_map {
	struct hash_table table; /* of struct number_entry */
};

/* For numbers that are made of several. */
static inline uint64_t number_hash(uint64_t key) {
	key ^= key >> 32;
	key *= UINT64_C(0x9e3779b97f4a7c15);
	return key ^ key >> 29;
}

/* Entry i of map->table.n. */
static inline struct number_entry *number_map_at(const struct number_map *map, size_t i) {
	return hash_table_at(&map->table, i);
}

/* Where the value of the key is, or NULL. It stays there until the next number_map_add() or
 * _remove(). */
static inline uint64_t *number_map_find(const struct number_map *map, uint64_t key) {
	struct number_entry *entry = hash_table_find(&map->table, &key);

	return entry ? &entry->value : NULL;
}

/* Adds or replaces. False: no memory (or nothing random), nothing is changed. */
static inline bool number_map_add(struct number_map *map, uint64_t key, uint64_t value) {
	struct number_entry *entry;

	map->table.key_size = sizeof(key);
	map->table.entry_size = sizeof(*entry);
	entry = hash_table_add(&map->table, &key, NULL);
	if (entry)
		entry->value = value;
	return entry;
}

/* The same where all values are pointers. NULL: there is none. */
static inline void *number_map_pointer(const struct number_map *map, uint64_t key) {
	struct number_entry *entry = hash_table_find(&map->table, &key);

	return entry ? entry->pointer : NULL;
}

static inline bool number_map_add_pointer(struct number_map *map, uint64_t key, void *pointer) {
	return number_map_add(map, key, (uintptr_t)pointer);
}

static inline void number_map_remove(struct number_map *map, uint64_t key) {
	struct number_entry *entry = hash_table_find(&map->table, &key);

	if (entry)
		hash_table_remove(&map->table, entry);
}

static inline void number_map_deinit(struct number_map *map) {
	hash_table_deinit(&map->table);
}

/* The same; what the pointers point to is freed. */
static inline void number_map_free(struct number_map *map) {
	for (size_t i = 0; i < map->table.n; i++)
		free(number_map_at(map, i)->pointer);
	number_map_deinit(map);
}
