/* SPDX-License-Identifier: Apache-2.0 */

/* The report --kernels: what ran on the GPU, by name. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "report-rows.h"
#include "report.h"
#include "lib/json.h"

#define KERNELS_MAX 4096

struct kernels {
	struct report_rows rows; /* of struct report_histogram */
	uint64_t total;
};

static void kernels_deinit(void *part) {
	struct kernels *kernels = part;

	for (uint32_t i = 0; i < kernels->rows.n; i++)
		report_histogram_deinit(report_rows_get(&kernels->rows, i));
	report_rows_deinit(&kernels->rows);
}

static int kernels_init(void *part, const struct report_options *options) {
	report_rows_init(&((struct kernels *)part)->rows, sizeof(struct report_histogram),
			 KERNELS_MAX);
	return 0;
}

static int kernels_item(void *part, const struct trace_item *item,
			const struct report_place *place) {
	struct kernels *kernels = part;
	struct report_histogram *row;

	if (item->kind != EVENT_KERNEL || item->open)
		return 0;
	row = report_rows_of(&kernels->rows, item->name);
	if (!row)
		return -ENOMEM;
	kernels->total += report_duration(item);
	return report_histogram_add(row, report_duration(item));
}

static json_object *kernels_json(void *part) {
	struct kernels *kernels = part;
	json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < kernels->rows.n; i++) {
		const struct report_histogram *times = report_rows_get(&kernels->rows, i);
		json_object *row;

		if (!times->count)
			continue;
		row = report_histogram_json(times);
		report_add_text(row, "name", report_names_text(&kernels->rows.names, i));
		json_add(row, "percent",
			 json_object_new_double(
				 kernels->total ? times->total * 100 / (double)kernels->total : 0));
		json_append(array, row);
	}
	report_sort(array, "total_ns");
	return array;
}

static void kernels_print(json_object *data, const struct report_options *options) {
	static const struct ctl_column columns[] = {
		{ "CALLS", "count" },
		{ "TOTAL", "total_ns", report_cell_time },
		{ "%", "percent", report_cell_percent },
		{ "MEAN", "mean_ns", report_cell_time },
		{ "P50", "p50_ns", report_cell_time },
		{ "P99", "p99_ns", report_cell_time },
		{ "MIN", "min_ns", report_cell_time },
		{ "MAX", "max_ns", report_cell_time },
		{ "KERNEL", "name" },
		{},
	};
	const int64_t limit = options->top > 50 ? options->top : 50;

	puts("=== KERNELS ===\n");
	ctl_print_columns(columns, data, limit);
	report_print_more(json_object_array_length(data), limit, "kernels");
	if (!json_object_array_length(data))
		puts("The trace has no times of kernels.");
}

const struct report_part report_kernels = {
	.name = "kernels",
	.size = sizeof(struct kernels),
	.init = kernels_init,
	.deinit = kernels_deinit,
	.item = kernels_item,
	.json = kernels_json,
	.print = kernels_print,
};
