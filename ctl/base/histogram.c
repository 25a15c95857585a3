/* SPDX-License-Identifier: Apache-2.0 */

/* Prints histograms, and sorts rows by a number (histogram.h). It needs no daemon. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "histogram.h"
#include "lib/json.h"

#define BAR 52 /* columns of a full bar */
#define BOUNDS 16 /* columns of the bounds, if they need no more */

void histogram_time(char text[static 24], uint64_t nanoseconds) {
	static const struct {
		uint64_t unit;
		const char *name;
	} units[] = { { 1000000000, "s" }, { 1000000, "ms" }, { 1000, "us" } };

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		const double number = (double)nanoseconds / (double)units[i].unit;

		if (nanoseconds < units[i].unit)
			continue;
		snprintf(text, 24, "%.*f%s", number < 10 ? 2 : 1, number, units[i].name);
		return;
	}
	snprintf(text, 24, "%" PRIu64 "ns", nanoseconds);
}

struct histogram_bucket histogram_power(unsigned int power, uint64_t count) {
	return (struct histogram_bucket){ .low = power ? INT64_C(1) << power : 0,
					  .high = power < 62 ? INT64_C(2) << power : INT64_MAX,
					  .above = power >= 62,
					  .count = count };
}

/* 1024 as 1K; what is no whole number of a unit, as it is. */
static void put_power(char text[static 24], int64_t number) {
	static const char units[] = " KMGTPE";
	size_t unit = 0;

	for (; number && number % 1024 == 0 && unit + 1 < sizeof(units) - 1; unit++)
		number /= 1024;
	snprintf(text, 24, "%" PRId64 "%.*s", number, unit > 0, units + unit);
}

static void put_bound(char text[static 24], int64_t number, enum histogram_unit unit) {
	if (unit == HISTOGRAM_POWERS)
		put_power(text, number);
	else if (unit == HISTOGRAM_TIMES)
		histogram_time(text, (uint64_t)number);
	else
		snprintf(text, 24, "%" PRId64, number);
}

static void put_bounds(char text[static 64], const struct histogram_bucket *bucket,
		       enum histogram_unit unit) {
	char low[24], high[24];

	put_bound(low, bucket->low, unit);
	put_bound(high, bucket->high, unit);
	if (bucket->below)
		snprintf(text, 64, "(..., %s)", high);
	else if (bucket->above)
		snprintf(text, 64, "[%s, ...)", low);
	else if (bucket->high - bucket->low == 1 && unit != HISTOGRAM_NUMBERS)
		snprintf(text, 64, "[%s]", low);
	else
		snprintf(text, 64, "[%s, %s)", low, high);
}

void histogram_line(FILE *out, const char *bounds, int width, uint64_t count, double share) {
	const int bar = (int)(share * BAR);

	fprintf(out, "%-*s %8" PRIu64 " |", width, bounds, count);
	for (int i = 0; i < BAR; i++)
		fputc(i < bar ? '@' : ' ', out);
	fputs("|\n", out);
}

void histogram_print(FILE *out, const struct histogram_bucket *buckets, size_t n,
		     enum histogram_unit unit) {
	uint64_t most = 1;
	int width = BOUNDS;
	char text[64];

	while (n && !buckets[n - 1].count)
		n--;
	while (n && !buckets->count) {
		buckets++;
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		put_bounds(text, &buckets[i], unit);
		width = (int)strlen(text) > width ? (int)strlen(text) : width;
		most = buckets[i].count > most ? buckets[i].count : most;
	}
	for (size_t i = 0; i < n; i++) {
		put_bounds(text, &buckets[i], unit);
		histogram_line(out, text, width, buckets[i].count,
			       (double)buckets[i].count / (double)most);
	}
}

json_object *histogram_json(const struct histogram_bucket *buckets, size_t n) {
	json_object *list = json_object_new_array();

	for (size_t i = 0; i < n; i++) {
		json_object *bucket;

		if (!buckets[i].count)
			continue;
		bucket = json_append_object(list);
		if (!buckets[i].below)
			json_add_int(bucket, "min", buckets[i].low);
		json_add_uint(bucket, "count", buckets[i].count);
	}
	return list;
}

/* ---- lists ---- */

struct ranking {
	bool largest_first;
	int (*order)(const void *row, const void *other);
};

static int compare(const void *a, const void *b, void *userdata) {
	const struct ranking *ranking = userdata;
	const struct ranked *one = a, *other = b;
	int order = 0;

	if (one->number != other->number)
		return (one->number < other->number) != ranking->largest_first ? -1 : 1;
	if (ranking->order)
		order = ranking->order(one->row, other->row);
	return order ? order : (one->place > other->place) - (one->place < other->place);
}

void rank(struct ranked *rows, size_t n, bool largest_first,
	  int (*order)(const void *row, const void *other)) {
	struct ranking ranking = { largest_first, order };

	for (size_t i = 0; i < n; i++)
		rows[i].place = i;
	if (n)
		qsort_r(rows, n, sizeof(*rows), compare, &ranking);
}
