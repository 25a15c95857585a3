/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* When a device was busy: the union of the times of its kernels, which may overlap and come out of
 * order by some. */

#include <stdbool.h>
#include <stddef.h>

#include "report-histogram.h"

#define REPORT_BUSY_RECENT \
	1024 /* times between which there was a gap, in which an earlier kernel may still come */
#define REPORT_BUSY_LONGEST 5

struct report_busy {
	uint64_t busy, first, last; /* after report_busy_finish() */
	uint64_t late; /* kernels that came too late to be counted in full */
	struct report_histogram gaps;
	struct report_busy_gap {
		uint64_t start, duration;
	} longest[REPORT_BUSY_LONGEST]; /* the longest first */
	uint64_t horizon; /* what is before is decided */
	bool any; /* something is */
	size_t n;
	struct report_busy_span {
		uint64_t start, end;
	} recent[REPORT_BUSY_RECENT];
};

/* Zeros are an empty one. 0, or -ENOMEM. */
int report_busy_add(struct report_busy *busy, uint64_t start, uint64_t end);
int report_busy_finish(struct report_busy *busy);

#define REPORT_DEVICES_MAX 64

struct report_devices {
	size_t n;
	struct report_device {
		uint32_t pid, device;
		uint64_t count; /* of what was on it */
		uint64_t end; /* of the latest; used by --ctxsw, as the next */
		struct report_histogram between; /* from one to the next */
		struct report_busy busy;
	} *list[REPORT_DEVICES_MAX];
	uint64_t untold; /* of further devices */
};

/* The device of that number of that process; *devicep NULL: there are too many. 0 or -ENOMEM. */
int report_devices_get(struct report_devices *devices, uint32_t pid, uint32_t number,
		       struct report_device **devicep);
/* Counts what was on a device. 0 or -ENOMEM. */
int report_devices_add(struct report_devices *devices, uint32_t pid, uint32_t number,
		       uint64_t start, uint64_t end);
void report_devices_deinit(struct report_devices *devices);
