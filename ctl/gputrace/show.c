/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints maps (show.h): elements by growing value, histograms with bars. In JSON a map is one line.
 * Texts of programs are printed without their control characters.
 */

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/base/histogram.h"
#include "lib/json.h"
#include "operate.h"
#include "show.h"

void show_text(FILE *out, const char *text) {
	char *copy = strdup(text);

	if (!copy)
		return;
	ctl_clean_text(copy, "\n\t");
	fputs(copy, out);
	free(copy);
}

/* ---- for people ---- */

static void put_name(const struct show *show, const struct store *store,
		     const struct store_entry *entry) {
	struct value value;
	size_t at = 0;

	fputs(store->map->name, show->out);
	for (int n = 0; store_key_next(&entry->key, &at, &value); n++) {
		fputs(n ? ", " : "[", show->out);
		if (value.type == TYPE_TEXT)
			show_text(show->out, value.text);
		else
			fprintf(show->out, "%" PRId64, value.number);
	}
	fputs(at ? "]:" : ":", show->out);
}

/* Of an element, from calloc(); NULL without memory, or if it has none. */
static struct histogram_bucket *buckets_of(const struct map *map, const struct store_entry *entry,
					   int64_t div) {
	const size_t n = map_buckets(map);
	struct histogram_bucket *buckets = entry->buckets ? calloc(n, sizeof(*buckets)) : NULL;

	for (size_t i = 0; buckets && i < n; i++) {
		const uint64_t count = entry->buckets[i] / (uint64_t)div;
		const int64_t low = map->min + ((int64_t)i - 1) * map->step;

		if (map->kind == MAP_LHIST)
			buckets[i] =
				(struct histogram_bucket){ .low = i + 1 == n ? map->max : low,
							   .high = i ? low + map->step : map->min,
							   .below = i == 0,
							   .above = i + 1 == n,
							   .count = count };
		else if (i < 3) /* less than 0, 0 and 1 */
			buckets[i] = (struct histogram_bucket){ .low = (int64_t)i - 1,
								.high = (int64_t)i,
								.below = i == 0,
								.count = count };
		else
			buckets[i] = histogram_power((unsigned int)i - 2, count);
	}
	return buckets;
}

static double float_low(size_t bucket) {
	return ldexp(1, (int)bucket - 4 - SCRIPT_FLOAT_POWER);
}

static void put_float_bounds(size_t bucket, char text[static 64]) {
	static const char *const first[] = { "NaN", "(..., 0)", "[0]" };

	if (bucket < 3)
		strcpy(text, first[bucket]);
	else if (bucket == 3)
		snprintf(text, 64, "(0, %.4g)", float_low(4));
	else if (bucket == SCRIPT_FLOAT_BUCKETS - 1)
		snprintf(text, 64, "[%.4g, ...)", float_low(bucket));
	else
		snprintf(text, 64, "[%.4g, %.4g)", float_low(bucket), float_low(bucket + 1));
}

/* Those that are not empty: there are many between 0 and 1. */
static void put_float_histogram(FILE *out, const uint64_t *buckets, int64_t div) {
	uint64_t most = 1;

	for (size_t i = 0; buckets && i < SCRIPT_FLOAT_BUCKETS; i++)
		most = buckets[i] > most ? buckets[i] : most;
	for (size_t i = 0; buckets && i < SCRIPT_FLOAT_BUCKETS; i++) {
		char text[64];

		if (!buckets[i])
			continue;
		put_float_bounds(i, text);
		histogram_line(out, text, 24, buckets[i] / (uint64_t)div,
			       (double)buckets[i] / (double)most);
	}
}

static void put_histogram(const struct show *show, const struct map *map,
			  const struct store_entry *entry, int64_t div) {
	const bool floats = map->value == TYPE_FLOAT;
	struct histogram_bucket *buckets = floats ? NULL : buckets_of(map, entry, div);

	fputc('\n', show->out);
	if (floats)
		put_float_histogram(show->out, entry->buckets, div);
	if (buckets)
		histogram_print(show->out, buckets, map_buckets(map),
				map->kind == MAP_HIST ? HISTOGRAM_POWERS : HISTOGRAM_NUMBERS);
	free(buckets);
}

static double float_average(const struct store_entry *entry) {
	return entry->count ? entry->real / (double)entry->count : 0;
}

static void put_entry(const struct show *show, const struct store *store,
		      const struct store_entry *entry, int64_t div) {
	put_name(show, store, entry);
	switch (store->map->kind) {
	case MAP_HIST:
	case MAP_LHIST:
		put_histogram(show, store->map, entry, div);
		return;
	case MAP_STATS:
		if (map_sums_floats(store->map)) {
			fprintf(show->out, " count %" PRId64 ", average %g, total %g\n",
				entry->count, float_average(entry) / (double)div,
				entry->real / (double)div);
			return;
		}
		fprintf(show->out, " count %" PRId64 ", average %" PRId64 ", total %" PRId64 "\n",
			entry->count, (entry->count ? entry->sum / entry->count : 0) / div,
			entry->sum / div);
		return;
	default:
		fputc(' ', show->out);
		if (entry->text)
			show_text(show->out, entry->text);
		else if (store->map->value == TYPE_FLOAT)
			fprintf(show->out, "%g",
				float_real(float_unorder(store_value(store, entry))) / (double)div);
		else
			fprintf(show->out, "%" PRId64, store_value(store, entry) / div);
		fputc('\n', show->out);
	}
}

/* ---- JSON ---- */

/* JSON has neither infinity nor NaN. */
static json_object *json_float(double real) {
	return isfinite(real) ? json_object_new_double(real)
			      : json_object_new_string(isnan(real) ? "nan"
						       : real < 0  ? "-inf"
								   : "inf");
}

/* What a bucket begins with: nothing of those below 0, "nan" of what is no number. */
static void add_float_min(json_object *bucket, size_t i) {
	if (!i)
		json_add_string(bucket, "min", "nan");
	else if (i > 1)
		json_add(bucket, "min", json_float(i < 4 ? 0 : float_low(i)));
	if (i == 3)
		json_add(bucket, "max", json_float(float_low(4)));
}

static json_object *json_floats(const struct store_entry *entry, int64_t div) {
	json_object *list = json_object_new_array();

	for (size_t i = 0; entry->buckets && i < SCRIPT_FLOAT_BUCKETS; i++) {
		json_object *bucket;

		if (!entry->buckets[i])
			continue;
		bucket = json_append_object(list);
		add_float_min(bucket, i);
		json_add_int(bucket, "count", (int64_t)entry->buckets[i] / div);
	}
	return list;
}

static json_object *json_histogram(const struct map *map, const struct store_entry *entry,
				   int64_t div) {
	struct histogram_bucket *buckets;
	json_object *list;

	if (map->value == TYPE_FLOAT)
		return json_floats(entry, div);
	buckets = buckets_of(map, entry, div);
	list = histogram_json(buckets, buckets ? map_buckets(map) : 0);
	free(buckets);
	return list;
}

static json_object *json_value(const struct store *store, const struct store_entry *entry,
			       int64_t div) {
	json_object *object;

	if (store->map->kind == MAP_HIST || store->map->kind == MAP_LHIST)
		return json_histogram(store->map, entry, div);
	if (entry->text) {
		object = json_object_new_object();
		json_add_text(object, "text", entry->text);
		return object;
	}
	if (store->map->value == TYPE_FLOAT && store->map->kind != MAP_STATS)
		return json_float(float_real(float_unorder(store_value(store, entry))) /
				  (double)div);
	if (store->map->kind != MAP_STATS)
		return json_object_new_int64(store_value(store, entry) / div);
	object = json_object_new_object();
	json_add_int(object, "count", entry->count);
	if (map_sums_floats(store->map)) {
		json_add(object, "average", json_float(float_average(entry) / (double)div));
		json_add(object, "total", json_float(entry->real / (double)div));
		return object;
	}
	json_add_int(object, "average", (entry->count ? entry->sum / entry->count : 0) / div);
	json_add_int(object, "total", entry->sum / div);
	return object;
}

static void put_json(const struct show *show, json_object *consumed) {
	const char *text = json_object_to_json_string_ext(
		consumed, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	fprintf(show->out, "%s\n", text ? text : "null");
	json_object_put(consumed);
}

/* {"type":"map","name":"@x","entries":[{"keys":["a",1],"value":5}]} */
static void show_json(const struct show *show, const struct store *store,
		      const struct ranked *sorted, size_t n, int64_t div) {
	json_object *object = json_object_new_object(), *entries;

	json_add_string(object, "type", "map");
	json_add_string(object, "name", store->map->name);
	entries = json_add_array(object, "entries");
	for (size_t i = 0; i < n; i++) {
		const struct store_entry *shown = sorted[i].row;
		json_object *entry = json_append_object(entries),
			    *keys = json_add_array(entry, "keys");
		struct value value;

		for (size_t at = 0; store_key_next(&shown->key, &at, &value);) {
			json_object *holder = json_object_new_object();

			if (value.type == TYPE_TEXT)
				json_add_text(holder, "key", value.text);
			else
				json_add_int(holder, "key", value.number);
			json_append(keys, json_object_get(json_member(holder, "key")));
			json_object_put(holder);
		}
		json_add(entry, "value", json_value(store, shown, div));
	}
	put_json(show, object);
}

void show_output(const struct show *show, const char *type, const char *text, size_t n) {
	char *copy = strndup(text, n);
	json_object *object;

	if (!copy)
		return;
	if (show->json) {
		object = json_object_new_object();
		json_add_string(object, "type", type);
		json_add_text(object, "data", copy);
		put_json(show, object);
	} else {
		show_text(show->out, copy);
	}
	free(copy);
}

/* ---- all of it ---- */

/* Of equal values: by their keys, so that each run prints the same. */
static int order_of(const void *a, const void *b) {
	const struct store_entry *one = a, *other = b;
	const uint32_t n = one->key.n < other->key.n ? one->key.n : other->key.n;
	size_t at_x = 0, at_y = 0;
	struct value key_x, key_y;
	int order;

	while (store_key_next(&one->key, &at_x, &key_x) &&
	       store_key_next(&other->key, &at_y, &key_y))
		if (key_x.type == TYPE_NUMBER && key_y.type == TYPE_NUMBER &&
		    key_x.number != key_y.number)
			return key_x.number < key_y.number ? -1 : 1;
	order = memcmp(one->key.bytes, other->key.bytes, n);
	return order ? order : (one->key.n > other->key.n) - (one->key.n < other->key.n);
}

struct ranked *show_sorted(const struct store *store, size_t *np) {
	struct ranked *sorted = calloc(store->entries.n + 1, sizeof(*sorted));

	*np = 0;
	for (size_t i = 0; sorted && i < store->entries.n; i++) {
		const struct store_entry *entry = hash_table_at(&store->entries, i);

		if (entry->kept || store->map->kind == MAP_SCALAR || !store_is_zero(store, entry))
			sorted[(*np)++] = (struct ranked){ store_value(store, entry), entry };
	}
	if (sorted)
		rank(sorted, *np, false, order_of);
	return sorted;
}

void show_map(const struct show *show, const struct store *store, size_t top, int64_t div) {
	size_t n, first;
	struct ranked *sorted = show_sorted(store, &n);

	if (!sorted)
		return;
	first = top && top < n ? n - top : 0;
	if (n && show->blank && !show->json)
		fputc('\n', show->out);
	if (show->json)
		show_json(show, store, sorted + first, n - first, div ? div : 1);
	for (size_t i = first; !show->json && i < n; i++) {
		if (i > first && map_buckets(store->map))
			fputc('\n', show->out);
		put_entry(show, store, sorted[i].row, div ? div : 1);
	}
	free(sorted);
}
