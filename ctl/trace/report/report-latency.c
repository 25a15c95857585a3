/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --latency: from the beginning of a launch to the beginning of what it put on the GPU.
 * A launch and its kernels have the same flow, or the kernel has the launch as its parent. Either
 * may come first if clocks disagree, so a bounded number of each waits for the other.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/base/track.h"
#include "ctl/base/ctl.h"
#include "ctl/trace/read/report-names.h"
#include "report.h"
#include "lib/json.h"

#define WAITING 65536 /* a power of two */
#define WAYS 4
/*
 * The event from which a kernel's time is taken lies before the call of its launch if its stream
 * had nothing to do (shim/trace/trace-gpu.c); traces say then that it began with its launch. When
 * it did is not known.
 */
#define EVENT_LEAD 20000 /* nanoseconds, at most */

/* Where an item waits: of four places that its number can have, the oldest is given up. */
struct waiting {
	uint64_t key, start, order;
	uint32_t error;
};

struct latency {
	struct report_histogram histogram;
	uint64_t unknown, early, worst, unmatched, order;
	struct waiting launches[WAITING], kernels[WAITING];
};

static void latency_deinit(void *part) {
	report_histogram_deinit(&((struct latency *)part)->histogram);
}

static struct waiting *find(struct waiting *table, uint64_t key) {
	struct waiting *set =
		table + (trace_hash(0, &key, sizeof(key)) & (WAITING / WAYS - 1)) * WAYS;

	for (unsigned int i = 0; i < WAYS; i++)
		if (set[i].key == key)
			return &set[i];
	return NULL;
}

static void put(struct latency *latency, struct waiting *table, uint64_t key,
		const struct trace_item *item) {
	struct waiting *set = table +
			      (trace_hash(0, &key, sizeof(key)) & (WAITING / WAYS - 1)) * WAYS,
		       *oldest = set;

	for (unsigned int i = 1; i < WAYS; i++)
		if (set[i].order < oldest->order)
			oldest = &set[i];
	*oldest = (struct waiting){
		.key = key, .start = item->start, .order = ++latency->order, .error = item->error
	};
}

/* Counts a pair. */
static int pair(struct latency *latency, uint64_t launch, uint64_t kernel, uint32_t error) {
	if (kernel > launch)
		return report_histogram_add(&latency->histogram, kernel - launch);
	if (launch - kernel <= (uint64_t)error + EVENT_LEAD) {
		latency->unknown++;
		return 0;
	}
	latency->early++;
	if (launch - kernel > latency->worst)
		latency->worst = launch - kernel;
	return 0;
}

/* Flows and ids of items are different numbers: the lowest bit says which it is. */
static int latency_item(void *part, const struct trace_item *item,
			const struct report_place *place) {
	struct latency *latency = part;
	const uint64_t flow = item->flow ? item->flow << 1 | 1 : 0;
	struct waiting *other;
	int r = 0;

	if (item->kind == EVENT_KERNEL) {
		other = find(latency->launches, flow ? flow : item->parent << 1);
		if (other && other->key)
			return pair(latency, other->start, item->start, item->error);
		latency->unmatched++;
		if (flow || item->parent)
			put(latency, latency->kernels, flow ? flow : item->parent << 1, item);
		return 0;
	}
	if (item->kind != EVENT_CALL || (!flow && !report_is_launch(item)))
		return 0;
	other = find(latency->kernels, flow ? flow : item->id << 1);
	if (other && other->key) {
		other->key = 0;
		latency->unmatched--;
		r = pair(latency, item->start, other->start, other->error);
	}
	put(latency, latency->launches, flow ? flow : item->id << 1, item);
	return r;
}

static json_object *latency_json(void *part) {
	struct latency *latency = part;
	json_object *data = report_histogram_json(&latency->histogram);

	json_add_uint(data, "started_before_launch", latency->early);
	json_add_uint(data, "unknown", latency->unknown);
	json_add_uint(data, "worst_ns", latency->worst);
	json_add_uint(data, "unmatched", latency->unmatched);
	json_add(data, "powers", report_powers_json(&latency->histogram));
	return data;
}

static void latency_print(json_object *data, const struct report_options *options) {
	static const struct ctl_column columns[] = {
		{ "LAUNCHES", "count" },
		{ "MEAN", "mean_ns", report_cell_time },
		{ "P50", "p50_ns", report_cell_time },
		{ "P99", "p99_ns", report_cell_time },
		{ "MAX", "max_ns", report_cell_time },
		{},
	};
	json_object *rows = json_object_new_array();
	const int64_t early = json_int_of(data, "started_before_launch"),
		      unknown = json_int_of(data, "unknown");

	puts("=== LAUNCH TO START ===\n");
	json_append(rows, json_object_get(data));
	if (json_int_of(data, "count"))
		ctl_print_columns(columns, rows, 1);
	else if (!early && !unknown)
		puts("The trace has no kernel with its launch.");
	json_object_put(rows);
	report_print_powers(json_member(data, "powers"));
	if (unknown)
		printf("\n%" PRId64 " began with their launch, as far as can be told: their stream "
		       "had nothing to do.\n",
		       unknown);
	if (early) {
		printf("\nNOT POSSIBLE: %" PRId64 " started before their launch, ", early);
		report_print_time("by up to ", data, "worst_ns");
		putchar('\n');
	}
	if (json_int_of(data, "unmatched"))
		printf("Without their launch: %" PRId64 "\n", json_int_of(data, "unmatched"));
}

const struct report_part report_latency = {
	.name = "latency",
	.size = sizeof(struct latency),
	.deinit = latency_deinit,
	.item = latency_item,
	.json = latency_json,
	.print = latency_print,
};
