/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --summary: the seeds' numbers in their layout, what the GPU did, and counts by type
 * and by name.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "report-busy.h"
#include "report-rows.h"
#include "report.h"
#include "lib/json.h"

#define KINDS (EVENT_NOTE + 1)
#define TOP_NAMES 20

struct count_row {
	uint64_t count, failed, total;
};

struct summary {
	uint64_t calls, launches, allocations, allocated, transfers, transferred, failed;
	uint64_t memory_lines, memory_bytes; /* of the seeds, whose calls have no sizes */
	uint64_t ioctls, ioctl_time, syscalls, scheduler;
	uint64_t kernels, kernel_time, violations, lost;
	uint64_t first, last;
	bool any;
	struct report_devices devices;
	struct report_rows types, names[KINDS]; /* of struct count_row */
};

static void summary_deinit(void *part) {
	struct summary *summary = part;

	report_devices_deinit(&summary->devices);
	report_rows_deinit(&summary->types);
	for (size_t i = 0; i < KINDS; i++)
		report_rows_deinit(&summary->names[i]);
}

static int summary_init(void *part, const struct report_options *options) {
	struct summary *summary = part;

	report_rows_init(&summary->types, sizeof(struct count_row), REPORT_NAMES_MAX);
	for (size_t i = 0; i < KINDS; i++)
		report_rows_init(&summary->names[i], sizeof(struct count_row), REPORT_NAMES_MAX);
	return 0;
}

/* How often: an event of --discover is a number of calls. */
static uint64_t times_of(const struct trace_item *item) {
	if (item->kind != EVENT_HOOK || strcmp(item->class, "discover") != 0 || !item->n_values ||
	    item->values[0].number < 0)
		return 1;
	return (uint64_t)item->values[0].number;
}

static int count(struct report_rows *rows, const char *text, const struct trace_item *item) {
	struct count_row *row = report_rows_of(rows, text);

	if (!row)
		return -ENOMEM;
	row->count += times_of(item);
	row->total += report_duration(item);
	row->failed += item->failed;
	return 0;
}

static void count_call(struct summary *summary, const struct trace_item *item) {
	summary->calls++;
	summary->launches += report_is_launch(item);
	if (report_is_allocation(item->base) && !item->failed) {
		summary->allocations++;
		summary->allocated += item->size;
	}
	if (report_is_transfer(item) && !item->failed) {
		summary->transfers++;
		summary->transferred += item->size;
	}
}

static void count_hook(struct summary *summary, const struct trace_item *item) {
	summary->scheduler += !strcmp(item->class, "scheduler") || !strcmp(item->class, "work");
	summary->syscalls += !strcmp(item->class, "syscall");
	if (!strcmp(item->class, "memory") && item->size) {
		summary->memory_lines++;
		summary->memory_bytes += item->size;
	}
}

static int summary_item(void *part, const struct trace_item *item,
			const struct report_place *place) {
	struct summary *summary = part;
	char type[64];
	int r = 0;

	if (!summary->any || item->start < summary->first)
		summary->first = item->start;
	if (item->end > summary->last)
		summary->last = item->end;
	summary->any = true;
	summary->failed += item->failed;
	summary->violations += item->violation != NULL;
	switch (item->kind) {
	case EVENT_CALL:
		count_call(summary, item);
		break;
	case EVENT_IOCTL:
		summary->ioctls++;
		summary->ioctl_time += report_duration(item);
		break;
	case EVENT_HOOK:
		count_hook(summary, item);
		break;
	case EVENT_KERNEL:
		summary->kernels++;
		summary->kernel_time += report_duration(item);
		r = report_devices_add(&summary->devices, item->pid, item->device, item->start,
				       item->end);
		break;
	case EVENT_LOST:
		summary->lost += item->count;
		break;
	default:
		break;
	}
	snprintf(type, sizeof(type), "%s\t%s", trace_kind_name(item->kind), item->class);
	if (!r)
		r = count(&summary->types, type, item);
	return r ? r : count(&summary->names[item->kind], item->name, item);
}

/* The rows of a table: those of types have a class behind a tab. */
static void add_counts(json_object *array, struct report_rows *rows, const char *type) {
	for (uint32_t i = 0; i < rows->n; i++) {
		const struct count_row *from = report_rows_get(rows, i);
		const char *text = report_names_text(&rows->names, i), *tab = strchr(text, '\t');
		json_object *row;

		if (!from->count)
			continue;
		row = json_object_new_object();
		json_add(row, "type",
			 type ? report_text(type, strlen(type))
			      : report_text(text, strcspn(text, "\t")));
		report_add_text(row, type ? "name" : "class", type ? text : tab ? tab + 1 : "");
		json_add_uint(row, "count", from->count);
		json_add_uint(row, "failed", from->failed);
		json_add_uint(row, "total_ns", from->total);
		json_append(array, row);
	}
	report_sort(array, "count");
}

static json_object *summary_gpu(struct summary *summary) {
	json_object *gpu = json_object_new_object();
	uint64_t busy = 0, idle = 0, processes = 0;

	for (size_t i = 0; i < summary->devices.n; i++) {
		struct report_busy *device = &summary->devices.list[i]->busy;
		size_t k = 0;

		while (summary->devices.list[k]->pid != summary->devices.list[i]->pid)
			k++;
		processes += k == i;

		if (report_busy_finish(device) == 0) {
			busy += device->busy;
			idle += device->last - device->first - device->busy;
		}
	}
	json_add_uint(gpu, "kernels", summary->kernels);
	json_add_uint(gpu, "kernel_ns", summary->kernel_time);
	/* a device is one of a process: nothing says which of another process is the same */
	json_add_uint(gpu, "devices", summary->devices.n);
	json_add_uint(gpu, "processes", processes);
	json_add_uint(gpu, "busy_ns", busy);
	json_add_uint(gpu, "idle_ns", idle);
	return gpu;
}

static json_object *summary_json(void *part) {
	struct summary *summary = part;
	json_object *data = json_object_new_object(), *user = json_object_new_object(),
		    *kernel = json_object_new_object();
	json_object *types = json_object_new_array(), *names = json_object_new_array();

	json_add_uint(user, "calls", summary->calls);
	json_add_uint(user, "launches", summary->launches);
	/* where calls have no sizes, the seeds' lines beside them have */
	json_add_uint(user, "allocations",
		      !summary->allocated && summary->memory_lines ? summary->memory_lines
								   : summary->allocations);
	json_add_uint(user, "allocated_bytes",
		      summary->allocated ? summary->allocated : summary->memory_bytes);
	json_add_uint(user, "transfers", summary->transfers);
	json_add_uint(user, "transferred_bytes", summary->transferred);
	json_add(data, "userspace", user);
	/* of traces of system calls alone: what the seeds' hook of a function that is not there
	 * leaves */
	json_add_uint(kernel, "ioctls", summary->ioctls ? summary->ioctls : summary->syscalls);
	json_add_uint(kernel, "ioctl_ns", summary->ioctl_time);
	json_add_uint(kernel, "scheduler_calls", summary->scheduler);
	json_add(data, "kernel_space", kernel);
	json_add(data, "gpu", summary_gpu(summary));
	json_add_uint(data, "first_ns", summary->first);
	json_add_uint(data, "last_ns", summary->last);
	json_add_uint(data, "failed", summary->failed);
	json_add_uint(data, "violations", summary->violations);
	json_add_uint(data, "lost", summary->lost);
	add_counts(types, &summary->types, NULL);
	for (size_t i = 0; i < KINDS; i++)
		add_counts(names, &summary->names[i], trace_kind_name((enum trace_item_kind)i));
	report_sort(names, "count");
	json_add(data, "by_type", types);
	json_add(data, "by_name", names);
	return data;
}

static void print_bytes(const char *label, int64_t bytes) {
	printf("  %s: %" PRId64 " bytes (%.2f MB)\n", label, bytes, (double)bytes / (1 << 20));
}

static void print_counts(json_object *array, const char *key, int64_t limit) {
	const struct ctl_column columns[] = {
		{ "TYPE", "type" },
		{ *key == 'c' ? "CLASS" : "NAME", key },
		{ "COUNT", "count" },
		{ "FAILED", "failed" },
		{ "TOTAL", "total_ns", report_cell_time },
		{},
	};

	putchar('\n');
	ctl_print_columns(columns, array, limit);
	report_print_more(json_object_array_length(array), limit, "names");
}

static void summary_print(json_object *data, const struct report_options *options) {
	json_object *user = json_member(data, "userspace"),
		    *kernel = json_member(data, "kernel_space"), *gpu = json_member(data, "gpu");
	const double busy = (double)json_int_of(gpu, "busy_ns"),
		     all = busy + (double)json_int_of(gpu, "idle_ns");

	printf("=== TRACE SUMMARY ===\n\nUSERSPACE (libcuda.so):\n");
	printf("  Total CUDA API calls: %" PRId64 "\n", json_int_of(user, "calls"));
	printf("  Kernel launches: %" PRId64 "\n", json_int_of(user, "launches"));
	printf("  Memory allocations: %" PRId64 "\n", json_int_of(user, "allocations"));
	print_bytes("Total memory allocated", json_int_of(user, "allocated_bytes"));
	printf("  Memory transfers: %" PRId64 "\n", json_int_of(user, "transfers"));
	print_bytes("Total data transferred", json_int_of(user, "transferred_bytes"));
	printf("\nKERNEL SPACE (nvidia.ko):\n");
	printf("  IOCTL calls: %" PRId64 "\n", json_int_of(kernel, "ioctls"));
	printf("  Total IOCTL time: %.3f ms\n", (double)json_int_of(kernel, "ioctl_ns") / 1e6);
	printf("  Scheduler calls: %" PRId64 "\n", json_int_of(kernel, "scheduler_calls"));
	if (json_int_of(gpu, "kernels")) {
		printf("\nGPU:\n  Kernels run: %" PRId64 "\n", json_int_of(gpu, "kernels"));
		printf("  Total kernel time: %.3f ms\n",
		       (double)json_int_of(gpu, "kernel_ns") / 1e6);
		printf("  Busy: %.3f ms of %.3f ms (%.1f%%)", busy / 1e6, all / 1e6,
		       all > 0 ? busy * 100 / all : 100.0);
		if (json_int_of(gpu, "processes") > 1)
			printf(", added up over %" PRId64 " processes, each with GPUs of its own",
			       json_int_of(gpu, "processes"));
		putchar('\n');
	}
	printf("\nTRACE:\n  From %.6f s to %.6f s\n", (double)json_int_of(data, "first_ns") / 1e9,
	       (double)json_int_of(data, "last_ns") / 1e9);
	printf("  Failed: %" PRId64 "\n  Lost events: %" PRId64 "\n", json_int_of(data, "failed"),
	       json_int_of(data, "lost"));
	if (json_int_of(data, "violations"))
		printf("  Impossible times: %" PRId64 " (see --errors)\n",
		       json_int_of(data, "violations"));
	print_counts(json_member(data, "by_type"), "class", INT64_MAX);
	print_counts(json_member(data, "by_name"), "name",
		     options->top > TOP_NAMES ? options->top : TOP_NAMES);
}

const struct report_part report_summary = {
	.name = "summary",
	.size = sizeof(struct summary),
	.init = summary_init,
	.deinit = summary_deinit,
	.item = summary_item,
	.json = summary_json,
	.print = summary_print,
};
