/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The stream of a trace, through all that reads, orders and writes it. The first byte
 * chooses the format; the stream comes in portions of the size that the second byte says. What
 * comes out is in order, and of jsonl each line is one object without control characters.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/read/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct job {
	const struct trace_format *format;
	struct trace_writer *writer;
	FILE *file;
	uint64_t id;
};

static int begin(const struct trace_about *about, void *userdata) {
	struct job *job = userdata;

	return job->format->open(&job->writer, job->file, about);
}

static int take(const struct trace_item *item, void *userdata) {
	struct job *job = userdata;

	if (item->id != ++job->id || item->parent >= item->id || item->end < item->start ||
	    !item->name || !item->process || !item->thread)
		abort();
	if (item->n_values > TRACE_VALUES_MAX)
		abort();
	return job->format->item(job->writer, item);
}

static void check_lines(const char *text, size_t n) {
	const char *end = text + n;

	for (; text < end; text++) {
		const char *line = text;

		text = memchr(text, '\n', (size_t)(end - text));
		if (!text || *line != '{' || text[-1] != '}')
			abort();
		for (const char *c = line; c < text; c++)
			if ((unsigned char)*c < ' ')
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const char *const formats[] = { "jsonl", "text",   "jsonl-seed", "csv",
					       "table", "chrome", "perfetto",   "folded" };
	struct job job = {};
	struct trace_order_options options = {
		.window = 1000, .memory = 1 << 20, .take = take, .userdata = &job
	};
	struct trace_stream *stream;
	size_t portion, n_text;
	char *text = NULL;
	int r = 0;

	if (size < 2)
		return 0;
	job.format = trace_format_find(formats[data[0] % (sizeof(formats) / sizeof(*formats))]);
	portion = data[1] ? data[1] : size;
	job.file = open_memstream(&text, &n_text);
	if (!job.format || !job.file || trace_stream_new(&stream, &options, begin))
		abort();
	for (size_t at = 2; at < size && !r; at += portion)
		r = trace_stream_feed(stream, data + at, portion < size - at ? portion : size - at);
	if (r >= 0)
		trace_stream_finish(stream);
	if (job.writer)
		job.format->close(job.writer, true);
	fclose(job.file);
	if (!strcmp(job.format->name, "jsonl"))
		check_lines(text, n_text);
	trace_stream_free(stream);
	free(text);
	return 0;
}
