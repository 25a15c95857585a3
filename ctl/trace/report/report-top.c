/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --top: the slowest calls, ioctls and hooks. Kernels on the GPU have a report of their
 * own (--kernels).
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/base/heap.h"
#include "ctl/trace/read/report-names.h"
#include "lib/json.h"
#include "report.h"

struct slow {
	uint64_t duration, start, id;
	uint32_t pid, tid;
	uint32_t name, result; /* numbers of names; 0 of result: none */
	enum trace_item_kind kind;
	bool open;
};

struct top {
	struct report_names names;
	size_t max;
	struct trace_heap heap; /* of struct slow, the fastest of them first */
};

static void top_deinit(void *part) {
	struct top *top = part;

	report_names_deinit(&top->names);
	free(top->heap.entries);
}

static int top_init(void *part, const struct report_options *options) {
	struct top *top = part;

	report_names_init(&top->names, REPORT_NAMES_MAX, REPORT_NAME_BYTES_MAX);
	top->max = (size_t)options->top;
	return 0;
}

/* Of equal ones the earlier is slower, so that the result does not depend on chance. */
static bool is_faster(const void *a, const void *b) {
	const struct slow *x = a, *y = b;

	return x->duration != y->duration ? x->duration < y->duration : x->start > y->start;
}

static int top_item(void *part, const struct trace_item *item, const struct report_place *place) {
	struct top *top = part;
	struct slow slow = {
		.duration = report_duration(item),
		.start = item->start,
		.id = item->id,
		.pid = item->pid,
		.tid = item->tid,
		.kind = item->kind,
		.open = item->open,
	};

	if (place->layer == REPORT_LAYER_NONE || item->instant ||
	    (top->heap.n == top->max && !is_faster(top->heap.entries, &slow)))
		return 0;
	slow.name = report_names_number(&top->names, item->name);
	slow.result = item->result_name ? report_names_number(&top->names, item->result_name) : 0;
	if (top->heap.n < top->max)
		return trace_heap_push(&top->heap, &slow, sizeof(slow), is_faster);
	trace_heap_replace(&top->heap, &slow, sizeof(slow), is_faster);
	return 0;
}

static int slow_order(const void *a, const void *b) {
	return is_faster(b, a) ? -1 : is_faster(a, b);
}

static json_object *top_json(void *part) {
	struct top *top = part;
	const struct slow *slow = (const void *)top->heap.entries;
	json_object *array = json_object_new_array();

	if (top->heap.n)
		qsort(top->heap.entries, top->heap.n, sizeof(*slow), slow_order);
	for (size_t i = 0; i < top->heap.n; i++, slow++) {
		json_object *row = json_object_new_object();

		report_add_text(row, "type", trace_kind_name(slow->kind));
		report_add_text(row, "name", report_names_text(&top->names, slow->name));
		json_add(row, "duration_us", json_object_new_double((double)slow->duration / 1e3));
		json_add_uint(row, "duration_ns", slow->duration);
		json_add_uint(row, "ts_ns", slow->start);
		json_add_uint(row, "event_id", slow->id);
		json_add_uint(row, "pid", slow->pid);
		json_add_uint(row, "tid", slow->tid);
		if (slow->result)
			report_add_text(row, "ret_name",
					report_names_text(&top->names, slow->result));
		if (slow->open)
			json_add_bool(row, "open", true);
		json_append(array, row);
	}
	return array;
}

static json_object *result_text(json_object *call, const char *key) {
	return json_member(call, "open") ? json_object_new_string("(running)")
					 : ctl_cell(call, key);
}

static void top_print(json_object *data, const struct report_options *options) {
	static const struct ctl_column columns[] = {
		{ "DURATION", "duration_ns", report_cell_time },
		{ "TYPE", "type" },
		{ "NAME", "name" },
		{ "AT", "ts_ns", report_cell_seconds },
		{ "PID", "pid" },
		{ "TID", "tid" },
		{ "RESULT", "ret_name", result_text },
		{},
	};

	printf("=== SLOWEST CALLS ===\n\n");
	ctl_print_columns(columns, data, INT64_MAX);
	if (!json_object_array_length(data))
		puts("The trace has no calls that take time.");
}

const struct report_part report_top = { .name = "top",
					.size = sizeof(struct top),
					.init = top_init,
					.deinit = top_deinit,
					.item = top_item,
					.json = top_json,
					.print = top_print };
