/* SPDX-License-Identifier: Apache-2.0 */

/* The report --errors: what failed, what is impossible, and what was lost. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "report-rows.h"
#include "report.h"
#include "lib/json.h"

#define ERRORS_MAX 4096
#define VIOLATIONS_MAX 100 /* that are shown one by one */

struct error_row {
	uint64_t count, first, last;
};

struct violation {
	uint64_t id, start;
	uint32_t name, text;
};

struct errors {
	struct report_rows
		rows; /* of struct error_row, by type, name and result, with tabs between */
	struct report_names texts;
	size_t n_violations;
	uint64_t violations, lost, xids;
	struct violation shown[VIOLATIONS_MAX];
};

static void errors_deinit(void *part) {
	struct errors *errors = part;

	report_rows_deinit(&errors->rows);
	report_names_deinit(&errors->texts);
}

static int errors_init(void *part, const struct report_options *options) {
	struct errors *errors = part;

	report_rows_init(&errors->rows, sizeof(struct error_row), ERRORS_MAX);
	report_names_init(&errors->texts, REPORT_NAMES_MAX, REPORT_NAME_BYTES_MAX);
	return 0;
}

static int count_error(struct errors *errors, const struct trace_item *item, const char *result) {
	struct error_row *row;
	char text[512];

	snprintf(text, sizeof(text), "%s\t%s\t%s", trace_kind_name(item->kind), item->name, result);
	row = report_rows_of(&errors->rows, text);
	if (!row)
		return -ENOMEM;
	if (!row->count || item->start < row->first)
		row->first = item->start;
	if (item->start > row->last)
		row->last = item->start;
	row->count++;
	return 0;
}

static int errors_item(void *part, const struct trace_item *item,
		       const struct report_place *place) {
	struct errors *errors = part;
	char number[32];
	int r = 0;

	if (item->failed) {
		snprintf(number, sizeof(number), "%" PRId64, item->result);
		r = count_error(errors, item, item->result_name ?: number);
	}
	if (item->kind == EVENT_HOOK && !strcmp(item->class, "xid")) {
		errors->xids++;
		r = r ?: count_error(errors, item, "Xid");
	}
	if (item->kind == EVENT_LOST)
		errors->lost += item->count;
	if (!item->violation)
		return r;
	errors->violations++;
	if (errors->n_violations < VIOLATIONS_MAX)
		errors->shown[errors->n_violations++] = (struct violation){
			.id = item->id,
			.start = item->start,
			.name = report_names_number(&errors->texts, item->name),
			.text = report_names_number(&errors->texts, item->violation),
		};
	return r;
}

/* One of the three parts of a text, which tabs divide. */
static void add_part(json_object *object, const char *key, const char **textp) {
	const size_t n = strcspn(*textp, "\t");

	json_add(object, key, report_text(*textp, n));
	*textp += (*textp)[n] ? n + 1 : n;
}

static json_object *errors_json(void *part) {
	struct errors *errors = part;
	json_object *data = json_object_new_object(), *failed = json_object_new_array(),
		    *violations = json_object_new_array();

	for (uint32_t i = 0; i < errors->rows.n; i++) {
		const struct error_row *from = report_rows_get(&errors->rows, i);
		const char *text = report_names_text(&errors->rows.names, i);
		json_object *row;

		if (!from->count)
			continue;
		row = json_object_new_object();
		add_part(row, "type", &text);
		add_part(row, "name", &text);
		add_part(row, "result", &text);
		json_add_uint(row, "count", from->count);
		json_add_uint(row, "first_ns", from->first);
		json_add_uint(row, "last_ns", from->last);
		json_append(failed, row);
	}
	report_sort(failed, "count");
	for (size_t i = 0; i < errors->n_violations; i++) {
		const struct violation *violation = &errors->shown[i];
		json_object *row = json_object_new_object();

		json_add_uint(row, "event_id", violation->id);
		json_add_uint(row, "ts_ns", violation->start);
		report_add_text(row, "name", report_names_text(&errors->texts, violation->name));
		report_add_text(row, "violation",
				report_names_text(&errors->texts, violation->text));
		json_append(violations, row);
	}
	json_add(data, "failed", failed);
	json_add(data, "violations", violations);
	json_add_uint(data, "n_violations", errors->violations);
	json_add_uint(data, "xids", errors->xids);
	json_add_uint(data, "lost", errors->lost);
	return data;
}

static void errors_print(json_object *data, const struct report_options *options) {
	static const struct ctl_column columns[] = {
		{ "COUNT", "count" },
		{ "TYPE", "type" },
		{ "NAME", "name" },
		{ "RESULT", "result" },
		{ "FIRST", "first_ns", report_cell_seconds },
		{ "LAST", "last_ns", report_cell_seconds },
		{},
	};
	json_object *failed = json_member(data, "failed"),
		    *violations = json_member(data, "violations");
	const int64_t limit = options->top > 50 ? options->top : 50,
		      n = json_int_of(data, "n_violations");

	puts("=== ERRORS ===\n");
	ctl_print_columns(columns, failed, limit);
	report_print_more(json_object_array_length(failed), limit, "kinds of errors");
	if (!json_object_array_length(failed))
		puts("Nothing failed.");
	if (n)
		printf("\nTimes that are not possible: %" PRId64 "\n", n);
	for (size_t i = 0; i < json_object_array_length(violations) && (int64_t)i < options->top;
	     i++) {
		json_object *row = json_object_array_get_idx(violations, i);

		printf("  %.6f s  #%" PRId64 " ", (double)json_int_of(row, "ts_ns") / 1e9,
		       json_int_of(row, "event_id"));
		ctl_print_text(ctl_string(row, "name"));
		fputs(": ", stdout);
		ctl_print_text(ctl_string(row, "violation"));
		putchar('\n');
	}
	if (json_int_of(data, "lost"))
		printf("\nLost events: %" PRId64 "\n", json_int_of(data, "lost"));
}

const struct report_part report_errors = {
	.name = "errors",
	.size = sizeof(struct errors),
	.init = errors_init,
	.deinit = errors_deinit,
	.item = errors_item,
	.json = errors_json,
	.print = errors_print,
};
