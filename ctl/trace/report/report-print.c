/* SPDX-License-Identifier: Apache-2.0 */

/* Formats times, sizes and histograms for all reports. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/base/histogram.h"
#include "ctl/trace/read/read-json.h"
#include "lib/base/utf8.h"
#include "lib/json.h"
#include "report.h"

/* Nanoseconds, with the unit that leaves three digits. */
json_object *report_text_time(int64_t nanoseconds) {
	static const struct {
		double scale;
		const char *unit;
	} units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" } };
	const double value = (double)nanoseconds, size = value < 0 ? -value : value;

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (size >= units[i].scale)
			return ctl_format("%.*f %s",
					  size >= units[i].scale * 100  ? 1
					  : size >= units[i].scale * 10 ? 2
									: 3,
					  value / units[i].scale, units[i].unit);
	return ctl_format("%" PRId64 " ns", nanoseconds);
}

json_object *report_text_size(int64_t bytes) {
	static const char units[] = "KMGTPE";
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 10240)
		return ctl_format("%" PRId64 " B", bytes);
	for (; value >= 1024 && unit + 1 < sizeof(units) - 1; unit++)
		value /= 1024;
	return ctl_format("%.1f %ciB", value, units[unit]);
}

/* Names are other people's: bytes that are no UTF-8 become '?', as JSON needs it. */
json_object *report_text(const char *text, size_t n) {
	char *copy = strndup(text, n);
	json_object *value;

	for (char *at = copy; at && *at; at++) {
		const size_t length = utf8_length(at, 4);

		if (length)
			at += length - 1;
		else
			*at = '?';
	}
	value = copy ? json_object_new_string(copy) : NULL;
	free(copy);
	return value;
}

void report_add_text(json_object *object, const char *key, const char *text) {
	json_add(object, key, report_text(text, strlen(text)));
}

void report_add_hex(json_object *object, const char *key, uint64_t number) {
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, number);
	report_add_text(object, key, text);
}

json_object *report_histogram_json(const struct report_histogram *histogram) {
	static const struct {
		const char *key;
		double percent;
	} percentiles[] = {
		{ "p50_ns", 50 }, { "p90_ns", 90 }, { "p99_ns", 99 }, { "p999_ns", 99.9 }
	};
	json_object *object = json_object_new_object();

	json_add_uint(object, "count", histogram->count);
	json_add_uint(object, "total_ns",
		      histogram->total < 9e18 ? (uint64_t)histogram->total : INT64_MAX);
	json_add_uint(object, "mean_ns", (uint64_t)(report_histogram_mean(histogram) + 0.5));
	json_add_uint(object, "min_ns", histogram->min);
	for (size_t i = 0; i < sizeof(percentiles) / sizeof(*percentiles); i++)
		json_add_uint(object, percentiles[i].key,
			      report_histogram_percentile(histogram, percentiles[i].percent));
	json_add_uint(object, "max_ns", histogram->max);
	return object;
}

json_object *report_cell_time(json_object *object, const char *member) {
	return report_text_time(json_int_of(object, member));
}

json_object *report_cell_seconds(json_object *object, const char *member) {
	return ctl_format("%.6f s", (double)json_int_of(object, member) / 1e9);
}

json_object *report_cell_percent(json_object *object, const char *member) {
	return ctl_format("%.1f", json_object_get_double(json_member(object, member)));
}

void report_add_times(json_object *row, json_object *histogram) {
	static const char *const keys[] = { "mean_ns", "p50_ns", "p99_ns", "max_ns" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		json_append(row, report_text_time(json_int_of(histogram, keys[i])));
}

json_object *report_powers_json(const struct report_histogram *histogram) {
	json_object *array = json_object_new_array();
	unsigned int first = 0, last = 64;

	while (first < last && !report_histogram_power(histogram, first))
		first++;
	while (last > first && !report_histogram_power(histogram, last - 1))
		last--;
	for (unsigned int i = first; i < last; i++) {
		json_object *bar = json_object_new_object();

		json_add_uint(bar, "from_ns", i ? UINT64_C(1) << i : 0);
		json_add_uint(bar, "count", report_histogram_power(histogram, i));
		json_append(array, bar);
	}
	return array;
}

void report_print_powers(json_object *powers) {
	struct histogram_bucket buckets[64];
	size_t n = 0;

	for (; n < json_object_array_length(powers) && n < 64; n++) {
		json_object *bar = json_object_array_get_idx(powers, n);
		const uint64_t from = (uint64_t)json_int_of(bar, "from_ns");

		buckets[n] = histogram_power(from ? 63 - (unsigned int)__builtin_clzll(from) : 0,
					     (uint64_t)json_int_of(bar, "count"));
	}
	histogram_print(stdout, buckets, n, HISTOGRAM_TIMES);
}

void report_sort(json_object *array, const char *key) {
	const size_t n = json_object_array_length(array);
	struct ranked *rows = calloc(n + 1, sizeof(*rows));

	if (!rows)
		return; /* as they came, then */
	for (size_t i = 0; i < n; i++) {
		json_object *row = json_object_get(json_object_array_get_idx(array, i));

		rows[i] = (struct ranked){ json_int_of(row, key), row };
	}
	rank(rows, n, true, NULL);
	for (size_t i = 0; i < n; i++)
		json_object_array_put_idx(array, i, (json_object *)rows[i].row);
	free(rows);
}

/* Below a list that is longer. */
void report_print_more(size_t n, int64_t shown, const char *what) {
	if (n > (size_t)shown)
		printf("... and %zu more %s\n", n - (size_t)shown, what);
}

void report_print_text(const char *label, json_object *consume_text) {
	printf("%s%s", label, json_object_get_string(consume_text));
	json_object_put(consume_text);
}

void report_print_time(const char *label, json_object *object, const char *member) {
	report_print_text(label, report_cell_time(object, member));
}
