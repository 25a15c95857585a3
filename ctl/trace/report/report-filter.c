/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which items of a trace file a report or conversion uses (report-filter.h): by their
 * processes, names, types and times.
 */

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kernel-name.h"
#include "report-filter.h"
#include "report.h"

#define MATCHES_MAX 65536

/* The next comma that is not within a kernel's arguments. NULL: none. */
static char *find_comma(char *text) {
	unsigned int depth = 0;

	for (; *text; text++) {
		if (*text == '(' || *text == '<')
			depth++;
		else if ((*text == ')' || *text == '>') && depth)
			depth--;
		else if (*text == ',' && !depth)
			return text;
	}
	return NULL;
}

bool report_filter_add(struct report_filter *filter, char *patterns) {
	char *next;

	for (; patterns; patterns = next) {
		next = find_comma(patterns);
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

bool report_kernel_matches(struct report_kernel_matches *matches, const char *pattern,
			   const char *kernel) {
	static char yes, no;
	struct kernel_name name;
	void *known;
	int r;

	known = trace_map_get(&matches->known, (uintptr_t)pattern, (uintptr_t)kernel);
	if (known)
		return known == &yes;
	kernel_name_init(&name, kernel);
	r = kernel_name_match(&name, pattern);
	kernel_name_deinit(&name);
	if (matches->known.table.n >= MATCHES_MAX)
		report_kernel_matches_deinit(matches);
	trace_map_set(&matches->known, (uintptr_t)pattern, (uintptr_t)kernel,
		      r > 0 ? &yes : &no); /* without memory it is asked again */
	return r > 0;
}

void report_kernel_matches_deinit(struct report_kernel_matches *matches) {
	trace_map_deinit(&matches->known, NULL);
	matches->known = (struct trace_map){};
}

static bool matches(const struct report_filter *filter, const char *pattern,
		    const struct trace_item *item) {
	return !strcmp(pattern, "all") || !strcmp(pattern, item->class) ||
	       !strcmp(pattern, trace_kind_name(item->kind)) || !strcmp(pattern, item->name) ||
	       !fnmatch(pattern, item->name, 0) || !fnmatch(pattern, item->base, 0) ||
	       (item->kernel && report_kernel_matches(filter->matches, pattern, item->kernel));
}

static bool takes_name(struct report_filter *filter, const struct trace_item *item) {
	bool takes = !filter->n_patterns || *filter->patterns[0] == '!';

	for (size_t i = 0; i < filter->n_patterns; i++) {
		const bool negated = *filter->patterns[i] == '!';

		if (!matches(filter, filter->patterns[i] + negated, item))
			continue;
		takes = !negated;
		filter->patterns_met[i] = true;
	}
	return takes;
}

/* What has no name of its own is about the others, and stays unless it is its type that is not
 * wanted; losses do always. */
static bool takes_type(struct report_filter *filter, const struct trace_item *item) {
	bool takes = true;

	for (size_t i = 0; i < filter->n_patterns && item->kind != EVENT_LOST; i++) {
		const bool negated = *filter->patterns[i] == '!';

		if (strcmp(filter->patterns[i] + negated, trace_kind_name(item->kind)) != 0)
			continue;
		takes = !negated;
		filter->patterns_met[i] = true;
	}
	return takes;
}

/* What is of no process is about the others. */
bool report_filter_takes(struct report_filter *filter, const struct trace_item *item) {
	bool of_pid = !filter->n_pids || (!item->pid && item->kind != EVENT_HOOK);

	for (size_t i = 0; i < filter->n_pids && !of_pid; i++)
		if (filter->pids[i] == item->pid)
			of_pid = filter->pids_met[i] = true;
	if (!of_pid || item->start >= filter->to ||
	    (item->end < filter->from && item->start < filter->from))
		return false;
	return item->kind >= EVENT_PROCESS && item->kind <= EVENT_NOTE ? takes_type(filter, item)
								       : takes_name(filter, item);
}
