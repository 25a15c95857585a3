/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One line of our jsonl, or of the seeds' tools, which have the same members but know less: no
 * nanoseconds, and a span is two lines. */

#include "ctl/trace/base/item.h"

#define READ_LINE_MAX 65536 /* bytes */
#define READ_FRAMES_MAX 128

struct report_names;

enum read_line_kind {
	READ_LINE_BAD, /* no JSON object, or none of a trace */
	READ_LINE_ITEM,
	READ_LINE_START,
	READ_LINE_VERSION, /* the start of a trace of another version */
	READ_LINE_STOP,
	READ_LINE_SEED, /* item has no end: see phase */
};

struct read_line {
	enum read_line_kind kind;
	struct trace_item item;
	struct trace_process_info process; /* of ITEM; exe is kept */
	struct trace_about about; /* of START */
	uint64_t lost; /* of STOP */
	char phase; /* of SEED: 'B', 'E', or 0: one point in time, or a span that ends here if it
		       has a duration */
	bool timed; /* of SEED: it has a ts */
	uint64_t duration; /* of SEED: nanoseconds; 0: none */
	const char *frames[READ_FRAMES_MAX];
};

/*
 * Reads n bytes, behind which a NUL lies; they are overwritten, and values, violations and notes
 * point into them. Other texts are kept in names. Members of items that are not in the line are
 * zeros.
 */
void read_line(struct read_line *line, char *text, size_t n, struct report_names *names);
