/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Entries of one size, found by their keys. They lie in one array in the order in which they were
 * added, so whatever goes through them does so in the same order in each run; an index finds them
 * by a hash. The hash has a secret of the table: keys are often chosen by foreign processes, who
 * could choose such as collide. A table that is all zeros but for its sizes is an empty one.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_place {
	uint32_t hash;
	uint32_t number; /* of the entry, from 1; 0: free */
};

struct hash_table {
	uint32_t key_size; /* the key is the first bytes of an entry: a multiple of 8, or HASH_TEXT
			    */
	uint32_t entry_size; /* a multiple of 8 */
	uint32_t n; /* entries */
	uint32_t capacity; /* entries that there is room for: a power of two, or 0 */
	unsigned char *entries;
	struct hash_place *index; /* twice the capacity */
	uint64_t secret[2]; /* if there is an index */
};

/* A key that lies elsewhere, as long as its entry is in the table. */
#define HASH_TEXT 0
struct hash_text {
	const char *bytes;
	uint32_t n;
	uint32_t kind; /* the same bytes of another kind are another key */
};

/* Makes room for n entries, so that adding them does not fail. False: no memory. */
bool hash_table_reserve(struct hash_table *table, size_t n);

/* The entry of a key, or NULL. It stays where it is until the next one is added or removed. */
void *hash_table_find(const struct hash_table *table, const void *key);

/* The same; if there is none, one is added that is all zeros behind its key, and *addedp (or NULL)
 * is true. NULL: no memory (or nothing random), nothing is changed. */
void *hash_table_add(struct hash_table *table, const void *key, bool *addedp);

/* Takes an entry out; the last one gets its place in the array. */
void hash_table_remove(struct hash_table *table, void *entry);

/* Takes all out; the memory stays. */
void hash_table_clear(struct hash_table *table);

/* Frees the memory. The table is empty then, and may be used. */
void hash_table_deinit(struct hash_table *table);

/* Entry i of n. */
static inline void *hash_table_at(const struct hash_table *table, size_t i) {
	return table->entries + i * table->entry_size;
}
