/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of traces: raw (proto/trace.h), our jsonl, and what the seeds' tools wrote; their content
 * says which. They are read once from the front, so a pipe will do, and a file that grows is read
 * to where it ends at that moment.
 */

#include "ctl/trace/base/item.h"

enum read_format {
	READ_FORMAT_NONE, /* nothing could be read */
	READ_FORMAT_RAW,
	READ_FORMAT_JSONL,
	READ_FORMAT_SEED,
};

struct read_taker {
	/* Once, before the first item; zeros if the file does not say. */
	int (*about)(void *userdata, const struct trace_about *about);
	/* Items by their start, as far as the file has them so. What is not 0 ends the reading and
	 * is returned. */
	int (*item)(void *userdata, const struct trace_item *item);
	void *userdata;
};

struct read_result {
	enum read_format format;
	uint64_t bytes, items;
	uint64_t malformed; /* lines or records that are none */
	uint64_t unmatched; /* ends of spans without a beginning, in files of the seeds */
	uint64_t unnamed; /* texts that are "(other)", as there are too many */
	uint64_t cut; /* bytes of the last record or line, which is not whole */
	bool stopped; /* the trace has its end: our formats write one */
	uint64_t lost; /* events that the trace says were lost */
};

/* 0, negative errno, or what a taker returned. The result is filled in whatever comes. */
int read_file(int fd, const struct read_taker *taker, struct read_result *result);
const char *read_format_name(enum read_format format);
