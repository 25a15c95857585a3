/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --histogram NAME: how long the calls, kernels and other items took that match a glob.
 */

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "report-filter.h"
#include "report.h"
#include "lib/json.h"

struct duration {
	const struct report_options *options;
	const char *pattern;
	struct report_histogram histogram;
};

static void duration_deinit(void *part) {
	report_histogram_deinit(&((struct duration *)part)->histogram);
}

static int duration_init(void *part, const struct report_options *options) {
	struct duration *duration = part;

	duration->options = options;
	duration->pattern = options->histogram;
	return 0;
}

static int duration_item(void *part, const struct trace_item *item,
			 const struct report_place *place) {
	struct duration *duration = part;

	if (item->instant || (place->layer == REPORT_LAYER_NONE && item->kind != EVENT_KERNEL))
		return 0;
	if (strcmp(duration->pattern, item->name) != 0 &&
	    fnmatch(duration->pattern, item->name, 0) != 0 &&
	    fnmatch(duration->pattern, item->base, 0) != 0 &&
	    !(item->kind == EVENT_KERNEL && item->kernel &&
	      report_kernel_matches(duration->options->matches, duration->pattern, item->kernel)))
		return 0;
	*duration->options->met = true;
	return report_histogram_add(&duration->histogram, report_duration(item));
}

static json_object *duration_json(void *part) {
	struct duration *duration = part;
	json_object *data = report_histogram_json(&duration->histogram);

	report_add_text(data, "name", duration->pattern);
	json_add(data, "powers", report_powers_json(&duration->histogram));
	return data;
}

static void duration_print(json_object *data, const struct report_options *options) {
	static const struct ctl_column columns[] = {
		{ "COUNT", "count" },
		{ "TOTAL", "total_ns", report_cell_time },
		{ "MEAN", "mean_ns", report_cell_time },
		{ "P50", "p50_ns", report_cell_time },
		{ "P99", "p99_ns", report_cell_time },
		{ "MAX", "max_ns", report_cell_time },
		{},
	};
	json_object *rows = json_object_new_array();

	fputs("=== DURATION OF ", stdout);
	ctl_print_text(ctl_string(data, "name"));
	puts(" ===\n");
	if (!json_int_of(data, "count"))
		puts("The trace has nothing of that name that takes time.");
	json_append(rows, json_object_get(data));
	if (json_int_of(data, "count"))
		ctl_print_columns(columns, rows, 1);
	json_object_put(rows);
	report_print_powers(json_member(data, "powers"));
}

const struct report_part report_histogram_of = {
	.name = "histogram",
	.size = sizeof(struct duration),
	.init = duration_init,
	.deinit = duration_deinit,
	.item = duration_item,
	.json = duration_json,
	.print = duration_print,
};
