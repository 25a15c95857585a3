/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the metrics of one exported map (map-export.h).
 *
 * The series of an export. They are gathered before they are written, because two keys may look the
 * same as labels (what lies behind the NUL of a text, or between two members, is no label), and no
 * reader takes the same series twice: such become one, with the sum.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map-export.h"
#include "daemon/gpuprobed/map/map.h"

#define PART_BYTES ((size_t)64 << 10) /* of text, in a turn of the loop */

struct series {
	size_t labels; /* where they are in the text of all */
	uint32_t family;
	uint32_t bucket;
	union {
		uint64_t integer;
		double floating;
	};
};

struct map_export_series {
	const struct map_export *export;
	struct series *list;
	size_t n, size, max;
	struct metrics_text same; /* labels that all of them have */
	struct metrics_text labels; /* each with a NUL behind it */
	size_t bytes_max;
	size_t left_out;
	uint64_t *kernels;
	size_t n_kernels, kernels_size;
	/* how far they are written */
	bool merged, begun; /* begun: the family at hand */
	uint32_t family, last_bucket;
	size_t at;
};

/* ---- labels ---- */

static void label_begin(struct metrics_text *text, const char *name) {
	metrics_text_print(text, "%s%s=\"", text->n ? "," : "", name);
}

/* The value of a member of a key. */
static void label_value(struct metrics_text *text, const struct field *field,
			const unsigned char *key) {
	const unsigned char *bytes = key + field->bit / 8;
	size_t n_bytes = (size_t)field->bits / 8 * field->count;
	uint64_t value;
	const char *name;

	if (field->kind == FIELD_TEXT) {
		metrics_text_escape(text, (const char *)bytes,
				    strnlen((const char *)bytes, n_bytes), true);
		return;
	}
	if (field->kind == FIELD_BYTES || field->is_array) {
		for (size_t i = 0; i < n_bytes; i++)
			metrics_text_print(text, "%02x", bytes[i]);
		return;
	}
	value = field_load(field, key, 0);
	name = field->kind == FIELD_ENUM ? field_enumerator(field, value) : NULL;
	if (name)
		metrics_text_escape(text, name, strlen(name), true);
	else if (field->kind == FIELD_BOOL)
		metrics_text_print(text, "%s", value ? "true" : "false");
	else if (field->is_signed)
		metrics_text_print(text, "%lld", (long long)value);
	else if (field->kind == FIELD_FLOAT)
		metrics_text_double(text, field_double(field, value));
	else
		metrics_text_print(text, "%llu", (unsigned long long)value);
}

/* The labels that all series of an entry have. */
static void add_entry_labels(struct metrics_text *text, const struct map_export_series *series,
			     const struct map *map, const struct map_entry *entry) {
	const struct map_export *export = series->export;

	metrics_text_add(text, series->same.data, series->same.n);
	for (size_t i = 0; i < export->key->n; i++)
		if (export->key_labels[i][0]) {
			label_begin(text, export->key_labels[i]);
			label_value(text, &export->key->fields[i], entry->key);
			metrics_text_add(text, "\"", 1);
		}
	if (map->spec.layout.kind == MAP_KIND_THREADS)
		metrics_text_print(text, "%sthread=\"%u\"", text->n ? "," : "", entry->thread);
}

/* ---- gathering ---- */

int map_export_series_new(struct map_export_series **seriesp, const struct map_export *export,
			  size_t max, size_t bytes_max) {
	struct map_export_series *series = calloc(1, sizeof(*series));

	if (!series)
		return -ENOMEM;
	series->export = export;
	series->max = max;
	series->bytes_max = bytes_max;
	metrics_text_add(&series->same, "", 0);
	for (size_t i = 0; i < export->n_labels; i++) {
		label_begin(&series->same, export->labels[i].name);
		metrics_text_escape(&series->same, export->labels[i].value,
				    strlen(export->labels[i].value), true);
		metrics_text_add(&series->same, "\"", 1);
	}
	if (series->same.failed) {
		map_export_series_free(series);
		return -ENOMEM;
	}
	*seriesp = series;
	return 0;
}

struct map_export_series *map_export_series_free(struct map_export_series *series) {
	if (!series)
		return NULL;
	free(series->list);
	free(series->kernels);
	metrics_text_deinit(&series->same);
	metrics_text_deinit(&series->labels);
	free(series);
	return NULL;
}

static bool is_counting(const struct map_export *export) {
	return export->kind == MAP_EXPORT_COUNTER || export->kind == MAP_EXPORT_HISTOGRAM;
}

/* The index in an array that says which bucket a number counts, and is no label. */
static bool index_is_bucket(const struct map_export *export) {
	return export->kind == MAP_EXPORT_HISTOGRAM && !export->bucket;
}

/* Adds one number, of that SM and index. `labels` are those of its entry. 0 or -ENOMEM. */
static int add_number(struct map_export_series *series, const struct metrics_text *labels,
		      uint32_t sm, uint32_t i, struct series number) {
	const struct map_export *export = series->export;
	const struct field *field = export->families[number.family].field;
	const char *comma = labels->n ? "," : "";
	bool is_float = field->kind == FIELD_FLOAT;

	if (export->nonzero && (is_float ? number.floating == 0 : !number.integer))
		return 0;
	/* a counter that goes below zero is none */
	if (series->n == series->max || series->labels.n + labels->n > series->bytes_max ||
	    number.bucket >= MAP_EXPORT_BUCKETS ||
	    (is_counting(export) && (is_float ? !(number.floating >= 0)
					      : field->is_signed && (int64_t)number.integer < 0))) {
		series->left_out++;
		return 0;
	}
	if (series->n == series->size) {
		size_t size = series->size ? series->size * 2 : 64;
		struct series *grown = reallocarray(series->list, size, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		series->list = grown;
		series->size = size;
	}
	number.labels = series->labels.n;
	metrics_text_add(&series->labels, labels->data, labels->n);
	if (export->per_sm) {
		metrics_text_print(&series->labels, "%ssm=\"%u\"", comma, sm);
		comma = ",";
	}
	if (field->is_array && !index_is_bucket(export))
		metrics_text_print(&series->labels, "%sindex=\"%u\"", comma, i);
	metrics_text_add(&series->labels, "", 1);
	if (series->labels.failed)
		return -ENOMEM;
	series->list[series->n++] = number;
	return 0;
}

static void number_load(struct series *number, const struct field *field,
			const unsigned char *value, uint32_t index, bool add) {
	uint64_t loaded = field_load(field, value, index);

	if (field->kind == FIELD_FLOAT)
		number->floating = field_double(field, loaded) + (add ? number->floating : 0);
	else
		number->integer = loaded + (add ? number->integer : 0);
}

/* All numbers of one member of the value, of one SM or added over all. */
static int add_member(struct map_export_series *series, const struct map *map,
		      const struct map_entry *entry, const struct metrics_text *labels,
		      uint32_t family, uint32_t sm) {
	const struct map_export *export = series->export;
	const struct field *field = export->families[family].field;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < field->count; i++) {
		struct series number = { .family = family };

		if (export->per_sm) {
			number_load(&number, field,
				    entry->values + (size_t)sm * map->spec.value_size, i, false);
		} else {
			for (uint32_t j = 0; j < entry->n_values; j++)
				number_load(&number, field,
					    entry->values + (size_t)j * map->spec.value_size, i,
					    j > 0);
		}
		if (export->bucket) {
			uint64_t bucket = field_load(export->bucket, entry->key, 0);

			number.bucket =
				bucket < MAP_EXPORT_BUCKETS ? (uint32_t)bucket : MAP_EXPORT_BUCKETS;
		} else if (index_is_bucket(export)) {
			number.bucket = i;
		}
		r = add_number(series, labels, sm, i, number);
	}
	return r;
}

/* Keeps the id of a kernel that is in a key. 0 or -ENOMEM. */
static int add_kernel(struct map_export_series *series, uint64_t id) {
	if (series->n_kernels && series->kernels[series->n_kernels - 1] == id)
		return 0;
	if (series->n_kernels == series->kernels_size) {
		size_t size = series->kernels_size ? series->kernels_size * 2 : 64;
		uint64_t *grown = reallocarray(series->kernels, size, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		series->kernels = grown;
		series->kernels_size = size;
	}
	series->kernels[series->n_kernels++] = id;
	return 0;
}

const uint64_t *map_export_series_kernels(const struct map_export_series *series, size_t *np) {
	*np = series->n_kernels;
	return series->kernels;
}

int map_export_series_add(struct map_export_series *series, const struct map *map,
			  const struct map_entry *entry) {
	const struct map_export *export = series->export;
	struct metrics_text labels = {};
	const size_t n = series->n;
	int r = 0;

	if (n == series->max) {
		series->left_out += export->n_families;
		return 0;
	}
	add_entry_labels(&labels, series, map, entry);
	for (uint32_t sm = 0; r == 0 && sm < (export->per_sm ? entry->n_values : 1); sm++)
		for (uint32_t i = 0; r == 0 && i < export->n_families; i++)
			r = labels.failed ? -ENOMEM
					  : add_member(series, map, entry, &labels, i, sm);
	if (r == 0 && export->kernel && series->n > n)
		r = add_kernel(series, field_load(export->kernel, entry->key, 0));
	metrics_text_deinit(&labels);
	return r;
}

/* ---- writing ---- */

static const char *labels_of(const struct map_export_series *series, const struct series *number) {
	return series->labels.data + number->labels;
}

/* All labels begin with the same ones, which may be long. */
static int compare_labels(const struct map_export_series *series, const struct series *a,
			  const struct series *b) {
	return strcmp(labels_of(series, a) + series->same.n, labels_of(series, b) + series->same.n);
}

static int compare(const void *left, const void *right, void *userdata) {
	const struct series *a = left, *b = right;
	int order;

	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	order = compare_labels(userdata, a, b);
	return order ? order : (a->bucket > b->bucket) - (a->bucket < b->bucket);
}

/* Makes one of those that are the same but for the value. */
static void merge(struct map_export_series *series) {
	size_t n = 0;

	if (series->n) /* else there is no list */
		qsort_r(series->list, series->n, sizeof(*series->list), compare, series);
	for (size_t i = 0; i < series->n; i++) {
		if (!n || compare(&series->list[n - 1], &series->list[i], series) != 0)
			series->list[n++] = series->list[i];
		else if (series->export->families[series->list[i].family].field->kind ==
			 FIELD_FLOAT)
			series->list[n - 1].floating += series->list[i].floating;
		else
			series->list[n - 1].integer += series->list[i].integer;
	}
	series->n = n;
}

static void print_number(struct metrics_text *text, const struct field *field,
			 const struct series *number) {
	if (field->kind == FIELD_FLOAT)
		metrics_text_double(text, number->floating);
	else if (field->is_signed)
		metrics_text_print(text, "%lld", (long long)number->integer);
	else
		metrics_text_print(text, "%llu", (unsigned long long)number->integer);
	metrics_text_add(text, "\n", 1);
}

static void print_plain(struct metrics_text *text, const struct map_export_series *series,
			const struct map_export_family *family, const struct series *number) {
	const char *suffix = series->export->kind == MAP_EXPORT_COUNTER ? "_total" : "",
		   *labels = labels_of(series, number);

	metrics_text_print(text, *labels ? "%s%s{%s} " : "%s%s%s ", family->name, suffix, labels);
	print_number(text, family->field, number);
}

/* One histogram of those with the same labels, which lie in [first, end). Buckets of a histogram
 * hold all that is not greater. */
static void print_histogram(struct metrics_text *text, const struct map_export_series *series,
			    const struct map_export_family *family, size_t first, size_t end,
			    uint32_t last_bucket) {
	const char *labels = labels_of(series, &series->list[first]), *comma = *labels ? "," : "";
	struct series sum = {};

	for (uint32_t bucket = 0; bucket <= last_bucket + 1; bucket++) {
		if (first < end && series->list[first].bucket == bucket) {
			if (family->field->kind == FIELD_FLOAT)
				sum.floating += series->list[first].floating;
			else
				sum.integer += series->list[first].integer;
			first++;
		}
		metrics_text_print(text, "%s_bucket{%s%sle=\"", family->name, labels, comma);
		if (bucket <= last_bucket)
			metrics_text_print(text, "%llu.0\"} ",
					   bucket < 63 ? (1ULL << (bucket + 1)) - 1 : ~0ULL);
		else
			metrics_text_print(text, "+Inf\"} ");
		print_number(text, family->field, &sum);
	}
	if (!text->prometheus)
		return;
	/* a histogram there has these; what the sum is nobody knows */
	metrics_text_print(text, *labels ? "%s_sum{%s} NaN\n" : "%s_sum%s NaN\n", family->name,
			   labels);
	metrics_text_print(text, *labels ? "%s_count{%s} " : "%s_count%s ", family->name, labels);
	print_number(text, family->field, &sum);
}

/* The end of the histogram that begins there: the same family, the same labels. */
static size_t end_of_histogram(const struct map_export_series *series, size_t first) {
	size_t end = first + 1;

	while (end < series->n && series->list[end].family == series->list[first].family &&
	       compare_labels(series, &series->list[first], &series->list[end]) == 0)
		end++;
	return end;
}

/* Begins with the family at hand. */
static void print_family(struct metrics_text *text, struct map_export_series *series) {
	const struct map_export *export = series->export;

	metrics_text_family(text, export->families[series->family].name,
			    map_export_kind_name(export->kind), export->unit, export->help);
	series->begun = true;
	/* the same buckets in all histograms */
	series->last_bucket = 0;
	for (size_t i = series->at; i < series->n && series->list[i].family == series->family; i++)
		if (series->list[i].bucket > series->last_bucket)
			series->last_bucket = series->list[i].bucket;
}

bool map_export_series_print(struct map_export_series *series, struct metrics_text *text) {
	const struct map_export *export = series->export;
	const size_t start = text->n;

	if (!series->merged) {
		merge(series);
		series->merged = true;
		return false;
	}
	for (; series->family < export->n_families; series->family++, series->begun = false) {
		const struct map_export_family *family = &export->families[series->family];

		if (!series->begun)
			print_family(text, series);
		while (series->at < series->n &&
		       series->list[series->at].family == series->family) {
			size_t first = series->at;

			if (text->n - start > PART_BYTES || text->failed)
				return text->failed;
			if (export->kind == MAP_EXPORT_HISTOGRAM) {
				series->at = end_of_histogram(series, first);
				print_histogram(text, series, family, first, series->at,
						series->last_bucket);
			} else {
				print_plain(text, series, family, &series->list[series->at++]);
			}
		}
	}
	return true;
}

size_t map_export_series_count(const struct map_export_series *series, size_t *left_outp) {
	*left_outp = series->left_out;
	return series->n;
}
