/* SPDX-License-Identifier: Apache-2.0 */

/* The report --ctxsw: which process was on which GPU for how long, and how long switches took. */

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

#define PROCESSES_MAX 4096
#define SWITCH_MAX \
	UINT64_C(1000000) /* nanoseconds: what is longer between two contexts is idle time */

/* Times of a process on a device; the name is "device\tname". */
struct ctxsw_process {
	struct report_histogram times;
	uint64_t preempted;
};

struct ctxsw {
	struct report_rows rows; /* of struct ctxsw_process */
	struct report_devices devices;
};

static void ctxsw_deinit(void *part) {
	struct ctxsw *ctxsw = part;

	for (uint32_t i = 0; i < ctxsw->rows.n; i++)
		report_histogram_deinit(
			&((struct ctxsw_process *)report_rows_get(&ctxsw->rows, i))->times);
	report_rows_deinit(&ctxsw->rows);
	report_devices_deinit(&ctxsw->devices);
}

static int ctxsw_init(void *part, const struct report_options *options) {
	report_rows_init(&((struct ctxsw *)part)->rows, sizeof(struct ctxsw_process),
			 PROCESSES_MAX);
	return 0;
}

static int count_process(struct ctxsw *ctxsw, const struct trace_item *item) {
	struct ctxsw_process *row;
	char key[128];

	snprintf(key, sizeof(key), "%" PRIu32 "\t%s", item->device, item->name);
	row = report_rows_of(&ctxsw->rows, key);
	if (!row)
		return -ENOMEM;
	for (size_t i = 0; i < item->n_values; i++)
		row->preempted += !strcmp(item->values[i].name, "preemption") &&
				  item->values[i].text &&
				  strcmp(item->values[i].text, "FE_ACK_WFI") != 0;
	return report_histogram_add(&row->times, report_duration(item));
}

static int ctxsw_item(void *part, const struct trace_item *item, const struct report_place *place) {
	struct ctxsw *ctxsw = part;
	struct report_device *device;
	int r;

	if (item->kind != EVENT_CTXSW || item->instant)
		return 0;
	r = report_devices_get(&ctxsw->devices, 0, item->device, &device);
	if (!device)
		return r;
	if (device->count && item->start >= device->end && item->start - device->end < SWITCH_MAX)
		r = report_histogram_add(&device->between, item->start - device->end);
	device->count++;
	device->end = item->end > device->end ? item->end : device->end;
	if (!r)
		r = report_busy_add(&device->busy, item->start, item->end);
	return r ?: count_process(ctxsw, item);
}

static json_object *device_json(struct report_device *device) {
	json_object *row = json_object_new_object();
	const double switching = device->between.total;
	uint64_t all = 0;

	if (report_busy_finish(&device->busy) == 0)
		all = device->busy.last - device->busy.first;
	json_add_uint(row, "device", device->device);
	json_add_uint(row, "contexts", device->count);
	json_add_uint(row, "observed_ns", all);
	json_add_uint(row, "busy_ns", device->busy.busy);
	json_add_uint(row, "switching_ns", (uint64_t)switching);
	json_add_uint(row, "idle_ns",
		      all > device->busy.busy + (uint64_t)switching
			      ? all - device->busy.busy - (uint64_t)switching
			      : 0);
	json_add(row, "between", report_histogram_json(&device->between));
	return row;
}

static json_object *ctxsw_json(void *part) {
	struct ctxsw *ctxsw = part;
	json_object *data = json_object_new_object(), *devices = json_object_new_array(),
		    *processes = json_object_new_array();

	for (size_t i = 0; i < ctxsw->devices.n; i++)
		json_append(devices, device_json(ctxsw->devices.list[i]));
	for (uint32_t i = 0; i < ctxsw->rows.n; i++) {
		const struct ctxsw_process *process = report_rows_get(&ctxsw->rows, i);
		const char *key = report_names_text(&ctxsw->rows.names, i),
			   *tab = strchr(key, '\t');
		json_object *row;

		if (!process->times.count)
			continue;
		row = report_histogram_json(&process->times);
		json_add_uint(row, "device", tab ? strtoul(key, NULL, 10) : 0);
		report_add_text(row, "name", tab ? tab + 1 : key);
		json_add_uint(row, "preempted", process->preempted);
		json_append(processes, row);
	}
	report_sort(processes, "total_ns");
	json_add_uint(data, "untold", ctxsw->devices.untold);
	json_add(data, "devices", devices);
	json_add(data, "processes", processes);
	return data;
}

/* Each text with its number in front: time of all, and its share. */
static void print_share(const char *label, int64_t part, int64_t all) {
	json_object *text = report_text_time(part);

	printf("  %-10s %10s  %5.1f%%\n", label, json_object_get_string(text),
	       all > 0 ? 100 * (double)part / (double)all : 0);
	json_object_put(text);
}

static void print_device(json_object *device) {
	const int64_t all = json_int_of(device, "observed_ns");
	json_object *between = json_member(device, "between");

	printf("GPU %" PRId64 ": %" PRId64 " contexts, one after another",
	       json_int_of(device, "device"), json_int_of(device, "contexts"));
	report_print_text(" in ", report_text_time(all));
	putchar('\n');
	print_share("busy", json_int_of(device, "busy_ns"), all);
	print_share("switching", json_int_of(device, "switching_ns"), all);
	print_share("idle", json_int_of(device, "idle_ns"), all);
	if (json_int_of(between, "count")) {
		report_print_time("  a switch takes ", between, "p50_ns");
		report_print_time(" (p50), ", between, "p99_ns");
		puts(" (p99)");
	}
	putchar('\n');
}

/* For how long the GPU of a row was watched. */
static double observed(json_object *devices, json_object *row) {
	for (size_t i = 0; i < json_object_array_length(devices); i++) {
		json_object *device = json_object_array_get_idx(devices, i);

		if (json_int_of(device, "device") == json_int_of(row, "device"))
			return (double)json_int_of(device, "observed_ns");
	}
	return 0;
}

static void ctxsw_print(json_object *data, const struct report_options *options) {
	static const char *const header[] = { "GPU", "TIMES", "TOTAL",     "%",       "MEAN", "P50",
					      "P99", "MAX",   "PREEMPTED", "PROCESS", NULL };
	json_object *devices = json_member(data, "devices"),
		    *processes = json_member(data, "processes"), *rows = json_object_new_array();
	const int64_t limit = options->top > 50 ? options->top : 50;

	puts("=== CONTEXTS ON THE GPU ===\n");
	for (size_t i = 0; i < json_object_array_length(devices); i++)
		print_device(json_object_array_get_idx(devices, i));
	for (size_t i = 0; i < json_object_array_length(processes) && (int64_t)i < limit; i++) {
		json_object *from = json_object_array_get_idx(processes, i),
			    *row = json_object_new_array();
		const double all = observed(devices, from);

		json_append(row, ctl_format("%" PRId64, json_int_of(from, "device")));
		json_append(row, ctl_format("%" PRId64, json_int_of(from, "count")));
		json_append(row, report_text_time(json_int_of(from, "total_ns")));
		json_append(row,
			    ctl_format("%.1f",
				       all > 0 ? 100 * (double)json_int_of(from, "total_ns") / all
					       : 0));
		report_add_times(row, from);
		json_append(row, ctl_format("%" PRId64, json_int_of(from, "preempted")));
		json_append(row, json_object_get(json_member(from, "name")));
		json_append(rows, row);
	}
	if (json_object_array_length(processes))
		ctl_print_table(header, rows);
	else
		puts("The trace has no context switches: gpuprobectl trace --ctxsw records them.");
	report_print_more(json_object_array_length(processes), limit, "processes");
	if (json_int_of(data, "untold"))
		printf("%" PRId64 " contexts of further GPUs are left out.\n",
		       json_int_of(data, "untold"));
	json_object_put(rows);
}

const struct report_part report_ctxsw = {
	.name = "ctxsw",
	.size = sizeof(struct ctxsw),
	.init = ctxsw_init,
	.deinit = ctxsw_deinit,
	.item = ctxsw_item,
	.json = ctxsw_json,
	.print = ctxsw_print,
};
