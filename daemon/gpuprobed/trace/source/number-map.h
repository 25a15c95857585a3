/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A hash table from numbers, which are never 0, to a number or pointer: open addressing, with a
 * bound on what it holds. All zeros is an empty one. Where a number has its place depends on a
 * secret of the table: processes choose many of these numbers, and could choose such as lie in one
 * heap.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

struct number_map {
	struct number_entry {
		uint64_t key; /* 0: free */
		uint64_t value;
	} *entries;
	size_t size; /* a power of two, or 0 */
	size_t n;
	uint64_t secret[2]; /* if there are entries */
};

/* For numbers that are made of several. */
static inline uint64_t number_hash(uint64_t key) {
	key ^= key >> 32;
	key *= UINT64_C(0x9e3779b97f4a7c15);
	return key ^ key >> 29;
}

/* Where to look first. A secret that is only added before a multiplication that is known would
 * leave numbers in one heap that differ in upper bits only. */
static inline size_t number_map_home(const struct number_map *map, uint64_t key) {
	unsigned __int128 product = (unsigned __int128)(key ^ map->secret[0]) * map->secret[1];

	return (size_t)((uint64_t)(product >> 64) ^ (uint64_t)product) & (map->size - 1);
}

/* Where the value of the key is, or NULL. It stays there until the next number_map_add() or
 * _remove(). */
static inline uint64_t *number_map_find(const struct number_map *map, uint64_t key) {
	for (size_t i = number_map_home(map, key); map->n; i++) {
		struct number_entry *entry = &map->entries[i & (map->size - 1)];

		if (!entry->key)
			break;
		if (entry->key == key)
			return &entry->value;
	}
	return NULL;
}

static inline void number_map_put(struct number_map *map, uint64_t key, uint64_t value) {
	size_t i = number_map_home(map, key);

	while (map->entries[i].key && map->entries[i].key != key)
		i = (i + 1) & (map->size - 1);
	map->n += !map->entries[i].key;
	map->entries[i] = (struct number_entry){ key, value };
}

/* Adds or replaces. False: no memory (or nothing random), nothing is changed. */
static inline bool number_map_add(struct number_map *map, uint64_t key, uint64_t value) {
	if ((map->n + 1) * 4 > map->size * 3) {
		struct number_map grown = { .size = map->size ? map->size * 2 : 64,
					    .secret = { map->secret[0], map->secret[1] } };

		if (!map->size &&
		    getrandom(grown.secret, sizeof(grown.secret), 0) != sizeof(grown.secret))
			return false;
		grown.secret[1] |= 1;
		grown.entries = calloc(grown.size, sizeof(*grown.entries));
		if (!grown.entries)
			return false;
		for (size_t i = 0; i < map->size; i++)
			if (map->entries[i].key)
				number_map_put(&grown, map->entries[i].key, map->entries[i].value);
		free(map->entries);
		*map = grown;
	}
	number_map_put(map, key, value);
	return true;
}

static inline void number_map_remove(struct number_map *map, uint64_t key) {
	uint64_t *value = number_map_find(map, key);
	size_t hole, i;

	if (!value)
		return;
	map->n--;
	hole = (size_t)((struct number_entry *)((char *)value -
						offsetof(struct number_entry, value)) -
			map->entries);
	for (i = (hole + 1) & (map->size - 1); map->entries[i].key; i = (i + 1) & (map->size - 1)) {
		size_t home = number_map_home(map, map->entries[i].key);

		if (((i - home) & (map->size - 1)) < ((i - hole) & (map->size - 1)))
			continue; /* it lies between its home and here: it stays */
		map->entries[hole] = map->entries[i];
		hole = i;
	}
	map->entries[hole].key = 0;
}

static inline void number_map_deinit(struct number_map *map) {
	free(map->entries);
	*map = (struct number_map){};
}
