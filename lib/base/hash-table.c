/* SPDX-License-Identifier: Apache-2.0 */

/* Open addressing, linear probing: the index is at most half full. */

#include "hash-table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CAPACITY_FIRST 16

/* All bits of the product of two numbers, folded. Adding a secret before a multiplication by a
 * number that is known would leave such keys in one heap as differ in their upper bits only. */
static uint64_t mix(uint64_t hash, uint64_t word, uint64_t secret) {
	const unsigned __int128 product = (unsigned __int128)(hash ^ word) * secret;

	return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

static uint32_t hash_of(const struct hash_table *table, const void *key) {
	const struct hash_text *text = key;
	const char *bytes = table->key_size == HASH_TEXT ? text->bytes : key;
	size_t n = table->key_size == HASH_TEXT ? text->n : table->key_size;
	uint64_t hash = table->secret[0], word;

	if (table->key_size == HASH_TEXT)
		hash = mix(hash, (uint64_t)text->kind << 32 | text->n, table->secret[1]);
	for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash, word, table->secret[1]);
	}
	if (n) {
		word = 0;
		memcpy(&word, bytes, n);
		hash = mix(hash, word, table->secret[1]);
	}
	/* After one product, keys that are a step apart still are, and may lie in one heap: the
	 * step is the secret's, and in one table of fifty it was such a step. */
	hash = mix(hash, 0, table->secret[0]);
	return (uint32_t)(hash ^ hash >> 32);
}

static bool is_same(const struct hash_table *table, const void *a, const void *b) {
	const struct hash_text *text = a, *other = b;
	const uint64_t *word = a, *other_word = b;

	if (table->key_size == HASH_TEXT)
		return text->n == other->n && text->kind == other->kind &&
		       !memcmp(text->bytes, other->bytes, text->n);
	for (size_t i = 0; i < table->key_size / sizeof(*word); i++)
		if (word[i] != other_word[i])
			return false;
	return true;
}

static uint32_t mask_of(const struct hash_table *table) {
	return 2 * table->capacity - 1;
}

/* The place of a key in the index, or the free one where it would be. There is an index. */
static struct hash_place *find_place(const struct hash_table *table, const void *key,
				     uint32_t hash) {
	for (uint32_t i = hash;; i++) {
		struct hash_place *place = &table->index[i & mask_of(table)];

		if (!place->number ||
		    (place->hash == hash &&
		     is_same(table, hash_table_at(table, place->number - 1), key)))
			return place;
	}
}

void *hash_table_find(const struct hash_table *table, const void *key) {
	const struct hash_place *place;

	if (!table->n)
		return NULL;
	place = find_place(table, key, hash_of(table, key));
	return place->number ? hash_table_at(table, place->number - 1) : NULL;
}

/* Twice the room, or the first. False: there is none. */
static bool grow(struct hash_table *table) {
	struct hash_table larger = *table;
	struct hash_place *place;

	larger.capacity = table->capacity ? 2 * table->capacity : CAPACITY_FIRST;
	if (larger.capacity > UINT32_MAX / 4)
		return false;
	if (!table->capacity &&
	    getrandom(larger.secret, sizeof(larger.secret), 0) != sizeof(larger.secret))
		return false;
	larger.secret[0] |= 1;
	larger.secret[1] |= 1;
	larger.entries = reallocarray(table->entries, larger.capacity, table->entry_size);
	if (!larger.entries)
		return false;
	table->entries = larger.entries;
	larger.index = calloc(2 * (size_t)larger.capacity, sizeof(*larger.index));
	if (!larger.index)
		return false;
	for (size_t i = 0; i < 2 * (size_t)table->capacity; i++) {
		if (!table->index[i].number)
			continue;
		place = &larger.index[table->index[i].hash & mask_of(&larger)];
		while (place->number)
			place = place == &larger.index[mask_of(&larger)] ? larger.index : place + 1;
		*place = table->index[i];
	}
	free(table->index);
	*table = larger;
	return true;
}

bool hash_table_reserve(struct hash_table *table, size_t n) {
	while (table->capacity < n)
		if (!grow(table))
			return false;
	return true;
}

void *hash_table_add(struct hash_table *table, const void *key, bool *addedp) {
	const size_t key_size = table->key_size ?: sizeof(struct hash_text);
	struct hash_place *place;
	uint32_t hash;
	void *entry;

	if (addedp)
		*addedp = true;
	if (!table->capacity && !grow(table))
		return NULL;
	hash = hash_of(table, key);
	place = find_place(table, key, hash);
	if (place->number) {
		if (addedp)
			*addedp = false;
		return hash_table_at(table, place->number - 1);
	}
	if (table->n == table->capacity) {
		if (!grow(table))
			return NULL;
		place = find_place(table, key, hash);
	}
	entry = hash_table_at(table, table->n);
	memcpy(entry, key, key_size);
	memset((char *)entry + key_size, 0, table->entry_size - key_size);
	*place = (struct hash_place){ hash, ++table->n };
	return entry;
}

/* Frees a place; those behind it move up, so that a search may end at the first free one. */
static void close_place(struct hash_table *table, struct hash_place *place) {
	const uint32_t mask = mask_of(table);
	uint32_t hole = (uint32_t)(place - table->index);

	for (uint32_t i = (hole + 1) & mask; table->index[i].number; i = (i + 1) & mask)
		/* what lies between its home and here stays */
		if (((i - table->index[i].hash) & mask) >= ((i - hole) & mask)) {
			table->index[hole] = table->index[i];
			hole = i;
		}
	table->index[hole].number = 0;
}

void hash_table_remove(struct hash_table *table, void *entry) {
	void *last = hash_table_at(table, table->n - 1);
	struct hash_place *place = find_place(table, entry, hash_of(table, entry));
	const uint32_t number = place->number;

	close_place(table, place);
	if (entry != last) {
		find_place(table, last, hash_of(table, last))->number = number;
		memcpy(entry, last, table->entry_size);
	}
	table->n--;
}

void hash_table_clear(struct hash_table *table) {
	table->n = 0;
	if (table->index)
		memset(table->index, 0, 2 * (size_t)table->capacity * sizeof(*table->index));
}

void hash_table_deinit(struct hash_table *table) {
	free(table->entries);
	free(table->index);
	*table =
		(struct hash_table){ .key_size = table->key_size, .entry_size = table->entry_size };
}
