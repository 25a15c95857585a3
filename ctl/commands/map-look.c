/* SPDX-License-Identifier: Apache-2.0 */

/* Makes histograms of the elements of a map, and finds the number that one is sorted by
 * (map-look.h). */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/histogram.h"
#include "ctl/base/value.h"
#include "lib/json.h"
#include "map-look.h"

#define BUCKETS 64

static bool is_number(json_object *value) {
	return json_object_is_type(value, json_type_int);
}

static int64_t add(int64_t sum, int64_t number) {
	return __builtin_add_overflow(sum, number, &sum) ? INT64_MAX : sum;
}

/* Of a value, the first number in it; 0: there is none. */
static bool first_number(json_object *value, int64_t *numberp) {
	bool found = is_number(value);

	if (found)
		*numberp = json_object_get_int64(value);
	for (size_t i = 0; !found && i < json_length_of(value); i++)
		found = first_number(json_object_array_get_idx(value, i), numberp);
	if (!found && json_object_is_type(value, json_type_object)) {
		json_object_object_foreach(value, key, member) {
			(void)key;
			found = first_number(member, numberp);
			if (found)
				break;
		}
	}
	return found;
}

int64_t look_number(json_object *values) {
	int64_t sum = 0, number;

	for (size_t i = 0; i < json_length_of(values); i++)
		if (first_number(json_object_array_get_idx(values, i), &number))
			sum = add(sum, number);
	return sum;
}

/* ---- histograms ---- */

/* The histogram of that key; NULL: without memory. */
static json_object *get_histogram(struct look *look, json_object *key, const char *unit) {
	const char *text = json_object_to_json_string_ext(key, JSON_C_TO_STRING_PLAIN);
	json_object *histogram, *counts;

	if (!look->histograms)
		look->histograms = json_object_new_object();
	histogram = text ? json_member(look->histograms, text) : NULL;
	if (histogram || !look->histograms || !text)
		return histogram;
	histogram = json_add_object(look->histograms, text);
	if (key)
		json_add(histogram, "key", json_object_get(key));
	json_add_string(histogram, "unit", unit);
	counts = json_add_array(histogram, "counts");
	for (int i = 0; i < BUCKETS; i++)
		json_append_int(counts, 0);
	return json_incomplete(look->histograms) ? NULL : histogram;
}

static int count(json_object *histogram, size_t bucket, int64_t n) {
	json_object *counts = json_member(histogram, "counts");
	json_object *number = json_object_array_get_idx(counts, bucket);

	if (!number)
		return -ENOMEM;
	json_object_set_int64(number, add(json_object_get_int64(number), n > 0 ? n : 0));
	return 0;
}

/* The numbers of a value that is a histogram of its own; NULL: it is none. */
static json_object *slots_of(json_object *value) {
	json_object *slots = NULL;

	if (json_object_is_type(value, json_type_array))
		slots = value;
	if (json_object_is_type(value, json_type_object)) {
		json_object_object_foreach(value, key, member) {
			(void)key;
			if (json_object_is_type(member, json_type_array))
				slots = slots ? value : member; /* two: not clear which */
		}
	}
	return json_length_of(slots) && is_number(json_object_array_get_idx(slots, 0)) ? slots
										       : NULL;
}

static int add_slots(struct look *look, json_object *key, json_object *values,
		     char error[static LOOK_ERROR_SIZE]) {
	json_object *histogram = get_histogram(look, key, "");
	int r = histogram ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < json_length_of(values); i++) {
		json_object *slots = slots_of(json_object_array_get_idx(values, i));

		if (json_length_of(slots) > BUCKETS) {
			snprintf(error, LOOK_ERROR_SIZE,
				 "a value has %zu numbers, but a histogram in powers of two has "
				 "%d buckets",
				 json_length_of(slots), BUCKETS);
			return -EINVAL;
		}
		for (size_t j = 0; !r && j < json_length_of(slots); j++)
			r = count(histogram, j,
				  json_object_get_int64(json_object_array_get_idx(slots, j)));
	}
	return r;
}

/* The name of the member that is the bucket; NULL: there is none. */
static const char *bucket_member(const struct look *look, json_object *key) {
	const char *found = NULL;

	if (!json_object_is_type(key, json_type_object))
		return NULL;
	json_object_object_foreach(
		key, name, member) if (is_number(member) &&
				       (!look->member || !strcmp(name, look->member))) found = name;
	return found;
}

/* Takes the bucket out of a key. rest: what is left of it; NULL: nothing. */
static int split_key(struct look *look, json_object *key, int64_t *bucketp, json_object **restp,
		     const char **unitp, char error[static LOOK_ERROR_SIZE]) {
	const char *name = bucket_member(look, key);

	*restp = NULL;
	*unitp = "";
	if (is_number(key) && !look->member) {
		*bucketp = json_object_get_int64(key);
		return 0;
	}
	if (!name) {
		snprintf(error, LOOK_ERROR_SIZE,
			 look->member ? "the key has no number %.64s"
				      : "the key is no number, and no struct with one%s",
			 look->member ?: "");
		return -EINVAL;
	}
	*bucketp = json_int_of(key, name);
	if (strlen(name) > 3 && !strcmp(name + strlen(name) - 3, "_ns"))
		*unitp = "ns";
	if (json_object_object_length(key) == 1)
		return 0;
	*restp = json_object_new_object();
	json_object_object_foreach(key, other, member) if (strcmp(other, name) != 0)
		json_add(*restp, other, json_object_get(member));
	return *restp ? 0 : -ENOMEM;
}

int look_add(struct look *look, json_object *key, json_object *values,
	     char error[static LOOK_ERROR_SIZE]) {
	json_object *first = json_object_array_get_idx(values, 0), *rest, *histogram;
	const char *unit;
	int64_t bucket;
	int r;

	if (slots_of(first))
		return add_slots(look, key, values, error);
	if (!is_number(first)) {
		snprintf(error, LOOK_ERROR_SIZE,
			 "the values are no numbers, and no arrays of numbers");
		return -EINVAL;
	}
	r = split_key(look, key, &bucket, &rest, &unit, error);
	if (r)
		return r;
	if (bucket < 0 || bucket >= BUCKETS) {
		snprintf(error, LOOK_ERROR_SIZE,
			 "a key has the bucket %lld, but a histogram in powers of two has those "
			 "from 0 to %d",
			 (long long)bucket, BUCKETS - 1);
		r = -EINVAL;
	} else {
		histogram = get_histogram(look, rest, unit);
		r = histogram ? count(histogram, (size_t)bucket, look_number(values)) : -ENOMEM;
	}
	json_object_put(rest);
	return r;
}

/* ---- output ---- */

static void make_buckets(json_object *histogram, struct histogram_bucket buckets[static BUCKETS]) {
	json_object *counts = json_member(histogram, "counts");

	for (unsigned int i = 0; i < BUCKETS; i++)
		buckets[i] = histogram_power(
			i, (uint64_t)json_object_get_int64(json_object_array_get_idx(counts, i)));
}

static int64_t total(json_object *histogram) {
	json_object *counts = json_member(histogram, "counts");
	int64_t sum = 0;

	for (size_t i = 0; i < json_length_of(counts); i++)
		sum = add(sum, json_object_get_int64(json_object_array_get_idx(counts, i)));
	return sum;
}

/* Of equal ones: by their keys, so that each run prints the same. */
static int key_order(const void *one, const void *other) {
	return strcmp(json_object_to_json_string(json_member((json_object *)one, "key")),
		      json_object_to_json_string(json_member((json_object *)other, "key")));
}

/* All that are not empty, from calloc(), those that count most last; NULL: without memory, or none.
 */
static struct ranked *sort(const struct look *look, size_t *np) {
	struct ranked *rows;
	size_t n = 0;

	*np = 0;
	if (!look->histograms)
		return NULL;
	rows = calloc((size_t)json_object_object_length(look->histograms) + 1, sizeof(*rows));
	if (!rows)
		return NULL;
	json_object_object_foreach(look->histograms, text, histogram) {
		(void)text;
		rows[n] = (struct ranked){ total(histogram), histogram };
		n += rows[n].number > 0;
	}
	rank(rows, n, false, key_order);
	*np = n;
	return rows;
}

void look_print(const struct look *look) {
	struct histogram_bucket buckets[BUCKETS];
	struct ranked *rows;
	size_t n;

	rows = sort(look, &n);
	for (size_t i = 0; i < n; i++) {
		json_object *histogram = (json_object *)rows[i].row,
			    *key = json_member(histogram, "key");

		fputs(i ? "\n" : "", stdout);
		if (key) {
			value_print(key, stdout);
			puts(":");
		}
		make_buckets(histogram, buckets);
		histogram_print(stdout, buckets, BUCKETS,
				*json_string_of(histogram, "unit") ? HISTOGRAM_TIMES
								   : HISTOGRAM_POWERS);
	}
	free(rows);
}

json_object *look_json(const struct look *look) {
	json_object *list = json_object_new_array();
	struct histogram_bucket buckets[BUCKETS];
	struct ranked *rows;
	size_t n;

	rows = sort(look, &n);
	for (size_t i = 0; i < n; i++) {
		json_object *histogram = (json_object *)rows[i].row,
			    *key = json_member(histogram, "key"), *row = json_append_object(list);

		if (key)
			json_add(row, "key", json_object_get(key));
		make_buckets(histogram, buckets);
		json_add(row, "buckets", histogram_json(buckets, BUCKETS));
	}
	free(rows);
	return list;
}

void look_deinit(struct look *look) {
	json_object_put(look->histograms);
	look->histograms = NULL;
}
