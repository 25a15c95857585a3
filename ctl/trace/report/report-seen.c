/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Collects which names and processes a trace contains (report-seen.h). When a filter matches
 * nothing, the report suggests some of them.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/suggest.h"
#include "ctl/base/ctl.h"
#include "report-seen.h"

#define SHOWN 6
#define NAME_BYTES_MAX ((size_t)1 << 20)

void report_seen_init(struct report_seen *seen) {
	*seen = (struct report_seen){};
	report_names_init(&seen->names, REPORT_SEEN_NAMES, NAME_BYTES_MAX);
}

void report_seen_deinit(struct report_seen *seen) {
	report_names_deinit(&seen->names);
}

static void see_pid(struct report_seen *seen, const struct trace_item *item) {
	size_t i = 0;

	while (i < seen->n_pids && seen->pids[i].pid != item->pid)
		i++;
	if (!item->pid || i == REPORT_SEEN_PIDS)
		return;
	seen->pids[i].pid = item->pid;
	if (item->process)
		memcpy(seen->pids[i].comm, item->process->comm, sizeof(seen->pids[i].comm));
	seen->n_pids += i == seen->n_pids;
}

void report_seen_item(struct report_seen *seen, const struct trace_item *item) {
	see_pid(seen, item);
	if (item->kind >= EVENT_PROCESS && item->kind <= EVENT_NOTE)
		return;
	seen->counts[report_names_number(&seen->names,
					 item->kind == EVENT_KERNEL ? item->name : item->base)]++;
}

/* What somebody would type: of a kernel's name what is before its arguments. */
static void shorten(const char *name, char *out, size_t n_out) {
	snprintf(out, n_out, "%.*s", (int)strcspn(name, "(<"), name);
	if (!*out || strchr(out, ' '))
		snprintf(out, n_out, "%s", name);
}

/* The most frequent one that is not shown yet, of those close to the pattern or of all. 0: none. */
static uint32_t next_name(const struct report_seen *seen, const char *pattern, bool close,
			  const bool *shown) {
	uint32_t best = 0;
	char name[256];

	for (uint32_t i = 1; i <= seen->names.texts.n; i++) {
		if (shown[i] || (best && seen->counts[i] <= seen->counts[best]))
			continue;
		shorten(report_names_text(&seen->names, i), name, sizeof(name));
		if (!close || suggest_is_close(pattern, name) || strcasestr(name, pattern))
			best = i;
	}
	return best;
}

char *report_seen_names(const struct report_seen *seen, const char *pattern) {
	const bool close = next_name(seen, pattern, true, (bool[REPORT_SEEN_NAMES + 1]){});
	bool shown[REPORT_SEEN_NAMES + 1] = {};
	char *text = NULL, name[256];
	size_t n_text, n = 0;
	uint32_t number;
	FILE *file;

	file = open_memstream(&text, &n_text);
	if (!file)
		return NULL;
	fputs(close                 ? "did you mean "
	      : seen->names.texts.n ? "there are "
				    : "there is nothing that has a name",
	      file);
	for (; n < SHOWN && (number = next_name(seen, pattern, close, shown)); n++) {
		shown[number] = true;
		shorten(report_names_text(&seen->names, number), name, sizeof(name));
		fprintf(file, "%s%s", n ? close ? " or " : ", " : "", name);
	}
	if (close)
		fputc('?', file);
	else if (seen->names.texts.n > n)
		fprintf(file, " and %zu more", seen->names.texts.n - n);
	fclose(file);
	return text;
}

char *report_seen_pids(const struct report_seen *seen) {
	char *text = NULL;
	size_t n_text;
	FILE *file;

	file = open_memstream(&text, &n_text);
	if (!file)
		return NULL;
	fputs(seen->n_pids ? "there are " : "there is no process", file);
	for (size_t i = 0; i < seen->n_pids; i++)
		fprintf(file, *seen->pids[i].comm ? "%s%" PRIu32 " (%.15s)" : "%s%" PRIu32,
			i ? ", " : "", seen->pids[i].pid, seen->pids[i].comm);
	if (seen->n_pids == REPORT_SEEN_PIDS)
		fputs(", ...", file);
	fclose(file);
	return text;
}
