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
#include "ctl/trace/read/report-names.h"
#include "report.h"

#define DEVICES_MAX 64

struct gaps_thread {
	uint32_t pid, tid; /* the key */
	char name[16];
	uint64_t last_start, last_end;
	struct report_histogram between, idle; /* from start to start; from end to start */
};

struct gaps_device {
	uint32_t pid, device;
	uint64_t kernels;
	struct report_busy busy;
};

struct gaps {
	size_t n_devices;
	uint64_t untold; /* launches and kernels of threads and devices beyond the bound */
	struct hash_table threads;
	struct gaps_device *devices[DEVICES_MAX];
};

static void gaps_free(void *part) {
	struct gaps *gaps = part;

	for (size_t i = 0; gaps && i < gaps->threads.n; i++) {
		struct gaps_thread *thread = hash_table_at(&gaps->threads, i);

		report_histogram_deinit(&thread->between);
		report_histogram_deinit(&thread->idle);
	}
	if (gaps)
		hash_table_deinit(&gaps->threads);
	for (size_t i = 0; gaps && i < gaps->n_devices; i++) {
		report_histogram_deinit(&gaps->devices[i]->busy.gaps);
		free(gaps->devices[i]);
	}
	free(gaps);
}

static int gaps_new(void **partp, const struct report_options *options) {
	struct gaps *gaps = *partp = calloc(1, sizeof(*gaps));

	if (!gaps)
		return -ENOMEM;
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

static int count_kernel(struct gaps *gaps, const struct trace_item *item) {
	struct gaps_device *device = NULL;

	for (size_t i = 0; i < gaps->n_devices && !device; i++)
		if (gaps->devices[i]->pid == item->pid && gaps->devices[i]->device == item->device)
			device = gaps->devices[i];
	if (!device && gaps->n_devices == DEVICES_MAX) {
		gaps->untold++;
		return 0;
	}
	if (!device) {
		device = calloc(1, sizeof(*device));
		if (!device)
			return -ENOMEM;
		device->pid = item->pid;
		device->device = item->device;
		gaps->devices[gaps->n_devices++] = device;
	}
	device->kernels++;
	return report_busy_add(&device->busy, item->start, item->end);
}

static int gaps_item(void *part, const struct trace_item *item, const struct report_place *place) {
	if (item->kind == EVENT_KERNEL)
		return count_kernel(part, item);
	if (report_is_launch(item) && place->outermost)
		return count_launch(part, item);
	return 0;
}

static json_object *thread_json(const struct gaps_thread *thread) {
	json_object *row = json_object_new_object();

	report_add_number(row, "pid", thread->pid);
	report_add_number(row, "tid", thread->tid);
	report_add_text(row, "thread", thread->name);
	report_add_number(row, "launches", thread->idle.count + 1);
	json_object_object_add(row, "between", report_histogram_json(&thread->between));
	json_object_object_add(row, "idle", report_histogram_json(&thread->idle));
	return row;
}

static json_object *device_json(struct gaps_device *device) {
	struct report_busy *busy = &device->busy;
	json_object *row = json_object_new_object(), *longest = json_object_new_array();
	uint64_t span;

	if (report_busy_finish(busy) != 0)
		report_add_text(row, "error", "out of memory");
	span = busy->last - busy->first;
	report_add_number(row, "pid", device->pid);
	report_add_number(row, "device", device->device);
	report_add_number(row, "kernels", device->kernels);
	report_add_number(row, "first_ns", busy->first);
	report_add_number(row, "last_ns", busy->last);
	report_add_number(row, "busy_ns", busy->busy);
	report_add_number(row, "idle_ns", span - busy->busy);
	json_object_object_add(
		row, "idle_percent",
		json_object_new_double(span ? (double)(span - busy->busy) * 100 / (double)span
					    : 0));
	report_add_number(row, "late", busy->late);
	json_object_object_add(row, "gaps", report_histogram_json(&busy->gaps));
	for (unsigned int i = 0; i < REPORT_BUSY_LONGEST && busy->longest[i].duration; i++) {
		json_object *gap = json_object_new_object();

		report_add_number(gap, "ts_ns", busy->longest[i].start);
		report_add_number(gap, "duration_ns", busy->longest[i].duration);
		json_object_array_add(longest, gap);
	}
	json_object_object_add(row, "longest", longest);
	return row;
}

static json_object *gaps_json(void *part) {
	struct gaps *gaps = part;
	json_object *data = json_object_new_object(), *threads = json_object_new_array(),
		    *devices = json_object_new_array();

	for (size_t i = 0; i < gaps->threads.n; i++)
		json_object_array_add(threads, thread_json(hash_table_at(&gaps->threads, i)));
	report_sort(threads, "launches");
	for (size_t i = 0; i < gaps->n_devices; i++)
		json_object_array_add(devices, device_json(gaps->devices[i]));
	json_object_object_add(data, "threads", threads);
	json_object_object_add(data, "devices", devices);
	report_add_number(data, "untold", gaps->untold);
	return data;
}

static void print_threads(json_object *threads, int64_t limit) {
	static const char *const header[] = { "PID",           "TID",         "THREAD", "LAUNCHES",
					      "BETWEEN: MEAN", "IDLE: TOTAL", "MEAN",   "P50",
					      "P99",           "MAX",         NULL };
	json_object *rows = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(threads) && (int64_t)i < limit; i++) {
		json_object *from = json_object_array_get_idx(threads, i),
			    *row = json_object_new_array(), *idle = ctl_get(from, "idle");

		json_object_array_add(row, ctl_format("%" PRId64, ctl_int(from, "pid")));
		json_object_array_add(row, ctl_format("%" PRId64, ctl_int(from, "tid")));
		json_object_array_add(row, json_object_get(ctl_get(from, "thread")));
		json_object_array_add(row, ctl_format("%" PRId64, ctl_int(from, "launches")));
		json_object_array_add(
			row, report_text_time(ctl_int(ctl_get(from, "between"), "mean_ns")));
		json_object_array_add(row, report_text_time(ctl_int(idle, "total_ns")));
		report_add_times(row, idle);
		json_object_array_add(rows, row);
	}
	puts("=== GAPS BETWEEN LAUNCHES, PER THREAD ===\n");
	ctl_print_table(header, rows);
	report_print_more(json_object_array_length(threads), limit, "threads");
	if (!json_object_array_length(threads))
		puts("The trace has no launches.");
	json_object_put(rows);
}

static void print_device(json_object *device) {
	json_object *longest = ctl_get(device, "longest"), *gaps = ctl_get(device, "gaps");

	printf("\nGPU %" PRId64 " of process %" PRId64 ": %" PRId64 " kernels\n",
	       ctl_int(device, "device"), ctl_int(device, "pid"), ctl_int(device, "kernels"));
	report_print_text("  busy ", report_text_time(ctl_int(device, "busy_ns")));
	report_print_text(", idle ", report_text_time(ctl_int(device, "idle_ns")));
	printf(" (%.1f%%) in %" PRId64 " gaps",
	       json_object_get_double(ctl_get(device, "idle_percent")), ctl_int(gaps, "count"));
	if (ctl_int(gaps, "count")) {
		report_print_text(": mean ", report_text_time(ctl_int(gaps, "mean_ns")));
		report_print_text(", p50 ", report_text_time(ctl_int(gaps, "p50_ns")));
		report_print_text(", p99 ", report_text_time(ctl_int(gaps, "p99_ns")));
		report_print_text(", max ", report_text_time(ctl_int(gaps, "max_ns")));
	}
	putchar('\n');
	for (size_t i = 0; i < json_object_array_length(longest); i++) {
		json_object *gap = json_object_array_get_idx(longest, i);

		printf("  %s%.6f s: ", i ? "           " : "longest at ",
		       (double)ctl_int(gap, "ts_ns") / 1e9);
		report_print_text("", report_text_time(ctl_int(gap, "duration_ns")));
		putchar('\n');
	}
	if (ctl_int(device, "late"))
		printf("  %" PRId64 " kernels came too late in the file to be counted in full\n",
		       ctl_int(device, "late"));
}

static void gaps_print(json_object *data, const struct report_options *options) {
	json_object *devices = ctl_get(data, "devices");

	print_threads(ctl_get(data, "threads"), options->top);
	puts("\n=== IDLE TIME OF GPUS ===");
	for (size_t i = 0; i < json_object_array_length(devices); i++)
		print_device(json_object_array_get_idx(devices, i));
	if (!json_object_array_length(devices))
		puts("\nThe trace has no times of kernels: how long a GPU was idle is not known.");
	if (ctl_int(data, "untold"))
		printf("\n%" PRId64 " launches and kernels are of threads and devices beyond what "
		       "is told apart.\n",
		       ctl_int(data, "untold"));
}

const struct report_part report_gaps = { .name = "gaps",
					 .new = gaps_new,
					 .free = gaps_free,
					 .item = gaps_item,
					 .json = gaps_json,
					 .print = gaps_print };
