/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a map of a script holds on the host: what host probes put into it, or a copy of what is on
 * the GPU. Entries stay in the order in which they came.
 */

#include "lib/base/hash-table.h"
#include "script.h"

#define STORE_KEYS_MAX 65536 /* of one map */
#define STORE_KEY_SIZE_MAX 65536 /* bytes of one key */

struct value {
	enum type type; /* NUMBER or TEXT */
	int64_t number;
	const char *text; /* borrowed */
};

/* The keys of an element, as bytes. */
struct store_key {
	size_t n, capacity;
	char *bytes;
	bool failed; /* too long, or no memory */
};

struct store_entry {
	struct hash_text key; /* the bytes are the entry's */
	double real; /* the sum of floats */
	int64_t count, sum, min, max; /* a SCALAR's number is the sum */
	char *text; /* of a SCALAR; NULL: none */
	uint64_t *buckets; /* of a histogram; NULL: all are 0 */
	int64_t kept; /* 1: is shown though it is zero */
};

struct store {
	const struct map *map;
	struct hash_table entries;
	uint64_t lost; /* there was no room for an element */
};

void store_init(struct store *store, const struct map *map);
void store_deinit(struct store *store);
void store_clear(struct store *store);

void store_key_clear(struct store_key *key);
void store_key_add(struct store_key *key, struct value value);
void store_key_deinit(struct store_key *key);
/* The value at *atp of a key, which goes on to the next one. False: there is none. */
bool store_key_next(const struct hash_text *key, size_t *atp, struct value *value);

struct store_entry *store_find(const struct store *store, const struct store_key *key);
/* NULL: there is no room, which is counted. */
struct store_entry *store_add(struct store *store, const struct store_key *key);
void store_remove(struct store *store, struct store_entry *entry);

/* One value for an aggregation, of floats its bits; of count() it is not looked at, of min() and
 * max() NaN is none. False: no memory. */
bool store_take(struct store *store, struct store_entry *entry, int64_t value);
bool store_set_text(struct store_entry *entry, const char *text);
/* Adds what another store of the same map has, or takes it away; then that one says whether what is
 * left is shown though it is zero. False: no memory. */
bool store_merge(struct store *store, const struct store *other, bool subtract);
/* The same for one element; an element that the other one lacks is nothing. */
bool store_merge_key(struct store *store, const struct store *other, const struct store_key *key,
		     bool subtract);
/* The number that an element stands for, of floats one that is in order as they are; of STATS and
 * SCALAR the sum, of histograms the count. */
int64_t store_value(const struct store *store, const struct store_entry *entry);
/* Whether nothing was put into an element. */
bool store_is_zero(const struct store *store, const struct store_entry *entry);
