/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Analyses of a trace. Each is a part: it sees every item once, makes JSON of what it found, and
 * prints text from that JSON, so that both say the same. Nothing in a part grows with the file: it
 * has histograms, tables with a bound, and what is alive (of allocations) or awaited.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"
#include "report-histogram.h"
#include "report-place.h"

#define REPORT_THREADS_MAX 4096 /* rows of anything that is told per thread, device or stream */
#define REPORT_NAMES_MAX 8192
#define REPORT_NAME_BYTES_MAX ((size_t)8 << 20)

struct report_options {
	int64_t top; /* rows of the slowest calls, and of other lists in text */
	const char *histogram; /* glob of names */
	unsigned int width; /* of the terminal */
	bool utf8;
	bool *met; /* set when something has the name of `histogram` */
	struct report_kernel_matches *matches;
};

struct report_part {
	const char *name; /* the option's, and the member's in JSON */
	size_t size;
	int (*init)(void *part, const struct report_options *options); /* of zeros; or NULL */
	void (*deinit)(void *part); /* or NULL */
	int (*item)(void *part, const struct trace_item *item, const struct report_place *place);
	json_object *(*json)(void *part); /* after the last item, once; NULL: no memory */
	void (*print)(json_object *data, const struct report_options *options);
};

extern const struct report_part report_summary, report_top, report_gaps, report_layers,
	report_leaks, report_latency, report_kernels, report_errors, report_histogram_of,
	report_timeline, report_ctxsw;

/* report-print.c: times and sizes as people read them; tables of what lies in arrays of objects */
json_object *report_text_time(int64_t nanoseconds);
json_object *report_text_size(int64_t bytes);
json_object *report_histogram_json(const struct report_histogram *histogram);
/* The members of a histogram that a table shows after others: mean, p50, p99, max. */
void report_add_times(json_object *row, json_object *histogram);
/* The powers of two of a histogram, with bars. */
json_object *report_powers_json(const struct report_histogram *histogram);
void report_print_powers(json_object *powers);
json_object *report_text(const char *text, size_t n);
/* Cells of a table (ctl_cell_fn): "12 us"; "0.000012 s"; "12.3". */
json_object *report_cell_time(json_object *object, const char *member);
json_object *report_cell_seconds(json_object *object, const char *member);
json_object *report_cell_percent(json_object *object, const char *member);
void report_add_text(json_object *object, const char *key, const char *text);
void report_add_hex(json_object *object, const char *key,
		    uint64_t number); /* of a handle: "0x1f" */
/* Sorts an array of objects, the largest number of that member first. */
void report_sort(json_object *array, const char *key);
void report_print_more(size_t n, int64_t shown, const char *what);
void report_print_text(const char *label, json_object *consume_text);
void report_print_time(const char *label, json_object *object, const char *member);

/* report-kind.c: what a call does, by its name without version */
enum report_resource {
	RESOURCE_NONE,
	RESOURCE_MEMORY, /* of the device, or managed */
	RESOURCE_HOST_MEMORY,
	RESOURCE_REGISTRATION,
	RESOURCE_HANDLE, /* cuMemCreate() */
	RESOURCE_ADDRESSES,
	RESOURCE_ARRAY,
	RESOURCE_POOL,
	RESOURCE_STREAM,
	RESOURCE_EVENT,
	RESOURCE_CONTEXT,
	RESOURCE_MODULE,
	RESOURCE_LIBRARY,
	RESOURCE_GRAPH,
	RESOURCE_GRAPH_EXEC,
};
enum report_resource report_resource_of(const char *base, bool *allocatesp);
bool report_is_memory(enum report_resource resource);
bool report_is_allocation(const char *base); /* of memory that was not there before */
bool report_is_launch(const struct trace_item *item);
bool report_is_transfer(const struct trace_item *item);
uint64_t report_duration(const struct trace_item *item);
