/* SPDX-License-Identifier: Apache-2.0 */

/*
 * --leaks: what was allocated and not freed when the trace, or the process, ended. An allocation
 * holds from the end of its call on, a free from the beginning of its own: so the address that one
 * thread frees and another gets at once is told apart, though the other's call began first. What
 * ends with a context or a pool, without a call that frees it, counts as not freed. A process that
 * executes another program has ended as far as its allocations go.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash-table.h"
#include "ctl/base/ctl.h"
#include "ctl/trace/base/heap.h"
#include "ctl/trace/read/report-names.h"
#include "report.h"
#include "lib/json.h"

#define LIVE_MAX ((size_t)1 << 22)
#define SHOWN_MAX 10000 /* one by one, in JSON */
#define FRAMES_MAX 24

/* What has been allocated and not freed. */
struct report_live {
	uint64_t address; /* the key: where, of which process, what */
	uint32_t pid;
	enum report_resource resource;
	uint64_t size, time; /* time: from which on it is there */
	uint32_t function, stack; /* numbers of names */
	bool ended; /* its process has */
};

struct leaks {
	struct report_names names, stacks;
	struct hash_table live; /* of struct report_live */
	struct trace_heap pending; /* of struct report_live, the earliest first: calls that are not
				      over yet */
	uint64_t allocations, frees, unknown, replaced, untold, without_address;
	uint64_t bytes, peak, last;
};

static void leaks_deinit(void *part) {
	struct leaks *leaks = part;

	report_names_deinit(&leaks->names);
	report_names_deinit(&leaks->stacks);
	hash_table_deinit(&leaks->live);
	free(leaks->pending.entries);
}

static int leaks_init(void *part, const struct report_options *options) {
	struct leaks *leaks = part;

	leaks->live.key_size = offsetof(struct report_live, size);
	leaks->live.entry_size = sizeof(struct report_live);
	report_names_init(&leaks->names, 256, REPORT_NAME_BYTES_MAX);
	report_names_init(&leaks->stacks, 65536, (size_t)32 << 20);
	return 0;
}

/* Frames of a stack, a line each. */
static uint32_t stack_number(struct leaks *leaks, const struct trace_item *item) {
	char text[4096];
	size_t n = 0;

	if (!item->n_frames)
		return 0;
	for (size_t i = 0; i < item->n_frames && i < FRAMES_MAX && n + 1 < sizeof(text); i++) {
		const int added = snprintf(text + n, sizeof(text) - n, "%s%s", i ? "\n" : "",
					   item->frames[i]);

		n = added < 0 || (size_t)added >= sizeof(text) - n ? sizeof(text) - 1
								   : n + (size_t)added;
	}
	return report_names_number(&leaks->stacks, text);
}

/* The first value that is a number, of those at the entry or at the return. */
static uint64_t address_of(const struct trace_item *item, bool out) {
	for (size_t i = 0; i < item->n_values; i++) {
		const struct trace_value *value = &item->values[i];

		if (value->out != out)
			continue;
		if (value->kind == VALUE_HEX || value->kind == VALUE_UINT ||
		    value->kind == VALUE_INT)
			return (uint64_t)value->number;
		if (!out)
			break;
	}
	return 0;
}

/* An allocation's call is over. */
static int commit(struct leaks *leaks, const struct report_live *live) {
	struct report_live *before = hash_table_find(&leaks->live, live);
	int r = 0;

	if (before) {
		/* its free was not seen: lost, or of a kind that is not known; of another process
		 * by then, if its own ended */
		leaks->replaced += !before->ended;
		leaks->bytes -=
			report_is_memory(before->resource) && !before->ended ? before->size : 0;
		*before = *live;
	} else if (leaks->live.n == LIVE_MAX) {
		leaks->untold++;
		return 0;
	} else {
		before = hash_table_add(&leaks->live, live, NULL);
		if (!before)
			return -ENOMEM;
		*before = *live;
	}
	if (report_is_memory(live->resource) && !live->ended)
		leaks->bytes += live->size;
	if (leaks->bytes > leaks->peak)
		leaks->peak = leaks->bytes;
	return r;
}

static bool ends_first(const void *a, const void *b) {
	return ((const struct report_live *)a)->time < ((const struct report_live *)b)->time;
}

/* What is there at that time. */
static int advance(struct leaks *leaks, uint64_t time) {
	struct report_live live;
	int r = 0;

	while (!r && leaks->pending.n &&
	       ((const struct report_live *)(const void *)leaks->pending.entries)->time <= time) {
		trace_heap_pop(&leaks->pending, &live, sizeof(live), ends_first);
		r = commit(leaks, &live);
	}
	return r;
}

static struct report_live *find_live(const struct leaks *leaks, uint32_t pid,
				     enum report_resource resource, uint64_t address) {
	const struct report_live key = { .address = address, .pid = pid, .resource = resource };

	return hash_table_find(&leaks->live, &key);
}

static void free_one(struct leaks *leaks, const struct trace_item *item,
		     enum report_resource resource) {
	const uint64_t address = address_of(item, false);
	struct report_live *live;

	if (!address) /* of NULL: that does nothing */
		return;
	leaks->frees++;
	live = find_live(leaks, item->pid, resource, address);
	if (!live || live->ended) {
		leaks->unknown++;
		return;
	}
	leaks->bytes -= report_is_memory(resource) ? live->size : 0;
	hash_table_remove(&leaks->live, live);
}

/* A process has ended, or executed another program. What of others is not over yet is still
 * awaited: they may free what it gets before. */
static int end_process(struct leaks *leaks, uint32_t pid, uint64_t time) {
	struct report_live *pending;
	int r = advance(leaks, time);

	pending = (void *)leaks->pending.entries;
	for (size_t i = 0; i < leaks->pending.n; i++)
		pending[i].ended = pending[i].ended || pending[i].pid == pid;
	for (size_t i = 0; i < leaks->live.n; i++) {
		struct report_live *live = hash_table_at(&leaks->live, i);

		if (live->pid != pid || live->ended)
			continue;
		live->ended = true;
		leaks->bytes -= report_is_memory(live->resource) ? live->size : 0;
	}
	return r;
}

static int leaks_item(void *part, const struct trace_item *item, const struct report_place *place) {
	struct leaks *leaks = part;
	enum report_resource resource;
	struct report_live live;
	bool allocates;
	int r;

	if (item->end > leaks->last)
		leaks->last = item->end;
	if (item->kind == EVENT_PROCESS &&
	    (!strcmp(item->name, "exit") || !strcmp(item->name, "exec")))
		return end_process(leaks, item->pid, item->start);
	/* inner calls of the driver to itself do the same once more */
	if (item->kind != EVENT_CALL || item->failed || item->open || !place->outermost)
		return 0;
	resource = report_resource_of(item->base, &allocates);
	if (resource == RESOURCE_NONE)
		return 0;
	r = advance(leaks, item->start);
	if (r)
		return r;
	if (!allocates) {
		free_one(leaks, item, resource);
		return 0;
	}
	/* of cuStreamBeginCaptureToGraph(): the graph was there before */
	if (!strcmp(item->base, "cuStreamEndCapture") &&
	    find_live(leaks, item->pid, resource, address_of(item, true)))
		return 0;
	leaks->allocations++;
	live = (struct report_live){
		.address = address_of(item, resource != RESOURCE_REGISTRATION),
		.size = item->size,
		.time = item->end,
		.pid = item->pid,
		.resource = resource,
	};
	if (!live.address) {
		leaks->without_address++;
		return 0;
	}
	live.function = report_names_number(&leaks->names, item->name);
	live.stack = stack_number(leaks, item);
	return trace_heap_push(&leaks->pending, &live, sizeof(live), ends_first);
}

/* By function, stack and whether their process ended; the oldest first. */
static int live_order(const void *a, const void *b) {
	const struct report_live *left = a, *right = b;

	if (left->function != right->function)
		return left->function < right->function ? -1 : 1;
	if (left->stack != right->stack)
		return left->stack < right->stack ? -1 : 1;
	if (left->ended != right->ended)
		return left->ended ? -1 : 1;
	if (left->time != right->time)
		return left->time < right->time ? -1 : 1;
	return (left->address > right->address) - (left->address < right->address);
}

static bool same_group(const struct report_live *a, const struct report_live *b) {
	return a->function == b->function && a->stack == b->stack && a->ended == b->ended;
}

static json_object *stack_json(const char *text) {
	json_object *array = json_object_new_array();

	while (*text) {
		const size_t n = strcspn(text, "\n");

		json_append(array, report_text(text, n));
		text += text[n] ? n + 1 : n;
	}
	return array;
}

/* The rows from the first one on that belong together; n of them. */
static json_object *group_json(struct leaks *leaks, const struct report_live *rows, size_t n) {
	json_object *group = json_object_new_object();
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += rows[i].size;
	report_add_text(group, "function", report_names_text(&leaks->names, rows->function));
	json_add_uint(group, "count", n);
	json_add_uint(group, "bytes", bytes);
	json_add_uint(group, "oldest_ns", leaks->last > rows->time ? leaks->last - rows->time : 0);
	json_add_uint(group, "newest_ns",
		      leaks->last > rows[n - 1].time ? leaks->last - rows[n - 1].time : 0);
	json_add_bool(group, "process_ended", rows->ended);
	json_add(group, "stack",
		 rows->stack ? stack_json(report_names_text(&leaks->stacks, rows->stack))
			     : json_object_new_array());
	return group;
}

static json_object *live_json(struct leaks *leaks, const struct report_live *live) {
	json_object *row = json_object_new_object();

	report_add_text(row, "function", report_names_text(&leaks->names, live->function));
	report_add_hex(row, "address", live->address);
	json_add_uint(row, "size", live->size);
	json_add_uint(row, "pid", live->pid);
	json_add_uint(row, "age_ns", leaks->last > live->time ? leaks->last - live->time : 0);
	return row;
}

static json_object *leaks_json(void *part) {
	struct leaks *leaks = part;
	struct report_live *rows;
	json_object *data = json_object_new_object(), *groups = json_object_new_array(),
		    *all = json_object_new_array();
	size_t n, last;

	if (advance(leaks, UINT64_MAX) != 0)
		report_add_text(data, "error", "out of memory");
	rows = hash_table_at(&leaks->live, 0);
	n = leaks->live.n;
	if (n)
		qsort(rows, n, sizeof(*rows), live_order);
	for (size_t i = 0; i < n; i = last) {
		for (last = i + 1; last < n && same_group(&rows[i], &rows[last]); last++)
			;
		json_append(groups, group_json(leaks, &rows[i], last - i));
	}
	report_sort(groups, "bytes");
	for (size_t i = 0; i < n && i < SHOWN_MAX; i++)
		json_append(all, live_json(leaks, &rows[i]));
	json_add(data, "groups", groups);
	json_add(data, "live", all);
	json_add_uint(data, "n_live", n);
	json_add_uint(data, "allocations", leaks->allocations);
	json_add_uint(data, "frees", leaks->frees);
	json_add_uint(data, "unknown_frees", leaks->unknown);
	json_add_uint(data, "replaced", leaks->replaced);
	json_add_uint(data, "without_address", leaks->without_address);
	json_add_uint(data, "untold", leaks->untold);
	json_add_uint(data, "peak_bytes", leaks->peak);
	return data;
}

static void print_group(json_object *group) {
	json_object *stack = json_member(group, "stack");

	printf("%" PRId64 " by ", json_int_of(group, "count"));
	ctl_print_text(ctl_string(group, "function"));
	report_print_text(": ", report_text_size(json_int_of(group, "bytes")));
	report_print_time(", the oldest for ", group, "oldest_ns");
	puts(json_object_get_boolean(json_member(group, "process_ended"))
		     ? ", until the process ended"
		     : "");
	for (size_t i = 0; i < json_object_array_length(stack); i++) {
		fputs("    ", stdout);
		ctl_print_text(json_object_get_string(json_object_array_get_idx(stack, i)));
		putchar('\n');
	}
}

static void leaks_print(json_object *data, const struct report_options *options) {
	static const struct {
		const char *key, *text;
	} notes[] = {
		{ "unknown_frees", "frees of what the trace did not see allocated" },
		{ "replaced",
		  "addresses were allocated again, but their free is not in the trace" },
		{ "without_address", "allocations without their address in the trace" },
		{ "untold", "allocations beyond what is remembered at once" },
	};
	json_object *groups = json_member(data, "groups");

	puts("=== NOT FREED ===\n");
	for (size_t i = 0; i < json_object_array_length(groups) && (int64_t)i < options->top; i++)
		print_group(json_object_array_get_idx(groups, i));
	report_print_more(json_object_array_length(groups), options->top, "places");
	if (!json_object_array_length(groups))
		puts("Nothing.");
	printf("\n%" PRId64 " allocations, %" PRId64 " frees, %" PRId64 " not freed",
	       json_int_of(data, "allocations"), json_int_of(data, "frees"),
	       json_int_of(data, "n_live"));
	report_print_text("; at most ", report_text_size(json_int_of(data, "peak_bytes")));
	puts(" at once");
	for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++)
		if (json_int_of(data, notes[i].key))
			printf("%" PRId64 " %s\n", json_int_of(data, notes[i].key), notes[i].text);
}

const struct report_part report_leaks = {
	.name = "leaks",
	.size = sizeof(struct leaks),
	.init = leaks_init,
	.deinit = leaks_deinit,
	.item = leaks_item,
	.json = leaks_json,
	.print = leaks_print,
};
