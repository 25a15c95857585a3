/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A table of keys and what belongs to them, in the daemon's memory. Entries are only ever added,
 * and keep their numbers. Keys come from processes: the hash is seeded, so that nobody can choose
 * keys that collide.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_table;

struct map_table_entry {
	uint64_t recency; /* of the instance that the bytes in no lane are from */
	uint64_t instance; /* that was added last */
	unsigned char key[]; /* padded to 8 bytes, then the payload */
};

/* key_size, payload_size: rounded up to 8 bytes here. 0 or -ENOMEM. */
int map_table_new(struct map_table **tablep, size_t key_size, size_t payload_size);
struct map_table *map_table_free(struct map_table *table);

/* Where the entries lie, if not in memory of the table's own: room for `bytes`, at the old or a new
 * address with what is there. NULL: there is none. */
struct map_table_memory {
	void *(*resize)(size_t bytes, void *userdata);
	void *userdata;
};

/* A table whose entries lie there. */
int map_table_new_in(struct map_table **tablep, size_t key_size, size_t payload_size,
		     const struct map_table_memory *memory);
/* Such a table, empty so far, gets the entries that are there. 0 or -ENOMEM. */
int map_table_adopt(struct map_table *table, uint32_t n, uint32_t capacity);
/* Of one entry. */
size_t map_table_entry_bytes(size_t key_size, size_t payload_size);
uint32_t map_table_capacity(const struct map_table *table);

/* Of the entries that are there, and of what finds them. */
uint64_t map_table_bytes(const struct map_table *table);
uint32_t map_table_count(const struct map_table *table);

/* Entry i, good until the next one is added. */
struct map_table_entry *map_table_at(const struct map_table *table, uint32_t i);
uint32_t map_table_number(const struct map_table *table, const struct map_table_entry *entry);
unsigned char *map_table_payload(const struct map_table *table, struct map_table_entry *entry);

/*
 * The entry of a key, which is padded with zeros to 8 bytes; *addedp: it is a new one, all zeros.
 * 0, MAP_E_QUOTA: it would grow by more than `room` bytes, or -ENOMEM.
 */
int map_table_get(struct map_table *table, const unsigned char *key, uint64_t room,
		  struct map_table_entry **entryp, bool *addedp);
