/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which items of a file a report or a conversion is about. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"
#include "ctl/trace/base/map.h"

#define REPORT_PATTERNS_MAX 64
#define REPORT_PIDS_MAX 64

struct report_filter {
	uint64_t from, to; /* nanoseconds since the beginning */
	size_t n_pids, n_patterns;
	uint32_t pids[REPORT_PIDS_MAX];
	const char *patterns[REPORT_PATTERNS_MAX]; /* names, globs of them, classes or types; with !
						      in front: not these */
	bool pids_met[REPORT_PIDS_MAX],
		patterns_met[REPORT_PATTERNS_MAX]; /* there was one, in this file */
	struct report_kernel_matches *matches;
};

/* Which names of kernels patterns mean, each asked once, as that is dear: names are known by their
 * address. */
struct report_kernel_matches {
	struct trace_map known;
};
/* Whether a pattern means a kernel, by the rules of attach: its mangled or demangled name, that
 * without arguments, or a glob of one. */
bool report_kernel_matches(struct report_kernel_matches *matches, const char *pattern,
			   const char *kernel);
void report_kernel_matches_deinit(struct report_kernel_matches *matches);

bool report_filter_takes(struct report_filter *filter, const struct trace_item *item);
/* Adds patterns with commas between them, which are not those within a kernel's arguments; the text
 * is cut up and has to stay. False: too many, or one is empty. */
bool report_filter_add(struct report_filter *filter, char *patterns);
/* "1.5" or "1.5s", "20ms", "3us", "7ns". False: it is no time. */
bool report_filter_time(const char *text, uint64_t *timep);
