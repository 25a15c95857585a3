/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which items of a file a report or a conversion is about. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item.h"

#define REPORT_PATTERNS_MAX 64
#define REPORT_PIDS_MAX 64

struct report_filter {
	uint64_t from, to; /* nanoseconds since the beginning */
	size_t n_pids, n_patterns;
	uint32_t pids[REPORT_PIDS_MAX];
	const char *patterns[REPORT_PATTERNS_MAX]; /* globs of names, classes or types; with ! in front: not these */
};

bool report_filter_takes(const struct report_filter *filter, const struct trace_item *item);
/* Adds patterns with commas between them; the text is cut up and has to stay. False: too many, or one is empty. */
bool report_filter_add(struct report_filter *filter, char *patterns);
/* "1.5" or "1.5s", "20ms", "3us", "7ns". False: it is no time. */
bool report_filter_time(const char *text, uint64_t *timep);
