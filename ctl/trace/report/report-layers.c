/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --layers: in which layer (API, ioctl, driver) the time of calls is spent. `total` of a
 * layer is the time of its outermost spans. `own` is what is left without the spans in them, so own
 * times add up to the time of the outermost spans.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/read/report-names.h"
#include "lib/json.h"
#include "report.h"

struct layer_times {
	uint64_t count, total;
	uint64_t own; /* may be below 0 while what lies in a span that is to come was counted
			 already */
};

struct layers_row {
	struct layer_times layers[_REPORT_LAYER_N];
};

struct layers {
	struct report_names names;
	struct layers_row *rows; /* by outermost call; 0: what is in none, or beyond the bound */
	size_t n_rows;
	uint64_t late;
};

static const char *const layer_names[_REPORT_LAYER_N] = { "api", "ioctl", "rpc", "driver" };

static void layers_free(void *part) {
	struct layers *layers = part;

	if (layers) {
		report_names_deinit(&layers->names);
		free(layers->rows);
	}
	free(layers);
}

static int layers_new(void **partp, const struct report_options *options) {
	struct layers *layers = calloc(1, sizeof(*layers));

	if (!layers)
		return -ENOMEM;
	report_names_init(&layers->names, REPORT_NAMES_MAX, REPORT_NAME_BYTES_MAX);
	*partp = layers;
	return 0;
}

static struct layers_row *row_of(struct layers *layers, const char *call) {
	const uint32_t number = call ? report_names_number(&layers->names, call) : 0;
	struct layers_row *rows;
	size_t n;

	if (number >= layers->n_rows) {
		n = layers->n_rows ? layers->n_rows : 16;
		while (n <= number)
			n *= 2;
		rows = realloc(layers->rows, n * sizeof(*rows));
		if (!rows)
			return NULL;
		memset(rows + layers->n_rows, 0, (n - layers->n_rows) * sizeof(*rows));
		layers->rows = rows;
		layers->n_rows = n;
	}
	return &layers->rows[number];
}

static int layers_item(void *part, const struct trace_item *item,
		       const struct report_place *place) {
	struct layers *layers = part;
	struct layers_row *row;

	if (place->layer == REPORT_LAYER_NONE)
		return 0;
	row = row_of(layers, place->call);
	if (!row)
		return -ENOMEM;
	layers->late += place->late;
	row->layers[place->layer].count++;
	row->layers[place->layer].total += place->outermost ? place->duration : 0;
	row->layers[place->layer].own += place->duration;
	if (place->around != REPORT_LAYER_NONE)
		row->layers[place->around].own -= place->duration;
	return 0;
}

static json_object *row_json(const struct layers_row *row) {
	json_object *object = json_object_new_object();

	for (int i = 0; i < _REPORT_LAYER_N; i++) {
		json_object *layer = json_object_new_object();

		json_add_uint(layer, "count", row->layers[i].count);
		json_add_uint(layer, "total_ns", row->layers[i].total);
		json_add_int(layer, "own_ns", row->layers[i].own);
		json_add(object, layer_names[i], layer);
	}
	return object;
}

static json_object *layers_json(void *part) {
	struct layers *layers = part;
	json_object *data, *calls = json_object_new_array();
	struct layers_row all = {};

	for (uint32_t i = 0; i < layers->n_rows; i++) {
		const struct layer_times *times;
		const char *name;
		uint64_t count = 0;
		json_object *row;

		for (int j = 0; j < _REPORT_LAYER_N; j++) {
			times = &layers->rows[i].layers[j];
			count += times->count;
			all.layers[j].count += times->count;
			all.layers[j].total += times->total;
			all.layers[j].own += times->own;
		}
		if (!count)
			continue;
		row = row_json(&layers->rows[i]);
		times = layers->rows[i].layers;
		name = times[REPORT_LAYER_API].count ? "(other)" : "(no call)";
		report_add_text(row, "call", i ? report_names_text(&layers->names, i) : name);
		json_add_uint(row, "total_ns",
			      times[REPORT_LAYER_API].total ? times[REPORT_LAYER_API].total
							    : times[REPORT_LAYER_IOCTL].total);
		json_append(calls, row);
	}
	report_sort(calls, "total_ns");
	data = row_json(&all);
	json_add(data, "calls", calls);
	json_add_uint(data, "late", layers->late);
	return data;
}

static void add_share(json_object *row, int64_t part, double whole) {
	json_append(row, report_text_time(part));
	json_append(row, whole > 0 ? ctl_format("%.1f", (double)part * 100 / whole)
				   : json_object_new_string(""));
}

static void print_layers(json_object *data) {
	static const char *const header[] = { "LAYER", "COUNT", "TOTAL", "OWN", "% OF ALL", NULL };
	static const char *const labels[_REPORT_LAYER_N] = { "API calls", "ioctls", "GSP and locks",
							     "other hooks" };
	json_object *rows = json_object_new_array();
	double all = 0;

	for (int i = 0; i < _REPORT_LAYER_N; i++)
		all += (double)json_int_of(json_member(data, layer_names[i]), "own_ns");
	for (int i = 0; i < _REPORT_LAYER_N; i++) {
		json_object *layer = json_member(data, layer_names[i]),
			    *row = json_object_new_array();

		json_append_string(row, labels[i]);
		json_append(row, ctl_format("%" PRId64, json_int_of(layer, "count")));
		json_append(row, report_text_time(json_int_of(layer, "total_ns")));
		add_share(row, json_int_of(layer, "own_ns"), all);
		json_append(rows, row);
	}
	ctl_print_table(header, rows);
	json_object_put(rows);
}

static void layers_print(json_object *data, const struct report_options *options) {
	static const char *const header[] = { "CALL", "COUNT",      "TOTAL", "OWN",   "%", "IOCTL",
					      "%",    "GSP, LOCKS", "%",     "OTHER", "%", NULL };
	json_object *rows = json_object_new_array(), *calls = json_member(data, "calls");

	puts("=== TIME PER LAYER ===\n");
	print_layers(data);
	for (size_t i = 0; i < json_object_array_length(calls) && (int64_t)i < options->top; i++) {
		json_object *from = json_object_array_get_idx(calls, i),
			    *row = json_object_new_array();
		const int64_t total = json_int_of(from, "total_ns");

		json_append(row, json_object_get(json_member(from, "call")));
		json_append(row,
			    ctl_format("%" PRId64, json_int_of(json_member(from, "api"), "count")));
		json_append(row, report_text_time(total));
		for (int j = 0; j < _REPORT_LAYER_N; j++)
			add_share(row,
				  json_int_of(json_member(from, layer_names[j]),
					      j == REPORT_LAYER_API ? "own_ns" : "total_ns"),
				  total);
		json_append(rows, row);
	}
	putchar('\n');
	ctl_print_table(header, rows);
	report_print_more(json_object_array_length(calls), options->top, "calls");
	if (json_int_of(data, "late"))
		printf("\n%" PRId64 " spans came later in the file than what lies in them: that is "
		       "counted as if it lay in none.\n",
		       json_int_of(data, "late"));
	json_object_put(rows);
}

const struct report_part report_layers = {
	.name = "layers",
	.new = layers_new,
	.free = layers_free,
	.item = layers_item,
	.json = layers_json,
	.print = layers_print,
};
