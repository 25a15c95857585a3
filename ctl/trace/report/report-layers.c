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
#include "report-rows.h"
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
	struct report_rows
		rows; /* of struct layers_row, by outermost call; 0: what is in none, too */
	uint64_t late;
};

static const char *const layer_names[_REPORT_LAYER_N] = { "api", "ioctl", "rpc", "driver" };

static void layers_deinit(void *part) {
	report_rows_deinit(&((struct layers *)part)->rows);
}

static int layers_init(void *part, const struct report_options *options) {
	report_rows_init(&((struct layers *)part)->rows, sizeof(struct layers_row),
			 REPORT_NAMES_MAX);
	return 0;
}

static int layers_item(void *part, const struct trace_item *item,
		       const struct report_place *place) {
	struct layers *layers = part;
	struct layers_row *row;

	if (place->layer == REPORT_LAYER_NONE)
		return 0;
	row = place->call ? report_rows_of(&layers->rows, place->call)
			  : report_rows_get(&layers->rows, 0);
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

	for (uint32_t i = 0; i < layers->rows.n; i++) {
		const struct layers_row *from = report_rows_get(&layers->rows, i);
		const struct layer_times *times;
		const char *name;
		uint64_t count = 0;
		json_object *row;

		for (int j = 0; j < _REPORT_LAYER_N; j++) {
			times = &from->layers[j];
			count += times->count;
			all.layers[j].count += times->count;
			all.layers[j].total += times->total;
			all.layers[j].own += times->own;
		}
		if (!count)
			continue;
		row = row_json(from);
		times = from->layers;
		name = times[REPORT_LAYER_API].count ? "(other)" : "(no call)";
		report_add_text(row, "call", i ? report_names_text(&layers->rows.names, i) : name);
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
	.size = sizeof(struct layers),
	.init = layers_init,
	.deinit = layers_deinit,
	.item = layers_item,
	.json = layers_json,
	.print = layers_print,
};
