/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Adds up when a device was busy (report-busy.h): merges the times of its kernels, and counts the
 * gaps between them. Reports of gaps, context switches and the summary use it.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report-busy.h"

static void note_gap(struct report_busy *busy, uint64_t start, uint64_t duration) {
	struct report_busy_gap gap = { .start = start, .duration = duration }, other;

	for (unsigned int i = 0; i < REPORT_BUSY_LONGEST; i++)
		if (gap.duration > busy->longest[i].duration) {
			other = busy->longest[i];
			busy->longest[i] = gap;
			gap = other;
		}
}

/* Decides the oldest n times. */
static int retire(struct report_busy *busy, size_t n) {
	int r = 0;

	for (size_t i = 0; i < n && !r; i++) {
		const struct report_busy_span *span = &busy->recent[i];

		if (busy->any && span->start > busy->horizon) {
			r = report_histogram_add(&busy->gaps, span->start - busy->horizon);
			note_gap(busy, busy->horizon, span->start - busy->horizon);
		}
		if (!busy->any)
			busy->first = span->start;
		busy->any = true;
		busy->busy += span->end - span->start;
		busy->horizon = busy->last = span->end;
	}
	busy->n -= n;
	memmove(busy->recent, busy->recent + n, busy->n * sizeof(*busy->recent));
	return r;
}

int report_busy_add(struct report_busy *busy, uint64_t start, uint64_t end) {
	size_t first, last;
	int r;

	if (busy->any && start < busy->horizon) {
		busy->late++;
		start = busy->horizon;
	}
	if (end < start)
		return 0;
	if (busy->n == REPORT_BUSY_RECENT) {
		r = retire(busy, REPORT_BUSY_RECENT / 2);
		if (r)
			return r;
	}
	/* recent[first .. last) is what the new one touches */
	for (last = busy->n; last && busy->recent[last - 1].start > end; last--)
		;
	for (first = last; first && busy->recent[first - 1].end >= start; first--)
		;
	if (first < last) {
		start = busy->recent[first].start < start ? busy->recent[first].start : start;
		end = busy->recent[last - 1].end > end ? busy->recent[last - 1].end : end;
	}
	memmove(busy->recent + first + 1, busy->recent + last,
		(busy->n - last) * sizeof(*busy->recent));
	busy->recent[first] = (struct report_busy_span){ .start = start, .end = end };
	busy->n = busy->n - (last - first) + 1;
	return 0;
}

int report_busy_finish(struct report_busy *busy) {
	return retire(busy, busy->n);
}

int report_devices_get(struct report_devices *devices, uint32_t pid, uint32_t number,
		       struct report_device **devicep) {
	struct report_device *device;

	*devicep = NULL;
	for (size_t i = 0; i < devices->n; i++) {
		device = devices->list[i];
		if (device->pid == pid && device->device == number) {
			*devicep = device;
			return 0;
		}
	}
	if (devices->n == REPORT_DEVICES_MAX) {
		devices->untold++;
		return 0;
	}
	device = *devicep = calloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	device->pid = pid;
	device->device = number;
	devices->list[devices->n++] = device;
	return 0;
}

int report_devices_add(struct report_devices *devices, uint32_t pid, uint32_t number,
		       uint64_t start, uint64_t end) {
	struct report_device *device;
	int r = report_devices_get(devices, pid, number, &device);

	if (!device)
		return r;
	device->count++;
	return report_busy_add(&device->busy, start, end);
}

void report_devices_deinit(struct report_devices *devices) {
	for (size_t i = 0; i < devices->n; i++) {
		report_histogram_deinit(&devices->list[i]->busy.gaps);
		report_histogram_deinit(&devices->list[i]->between);
		free(devices->list[i]);
	}
}
