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
