/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --gaps: how long a thread waits between launches, and how long a GPU has nothing to
 * do. These differ: launches are asynchronous, so a GPU may be busy while no thread launches. The
 * seeds' "idle time" was from the beginning of one launch to that of the next: `between` here.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash-table.h"
#include "ctl/base/ctl.h"
#include "report-busy.h"
#include "report.h"
#include "lib/json.h"

struct gaps_thread {
	uint32_t pid, tid; /* the key */
	char name[16];
	uint64_t last_start, last_end;
	struct report_histogram between, idle; /* from start to start; from end to start */
};

struct gaps {
	struct report_devices devices;
	struct hash_table threads;
	uint64_t untold; /* launches of threads beyond the bound */
};

static void gaps_deinit(void *part) {
	struct gaps *gaps = part;

	for (size_t i = 0; i < gaps->threads.n; i++) {
		struct gaps_thread *thread = hash_table_at(&gaps->threads, i);

		report_histogram_deinit(&thread->between);
		report_histogram_deinit(&thread->idle);
	}
	hash_table_deinit(&gaps->threads);
	report_devices_deinit(&gaps->devices);
}

static int gaps_init(void *part, const struct report_options *options) {
	struct gaps *gaps = part;

	gaps->threads.key_size = offsetof(struct gaps_thread, name);
	gaps->threads.entry_size = sizeof(struct gaps_thread);
	return hash_table_reserve(&gaps->threads, REPORT_THREADS_MAX) ? 0 : -ENOMEM;
}

static struct gaps_thread *thread_of(struct gaps *gaps, const struct trace_item *item) {
	const uint32_t ids[] = { item->pid, item->tid };
	struct gaps_thread *thread = hash_table_find(&gaps->threads, ids);

	if (thread || gaps->threads.n == REPORT_THREADS_MAX)
		return thread;
	thread = hash_table_add(&gaps->threads, ids, NULL);
	snprintf(thread->name, sizeof(thread->name), "%s",
		 *item->thread ? item->thread : item->process->comm);
	return thread;
}

static int count_launch(struct gaps *gaps, const struct trace_item *item) {
	struct gaps_thread *thread = thread_of(gaps, item);
	int r = 0;

	if (!thread) {
		gaps->untold++;
		return 0;
	}
	if (thread->last_end && item->start >= thread->last_start) {
		r = report_histogram_add(&thread->between, item->start - thread->last_start);
		if (!r)
			r = report_histogram_add(&thread->idle,
						 item->start > thread->last_end
							 ? item->start - thread->last_end
							 : 0);
	}
	if (item->start >= thread->last_start) {
		thread->last_start = item->start;
		thread->last_end = item->end > 1 ? item->end : 1;
	}
	return r;
}

static int gaps_item(void *part, const struct trace_item *item, const struct report_place *place) {
	if (item->kind == EVENT_KERNEL)
		return report_devices_add(&((struct gaps *)part)->devices, item->pid, item->device,
					  item->start, item->end);
	if (report_is_launch(item) && place->outermost)
		return count_launch(part, item);
	return 0;
}

static json_object *thread_json(const struct gaps_thread *thread) {
	json_object *row = json_object_new_object();

	json_add_uint(row, "pid", thread->pid);
	json_add_uint(row, "tid", thread->tid);
	report_add_text(row, "thread", thread->name);
	json_add_uint(row, "launches", thread->idle.count + 1);
	json_add(row, "between", report_histogram_json(&thread->between));
	json_add(row, "idle", report_histogram_json(&thread->idle));
	return row;
}

static json_object *device_json(struct report_device *device) {
	struct report_busy *busy = &device->busy;
	json_object *row = json_object_new_object(), *longest = json_object_new_array();
	uint64_t span;

	if (report_busy_finish(busy) != 0)
		report_add_text(row, "error", "out of memory");
	span = busy->last - busy->first;
	json_add_uint(row, "pid", device->pid);
	json_add_uint(row, "device", device->device);
	json_add_uint(row, "kernels", device->count);
	json_add_uint(row, "first_ns", busy->first);
	json_add_uint(row, "last_ns", busy->last);
	json_add_uint(row, "busy_ns", busy->busy);
	json_add_uint(row, "idle_ns", span - busy->busy);
	json_add(row, "idle_percent",
		 json_object_new_double(span ? (double)(span - busy->busy) * 100 / (double)span
					     : 0));
	json_add_uint(row, "late", busy->late);
	json_add(row, "gaps", report_histogram_json(&busy->gaps));
	for (unsigned int i = 0; i < REPORT_BUSY_LONGEST && busy->longest[i].duration; i++) {
		json_object *gap = json_object_new_object();

		json_add_uint(gap, "ts_ns", busy->longest[i].start);
		json_add_uint(gap, "duration_ns", busy->longest[i].duration);
		json_append(longest, gap);
	}
	json_add(row, "longest", longest);
	return row;
}

static json_object *gaps_json(void *part) {
	struct gaps *gaps = part;
	json_object *data = json_object_new_object(), *threads = json_object_new_array(),
		    *devices = json_object_new_array();

	for (size_t i = 0; i < gaps->threads.n; i++)
		json_append(threads, thread_json(hash_table_at(&gaps->threads, i)));
	report_sort(threads, "launches");
	for (size_t i = 0; i < gaps->devices.n; i++)
		json_append(devices, device_json(gaps->devices.list[i]));
	json_add(data, "threads", threads);
	json_add(data, "devices", devices);
	json_add_uint(data, "untold", gaps->untold + gaps->devices.untold);
	return data;
}

static void print_threads(json_object *threads, int64_t limit) {
	static const struct ctl_column columns[] = {
		{ "PID", "pid" },
		{ "TID", "tid" },
		{ "THREAD", "thread" },
		{ "LAUNCHES", "launches" },
		{ "BETWEEN: MEAN", "between.mean_ns", report_cell_time },
		{ "IDLE: TOTAL", "idle.total_ns", report_cell_time },
		{ "MEAN", "idle.mean_ns", report_cell_time },
		{ "P50", "idle.p50_ns", report_cell_time },
		{ "P99", "idle.p99_ns", report_cell_time },
		{ "MAX", "idle.max_ns", report_cell_time },
		{},
	};

	puts("=== GAPS BETWEEN LAUNCHES, PER THREAD ===\n");
	ctl_print_columns(columns, threads, limit);
	report_print_more(json_object_array_length(threads), limit, "threads");
	if (!json_object_array_length(threads))
		puts("The trace has no launches.");
}

static void print_device(json_object *device) {
	json_object *longest = json_member(device, "longest"), *gaps = json_member(device, "gaps");

	printf("\nGPU %" PRId64 " of process %" PRId64 ": %" PRId64 " kernels\n",
	       json_int_of(device, "device"), json_int_of(device, "pid"),
	       json_int_of(device, "kernels"));
	report_print_time("  busy ", device, "busy_ns");
	report_print_time(", idle ", device, "idle_ns");
	printf(" (%.1f%%) in %" PRId64 " gaps",
	       json_object_get_double(json_member(device, "idle_percent")),
	       json_int_of(gaps, "count"));
	if (json_int_of(gaps, "count")) {
		report_print_time(": mean ", gaps, "mean_ns");
		report_print_time(", p50 ", gaps, "p50_ns");
		report_print_time(", p99 ", gaps, "p99_ns");
		report_print_time(", max ", gaps, "max_ns");
	}
	putchar('\n');
	for (size_t i = 0; i < json_object_array_length(longest); i++) {
		json_object *gap = json_object_array_get_idx(longest, i);

		printf("  %s%.6f s: ", i ? "           " : "longest at ",
		       (double)json_int_of(gap, "ts_ns") / 1e9);
		report_print_time("", gap, "duration_ns");
		putchar('\n');
	}
	if (json_int_of(device, "late"))
		printf("  %" PRId64 " kernels came too late in the file to be counted in full\n",
		       json_int_of(device, "late"));
}

static void gaps_print(json_object *data, const struct report_options *options) {
	json_object *devices = json_member(data, "devices");

	print_threads(json_member(data, "threads"), options->top);
	puts("\n=== IDLE TIME OF GPUS ===");
	for (size_t i = 0; i < json_object_array_length(devices); i++)
		print_device(json_object_array_get_idx(devices, i));
	if (!json_object_array_length(devices))
		puts("\nThe trace has no times of kernels: how long a GPU was idle is not known.");
	if (json_int_of(data, "untold"))
		printf("\n%" PRId64 " launches and kernels are of threads and devices beyond what "
		       "is told apart.\n",
		       json_int_of(data, "untold"));
}

const struct report_part report_gaps = { .name = "gaps",
					 .size = sizeof(struct gaps),
					 .init = gaps_init,
					 .deinit = gaps_deinit,
					 .item = gaps_item,
					 .json = gaps_json,
					 .print = gaps_print };
