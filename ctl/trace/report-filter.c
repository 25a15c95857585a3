/* SPDX-License-Identifier: Apache-2.0 */

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report-filter.h"
#include "report.h"

bool report_filter_add(struct report_filter *filter, char *patterns) {
	char *next;

	for (; patterns; patterns = next) {
		next = strchr(patterns, ',');
		if (next)
			*next++ = '\0';
		if (!patterns[*patterns == '!'] || filter->n_patterns == REPORT_PATTERNS_MAX)
			return false;
		filter->patterns[filter->n_patterns++] = patterns;
	}
	return true;
}

bool report_filter_time(const char *text, uint64_t *timep) {
	static const struct {
		const char *unit;
		double scale;
	} units[] = { { "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 } };
	char *end;
	double value;

	if (*text < '0' || *text > '9')
		return false;
	value = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		if (!isfinite(value) || value * units[i].scale >= 0x1p63)
			return false;
		*timep = (uint64_t)(value * units[i].scale + 0.5);
		return true;
	}
	return false;
}

static bool matches(const char *pattern, const struct trace_item *item) {
	return !strcmp(pattern, "all") || !strcmp(pattern, item->class) || !strcmp(pattern, report_type_name(item->kind)) ||
	       !fnmatch(pattern, item->name, 0) || !fnmatch(pattern, item->base, 0);
}

static bool takes_name(const struct report_filter *filter, const struct trace_item *item) {
	bool takes = !filter->n_patterns || *filter->patterns[0] == '!';

	for (size_t i = 0; i < filter->n_patterns; i++) {
		const bool negated = *filter->patterns[i] == '!';

		if (matches(filter->patterns[i] + negated, item))
			takes = !negated;
	}
	return takes;
}

/* What has no name of its own is about the others, and stays unless it is its type that is not wanted; losses do always. */
static bool takes_type(const struct report_filter *filter, const struct trace_item *item) {
	bool takes = true;

	for (size_t i = 0; i < filter->n_patterns && item->kind != EVENT_LOST; i++) {
		const bool negated = *filter->patterns[i] == '!';

		if (!strcmp(filter->patterns[i] + negated, report_type_name(item->kind)))
			takes = !negated;
	}
	return takes;
}

/* What is of no process is about the others. */
bool report_filter_takes(const struct report_filter *filter, const struct trace_item *item) {
	bool of_pid = !filter->n_pids || (!item->pid && item->kind != EVENT_HOOK);

	for (size_t i = 0; i < filter->n_pids && !of_pid; i++)
		of_pid = filter->pids[i] == item->pid;
	if (!of_pid || item->start >= filter->to || (item->end < filter->from && item->start < filter->from))
		return false;
	return item->kind >= EVENT_PROCESS && item->kind <= EVENT_NOTE ? takes_type(filter, item) : takes_name(filter, item);
}
