/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. A trace as a file of it may be, through the decoders and the order, into every
 * format.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/trace/read/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct trace_format *const formats[] = {
	&trace_format_chrome, &trace_format_perfetto, &trace_format_folded, &trace_format_text,
	&trace_format_jsonl,  &trace_format_seed,     &trace_format_csv,    &trace_format_table,
};

struct sink {
	const struct trace_format *format;
	struct trace_writer *writer;
	FILE *out;
};

static int begin(const struct trace_about *about, void *userdata) {
	struct sink *sink = userdata;

	return sink->format->open(&sink->writer, sink->out, about);
}

static int take(const struct trace_item *item, void *userdata) {
	struct sink *sink = userdata;

	return sink->format->item(sink->writer, item);
}

/* The first byte says which format, the rest is the trace. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct sink sink = { 0 };
	const struct trace_order_options options = {
		.window = 1000, .memory = 1 << 20, .gpu = true, .take = take, .userdata = &sink
	};
	struct trace_stream *stream = NULL;

	if (size < 1 || size > 1 << 16)
		return 0;
	sink.format = formats[data[0] % (sizeof(formats) / sizeof(*formats))];
	sink.out = fopen("/dev/null", "w");
	if (sink.out && trace_stream_new(&stream, &options, begin) == 0) {
		if (trace_stream_feed(stream, data + 1, size - 1) >= 0)
			trace_stream_finish(stream);
		trace_stream_free(stream);
	}
	if (sink.writer)
		sink.format->close(sink.writer, true);
	if (sink.out)
		fclose(sink.out);
	return 0;
}
