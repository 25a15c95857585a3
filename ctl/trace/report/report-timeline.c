/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The report --timeline: when threads were in calls and ioctls, and streams busy, as wide as the
 * terminal. The length of the trace is known at its end only. So there is a fixed number of steps
 * of time; when the trace does not fit into them any more, each step becomes twice as long.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/base/track.h"
#include "ctl/base/ctl.h"
#include "ctl/trace/read/report-names.h"
#include "lib/json.h"
#include "report.h"

#define STEPS 2048
#define STEP_FIRST 1000 /* nanoseconds */
#define ROWS_MAX 64 /* the last ones: all other threads, all other streams */
#define PLACES 256

enum row_kind {
	ROW_CALLS,
	ROW_IOCTLS,
	ROW_STREAM,
	_ROW_KIND_N,
};

struct timeline_row {
	enum row_kind kind;
	bool others;
	uint32_t pid, tid; /* of a stream tid is its device */
	uint64_t stream;
	char name[16];
	uint64_t count, busy[STEPS];
};

struct timeline {
	uint64_t origin, step; /* the former is a multiple of the latter */
	uint64_t last;
	bool any;
	size_t n;
	struct timeline_row *rows[ROWS_MAX + _ROW_KIND_N];
	struct timeline_row *places[PLACES]; /* by hash: those that are found most */
};

static void timeline_deinit(void *part) {
	struct timeline *timeline = part;

	for (size_t i = 0; i < timeline->n; i++)
		free(timeline->rows[i]);
}

static int timeline_init(void *part, const struct report_options *options) {
	((struct timeline *)part)->step = STEP_FIRST;
	return 0;
}

static bool is_row(const struct timeline_row *row, enum row_kind kind,
		   const struct trace_item *item) {
	if (row->others || row->kind != kind || row->pid != item->pid)
		return false;
	return kind == ROW_STREAM ? row->tid == item->device && row->stream == item->stream
				  : row->tid == item->tid;
}

/* The row of an item; NULL: no memory. */
static struct timeline_row *row_of(struct timeline *timeline, enum row_kind kind,
				   const struct trace_item *item) {
	const uint64_t key[] = { kind, item->pid, kind == ROW_STREAM ? item->device : item->tid,
				 kind == ROW_STREAM ? item->stream : 0 };
	struct timeline_row **place = &timeline->places[trace_hash(0, key, sizeof(key)) % PLACES],
			    *row, *others = NULL;
	size_t n = 0;

	if (*place && is_row(*place, kind, item))
		return *place;
	for (size_t i = 0; i < timeline->n; i++) {
		row = timeline->rows[i];
		if (is_row(row, kind, item)) {
			*place = row;
			return row;
		}
		n += !row->others;
		if (row->others && row->kind == kind)
			others = row;
	}
	if (n >= ROWS_MAX && others)
		return others;
	row = calloc(1, sizeof(*row));
	if (!row)
		return NULL;
	row->kind = kind;
	row->others = n >= ROWS_MAX;
	row->pid = item->pid;
	row->tid = kind == ROW_STREAM ? item->device : item->tid;
	row->stream = item->stream;
	snprintf(row->name, sizeof(row->name), "%s",
		 *item->thread ? item->thread : item->process->comm);
	timeline->rows[timeline->n++] = row;
	return row;
}

/* Steps become twice as long. The origin stays a multiple of theirs, so that it may take the one
 * before with it. */
static void double_step(struct timeline *timeline) {
	const size_t odd = timeline->origin / timeline->step % 2;

	for (size_t i = 0; i < timeline->n; i++) {
		uint64_t *busy = timeline->rows[i]->busy;

		for (size_t j = 0; j < STEPS; j++) {
			const uint64_t left =
				2 * j >= odd && 2 * j - odd < STEPS ? busy[2 * j - odd] : 0;

			busy[j] = left + (2 * j + 1 - odd < STEPS ? busy[2 * j + 1 - odd] : 0);
		}
	}
	timeline->origin -= odd * timeline->step;
	timeline->step *= 2;
}

/* What began before all others comes late, if it is long. */
static void move_origin(struct timeline *timeline, uint64_t start) {
	uint64_t origin;
	size_t n;

	while ((timeline->last - (start - start % timeline->step)) / timeline->step >= STEPS)
		double_step(timeline);
	origin = start - start % timeline->step;
	if (origin >= timeline->origin)
		return;
	n = (size_t)((timeline->origin - origin) / timeline->step);
	for (size_t i = 0; i < timeline->n; i++) {
		uint64_t *busy = timeline->rows[i]->busy;

		memmove(busy + n, busy, (STEPS - n) * sizeof(*busy));
		memset(busy, 0, n * sizeof(*busy));
	}
	timeline->origin = origin;
}

/* Within what can be counted with: a century. */
static uint64_t bounded(uint64_t time) {
	return time < UINT64_C(1) << 62 ? time : UINT64_C(1) << 62;
}

static int timeline_item(void *part, const struct trace_item *item,
			 const struct report_place *place) {
	struct timeline *timeline = part;
	enum row_kind kind = item->kind == EVENT_CALL    ? ROW_CALLS
			     : item->kind == EVENT_IOCTL ? ROW_IOCTLS
							 : ROW_STREAM;
	struct timeline_row *row;
	uint64_t from, to;

	if (item->instant ||
	    (item->kind != EVENT_KERNEL && (kind == ROW_STREAM || !place->outermost)))
		return 0;
	from = bounded(item->start);
	to = bounded(item->end > item->start ? item->end : item->start);
	if (!timeline->any)
		timeline->origin = timeline->last = from - from % timeline->step;
	timeline->any = true;
	if (from < timeline->origin)
		move_origin(timeline, from);
	if (to > timeline->last)
		timeline->last = to;
	while ((to - timeline->origin) / timeline->step >= STEPS)
		double_step(timeline);
	row = row_of(timeline, kind, item);
	if (!row)
		return -ENOMEM;
	row->count++;
	/* what takes no time that can be seen is still seen */
	to = to > from ? to : from + 1;
	from -= timeline->origin;
	to -= timeline->origin;
	while (from < to) {
		const size_t i = (size_t)(from / timeline->step);
		const uint64_t next = (i + 1) * timeline->step, end = to < next ? to : next;

		if (i < STEPS)
			row->busy[i] += end - from;
		from = end;
	}
	return 0;
}

static void add_label(json_object *object, const struct timeline_row *row) {
	static const char *const kinds[] = { "calls", "ioctls", "stream" };

	report_add_text(object, "kind", kinds[row->kind]);
	if (row->others) {
		json_add_bool(object, "others", true);
		return;
	}
	json_add_uint(object, "pid", row->pid);
	json_add_uint(object, row->kind == ROW_STREAM ? "device" : "tid", row->tid);
	if (row->kind == ROW_STREAM)
		report_add_hex(object, "stream", row->stream);
	else
		report_add_text(object, "thread", row->name);
}

/* Threads in the order of their first call, each with its ioctls; then streams; others last. */
static int row_order(const void *a, const void *b) {
	const struct timeline_row *left = *(struct timeline_row *const *)a,
				  *right = *(struct timeline_row *const *)b;

	if ((left->kind == ROW_STREAM) != (right->kind == ROW_STREAM))
		return left->kind == ROW_STREAM ? 1 : -1;
	if (left->others != right->others)
		return left->others ? 1 : -1;
	if (left->pid != right->pid)
		return left->pid < right->pid ? -1 : 1;
	if (left->tid != right->tid)
		return left->tid < right->tid ? -1 : 1;
	if (left->kind != right->kind)
		return left->kind < right->kind ? -1 : 1;
	return (left->stream > right->stream) - (left->stream < right->stream);
}

static json_object *timeline_json(void *part) {
	struct timeline *timeline = part;
	const size_t n_steps =
		timeline->any ? (size_t)((timeline->last - timeline->origin) / timeline->step) + 1
			      : 0;
	json_object *data = json_object_new_object(), *rows = json_object_new_array();

	json_add_uint(data, "from_ns", timeline->origin);
	json_add_uint(data, "to_ns", timeline->last);
	json_add_uint(data, "step_ns", timeline->step);
	qsort(timeline->rows, timeline->n, sizeof(*timeline->rows), row_order);
	for (size_t i = 0; i < timeline->n; i++) {
		json_object *row = json_object_new_object(), *busy = json_object_new_array();

		add_label(row, timeline->rows[i]);
		json_add_uint(row, "count", timeline->rows[i]->count);
		for (size_t j = 0; j < n_steps; j++)
			json_append_int(busy, (int64_t)(timeline->rows[i]->busy[j] & INT64_MAX));
		json_add(row, "busy_ns", busy);
		json_append(rows, row);
	}
	json_add(data, "rows", rows);
	return data;
}

#define LABEL 26
#define LABEL_PID 8 /* more, where there are several processes */

/* Returns how wide labels are. With @several processes each says whose it is. */
static int label_width(bool several) {
	return several ? LABEL + LABEL_PID : LABEL;
}

static void print_label(json_object *row, bool several) {
	const char *kind = ctl_string(row, "kind"), *thread = ctl_string(row, "thread");
	const int64_t pid = json_int_of(row, "pid"), tid = json_int_of(row, "tid");
	const int width = label_width(several);
	char label[128], whose[32] = "";

	if (several && !json_member(row, "others") && (!strcmp(kind, "stream") || pid != tid))
		snprintf(whose, sizeof(whose), "%" PRId64 "%s", pid,
			 strcmp(kind, "stream") ? "/" : " ");
	if (json_member(row, "others"))
		snprintf(label, sizeof(label), "other %s", kind);
	else if (!strcmp(kind, "stream"))
		snprintf(label, sizeof(label), "%sGPU %" PRId64 " stream %s", whose,
			 json_int_of(row, "device"), ctl_string(row, "stream") + strlen("0x"));
	else if (!strcmp(kind, "ioctls"))
		snprintf(label, sizeof(label), "%s%" PRId64 "   ioctl", whose, tid);
	else
		snprintf(label, sizeof(label), "%s%" PRId64 " %s", whose, tid, thread);
	label[width - 1] = '\0';
	ctl_print_text(label);
	printf("%*s|", width - (int)strlen(label), "");
}

/* How busy a step is, as a character. */
static const char *shade(double share, bool utf8) {
	static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", ".", ":", "-", "=", "+", "*", "%", "#" };
	int level = (int)(share * 8 + 0.5);

	level = level > 8 ? 8 : level < 1 && share > 0 ? 1 : level;
	return utf8 ? blocks[level] : ascii[level];
}

static void print_row(json_object *row, bool several, size_t columns, size_t n_steps, int64_t step,
		      bool utf8) {
	json_object *busy = json_member(row, "busy_ns");

	print_label(row, several);
	for (size_t i = 0; i < columns; i++) {
		const size_t first = i * n_steps / columns, last = (i + 1) * n_steps / columns;
		double sum = 0;

		for (size_t j = first; j < last; j++)
			sum += (double)json_object_get_int64(json_object_array_get_idx(busy, j));
		fputs(shade(sum / ((double)step * (double)(last - first)), utf8), stdout);
	}
	puts("|");
}

/* Whether there are rows of more than one process. */
static bool has_several(json_object *rows) {
	json_object *first = NULL;

	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);

		if (json_member(row, "others"))
			continue;
		if (first && json_int_of(first, "pid") != json_int_of(row, "pid"))
			return true;
		first = row;
	}
	return false;
}

static void timeline_print(json_object *data, const struct report_options *options) {
	json_object *rows = json_member(data, "rows"), *from, *to;
	const size_t n = json_object_array_length(rows);
	const int64_t step = json_int_of(data, "step_ns");
	const bool several = has_several(rows);
	const unsigned int label = (unsigned int)label_width(several);
	size_t n_steps, columns = options->width > label + 12 ? options->width - label - 2 : 10;

	puts("=== TIMELINE ===\n");
	if (!n) {
		puts("The trace has nothing that takes time.");
		return;
	}
	n_steps = json_object_array_length(
		json_member(json_object_array_get_idx(rows, 0), "busy_ns"));
	columns = n_steps < columns ? n_steps : columns;
	from = ctl_format("%.6f s", (double)json_int_of(data, "from_ns") / 1e9);
	to = ctl_format("%.6f s", (double)json_int_of(data, "to_ns") / 1e9);
	printf("%*s %s", (int)label, "", json_object_get_string(from));
	printf("%*s\n", (int)columns - (int)strlen(json_object_get_string(from)),
	       json_object_get_string(to));
	for (size_t i = 0; i < n; i++)
		print_row(json_object_array_get_idx(rows, i), several, columns, n_steps, step,
			  options->utf8);
	report_print_text(
		"One column is ",
		report_text_time((int64_t)((double)step * (double)n_steps / (double)columns)));
	puts(options->utf8 ? ": █ busy all the time" : ": # busy all the time");
	json_object_put(from);
	json_object_put(to);
}

const struct report_part report_timeline = {
	.name = "timeline",
	.size = sizeof(struct timeline),
	.init = timeline_init,
	.deinit = timeline_deinit,
	.item = timeline_item,
	.json = timeline_json,
	.print = timeline_print,
};
