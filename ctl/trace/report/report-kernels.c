/* SPDX-License-Identifier: Apache-2.0 */

/* The report --kernels: what ran on the GPU, by name. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/read/report-names.h"
#include "report.h"
#include "lib/json.h"

#define KERNELS_MAX 4096

struct kernels {
	struct report_names names;
	struct report_histogram *rows; /* by the number of the name; 0: all others */
	size_t n_rows;
	uint64_t total;
};

static void kernels_free(void *part) {
	struct kernels *kernels = part;

	for (size_t i = 0; kernels && i < kernels->n_rows; i++)
		report_histogram_deinit(&kernels->rows[i]);
	if (kernels) {
		report_names_deinit(&kernels->names);
		free(kernels->rows);
	}
	free(kernels);
}

static int kernels_new(void **partp, const struct report_options *options) {
	struct kernels *kernels = calloc(1, sizeof(*kernels));

	if (!kernels)
		return -ENOMEM;
	report_names_init(&kernels->names, KERNELS_MAX, REPORT_NAME_BYTES_MAX);
	*partp = kernels;
	return 0;
}

static int kernels_item(void *part, const struct trace_item *item,
			const struct report_place *place) {
	struct kernels *kernels = part;
	struct report_histogram *rows;
	uint32_t number;
	size_t n;

	if (item->kind != EVENT_KERNEL || item->open)
		return 0;
	number = report_names_number(&kernels->names, item->name);
	if (number >= kernels->n_rows) {
		n = kernels->n_rows ? kernels->n_rows : 16;
		while (n <= number)
			n *= 2;
		rows = realloc(kernels->rows, n * sizeof(*rows));
		if (!rows)
			return -ENOMEM;
		memset(rows + kernels->n_rows, 0, (n - kernels->n_rows) * sizeof(*rows));
		kernels->rows = rows;
		kernels->n_rows = n;
	}
	kernels->total += report_duration(item);
	return report_histogram_add(&kernels->rows[number], report_duration(item));
}

static json_object *kernels_json(void *part) {
	struct kernels *kernels = part;
	json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < kernels->n_rows; i++) {
		json_object *row;

		if (!kernels->rows[i].count)
			continue;
		row = report_histogram_json(&kernels->rows[i]);
		report_add_text(row, "name", report_names_text(&kernels->names, i));
		json_add(row, "percent",
			 json_object_new_double(kernels->total ? kernels->rows[i].total * 100 /
									 (double)kernels->total
							       : 0));
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
	.new = kernels_new,
	.free = kernels_free,
	.item = kernels_item,
	.json = kernels_json,
	.print = kernels_print,
};
