/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A short list of what a trace contains, for messages when a filter matches nothing. */

#include <stdint.h>

#include "ctl/trace/base/item.h"
#include "ctl/trace/read/report-names.h"

#define REPORT_SEEN_NAMES 1024
#define REPORT_SEEN_PIDS 8

struct report_seen {
	struct report_names names;
	uint64_t counts[REPORT_SEEN_NAMES + 1]; /* by number */
	size_t n_pids;
	struct report_seen_pid {
		uint32_t pid;
		char comm[16];
	} pids[REPORT_SEEN_PIDS];
};

void report_seen_init(struct report_seen *seen);
void report_seen_deinit(struct report_seen *seen);
void report_seen_item(struct report_seen *seen, const struct trace_item *item);
/* "did you mean cuMemAlloc?", or "there are cuLaunchKernel, vectorAdd and 12 more", or "it is
 * empty"; the caller's to free, NULL without memory. */
char *report_seen_names(const struct report_seen *seen, const char *pattern);
char *report_seen_pids(const struct report_seen *seen);
