/* SPDX-License-Identifier: Apache-2.0 */

/* Elements of maps on the host (store.h), on the hash table of lib/base. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operate.h"
#include "store.h"

void store_init(struct store *store, const struct map *map) {
	*store = (struct store){ .map = map,
				 .entries = { .key_size = HASH_TEXT,
					      .entry_size = sizeof(struct store_entry) } };
}

static void entry_deinit(struct store_entry *entry) {
	free((char *)entry->key.bytes);
	free(entry->text);
	free(entry->buckets);
}

void store_clear(struct store *store) {
	for (size_t i = 0; i < store->entries.n; i++)
		entry_deinit(hash_table_at(&store->entries, i));
	hash_table_clear(&store->entries);
}

void store_deinit(struct store *store) {
	store_clear(store);
	hash_table_deinit(&store->entries);
}

/* ---- keys: of each value its type, then 8 bytes, or a text with its NUL ---- */

void store_key_clear(struct store_key *key) {
	key->n = 0;
	key->failed = false;
}

static void key_put(struct store_key *key, const void *bytes, size_t n) {
	if (n > STORE_KEY_SIZE_MAX - key->n)
		key->failed = true;
	if (!key->failed && key->n + n > key->capacity) {
		const size_t capacity = 2 * (key->n + n);
		char *more = realloc(key->bytes, capacity);

		key->failed = !more;
		key->bytes = more ? more : key->bytes;
		key->capacity = more ? capacity : key->capacity;
	}
	if (key->failed)
		return;
	memcpy(key->bytes + key->n, bytes, n);
	key->n += n;
}

void store_key_add(struct store_key *key, struct value value) {
	const char type = value.type == TYPE_TEXT ? 't' : 'n';

	key_put(key, &type, 1);
	if (value.type == TYPE_TEXT)
		key_put(key, value.text, strlen(value.text) + 1);
	else
		key_put(key, &value.number, sizeof(value.number));
}

void store_key_deinit(struct store_key *key) {
	free(key->bytes);
}

bool store_key_next(const struct hash_text *key, size_t *atp, struct value *value) {
	const char *at = key->bytes + *atp;

	if (*atp >= key->n)
		return false;
	*value = (struct value){ .type = *at == 't' ? TYPE_TEXT : TYPE_NUMBER };
	if (value->type == TYPE_TEXT)
		value->text = at + 1;
	else
		memcpy(&value->number, at + 1, sizeof(value->number));
	*atp += 1 + (value->type == TYPE_TEXT ? strlen(at + 1) + 1 : sizeof(value->number));
	return true;
}

/* ---- elements ---- */

struct store_entry *store_find(const struct store *store, const struct store_key *key) {
	const struct hash_text text = { .bytes = key->bytes ? key->bytes : "",
					.n = (uint32_t)key->n };

	return key->failed ? NULL : hash_table_find(&store->entries, &text);
}

struct store_entry *store_add(struct store *store, const struct store_key *key) {
	struct store_entry *entry = store_find(store, key);
	struct hash_text text = { .n = (uint32_t)key->n };
	char *bytes = NULL;

	if (entry)
		return entry;
	if (!key->failed && store->entries.n < STORE_KEYS_MAX)
		bytes = malloc(key->n + 1);
	if (bytes && key->n)
		memcpy(bytes, key->bytes, key->n);
	text.bytes = bytes;
	entry = bytes ? hash_table_add(&store->entries, &text, NULL) : NULL;
	if (!entry) {
		free(bytes);
		store->lost++;
		return NULL;
	}
	entry->min = INT64_MAX;
	entry->max = INT64_MIN;
	return entry;
}

void store_remove(struct store *store, struct store_entry *entry) {
	const struct store_entry gone = *entry;

	hash_table_remove(&store->entries, entry);
	entry_deinit((struct store_entry *)&gone);
}

static int64_t add(int64_t a, int64_t b) {
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static bool add_bucket(const struct store *store, struct store_entry *entry, size_t bucket,
		       uint64_t n) {
	if (!entry->buckets)
		entry->buckets = calloc(map_buckets(store->map), sizeof(*entry->buckets));
	if (entry->buckets)
		entry->buckets[bucket] += n;
	return entry->buckets;
}

bool store_take(struct store *store, struct store_entry *entry, int64_t value) {
	const bool best = store->map->kind == MAP_MIN || store->map->kind == MAP_MAX;

	if (map_sums_floats(store->map)) {
		entry->count++;
		entry->real += float_real(value);
		return true;
	}
	if (best && store->map->value == TYPE_FLOAT) {
		if (float_is_nan(value))
			return true;
		value = float_order(value);
	}
	entry->count++;
	entry->sum = add(entry->sum, value);
	entry->min = value < entry->min ? value : entry->min;
	entry->max = value > entry->max ? value : entry->max;
	return (store->map->kind != MAP_HIST && store->map->kind != MAP_LHIST) ||
	       add_bucket(store, entry, map_bucket(store->map, value), 1);
}

bool store_set_text(struct store_entry *entry, const char *text) {
	char *copy = strdup(text);

	free(entry->text);
	entry->text = copy;
	return copy;
}

static bool merge_entry(struct store *store, struct store_entry *entry,
			const struct store_entry *other, bool subtract) {
	const int64_t sign = subtract ? -1 : 1;

	entry->count = add(entry->count, sign * other->count);
	entry->sum = add(entry->sum, (int64_t)((uint64_t)sign * (uint64_t)other->sum));
	entry->real += subtract ? -other->real : other->real;
	entry->kept = subtract ? other->kept : entry->kept | other->kept;
	if (!subtract) {
		entry->min = other->min < entry->min ? other->min : entry->min;
		entry->max = other->max > entry->max ? other->max : entry->max;
	}
	if (other->text && !store_set_text(entry, other->text))
		return false;
	for (size_t i = 0; other->buckets && i < map_buckets(store->map); i++)
		if (other->buckets[i] &&
		    !add_bucket(store, entry, i, (uint64_t)sign * other->buckets[i]))
			return false;
	return true;
}

bool store_merge(struct store *store, const struct store *other, bool subtract) {
	for (size_t i = 0; i < other->entries.n; i++) {
		const struct store_entry *from = hash_table_at(&other->entries, i);
		const struct store_key key = { .n = from->key.n, .bytes = (char *)from->key.bytes };
		struct store_entry *entry = store_add(store, &key);

		if (entry && !merge_entry(store, entry, from, subtract))
			return false;
	}
	store->lost += subtract ? 0 : other->lost;
	return true;
}

bool store_merge_key(struct store *store, const struct store *other, const struct store_key *key,
		     bool subtract) {
	const struct store_entry *from = store_find(other, key);
	struct store_entry *entry = from ? store_add(store, key) : NULL;

	return !entry || merge_entry(store, entry, from, subtract);
}

int64_t store_value(const struct store *store, const struct store_entry *entry) {
	if (map_sums_floats(store->map))
		return float_order(float_bits(store->map->kind == MAP_AVG && entry->count
						      ? entry->real / (double)entry->count
						      : entry->real));
	switch (store->map->kind) {
	case MAP_COUNT:
	case MAP_HIST:
	case MAP_LHIST:
		return entry->count;
	case MAP_AVG:
		return entry->count ? entry->sum / entry->count : 0;
	case MAP_MIN:
		return entry->count ? entry->min : 0;
	case MAP_MAX:
		return entry->count ? entry->max : 0;
	default:
		return entry->sum;
	}
}

bool store_is_zero(const struct store *store, const struct store_entry *entry) {
	for (size_t i = 0; entry->buckets && i < map_buckets(store->map); i++)
		if (entry->buckets[i])
			return false;
	return !entry->count && !entry->sum && !entry->text && !(entry->real < 0) &&
	       !(entry->real > 0) && !isnan(entry->real);
}
