/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads a saved trace (read-file.h): sees by its first bytes which format it has, and gives its
 * items to the caller in order. It opens no file but the one it is given.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "read-file.h"
#include "read-line.h"
#include "read-seed.h"
#include "report-names.h"
#include "stream.h"

#define BUFFER ((size_t)256 << 10)
/* Of texts that are kept: names of functions, kernels, processes, threads, and return addresses. */
#define TEXTS_MAX ((size_t)1 << 18)
#define TEXT_BYTES_MAX ((size_t)64 << 20)
/* How long records wait for older ones: a file has no hurry. */
#define RAW_WINDOW UINT64_C(30000000000)
#define RAW_MEMORY ((size_t)64 << 20)

struct reader {
	int fd;
	const struct read_taker *taker;
	struct read_result *result;
	struct report_names names;
	struct read_seed *seed;
	struct read_line line;
	bool introduced; /* the taker has got `about` */
	bool skipping; /* the rest of a line that is too long */
	int stop; /* what a taker of a raw file's items returned */
	size_t n; /* bytes in the buffer */
	char buffer[BUFFER + 1]; /* and a NUL behind a line without an end */
};

const char *read_format_name(enum read_format format) {
	static const char *const names[] = { "none", "raw", "jsonl", "jsonl-seed" };

	return names[format];
}

/* Reads until there are at least n bytes, or the file ends. */
static int fill(struct reader *reader, size_t n) {
	while (reader->n < n) {
		const ssize_t r = read(reader->fd, reader->buffer + reader->n, BUFFER - reader->n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		reader->n += (size_t)r;
		reader->result->bytes += (uint64_t)r;
	}
	return 0;
}

static int introduce(struct reader *reader, const struct trace_about *about) {
	if (reader->introduced)
		return 0;
	reader->introduced = true;
	return reader->taker->about(reader->taker->userdata, about);
}

static int take_item(void *userdata, const struct trace_item *item) {
	struct reader *reader = userdata;

	reader->result->items++;
	if (item->kind == EVENT_LOST)
		reader->result->lost += item->count;
	return reader->taker->item(reader->taker->userdata, item);
}

/* One line of n bytes, behind which a byte may be written. */
static int take_line(struct reader *reader, char *text, size_t n) {
	struct read_line *line = &reader->line;
	int r = 0;

	text[n] = '\0';
	if (!n || strspn(text, " \t\r") == n)
		return 0;
	read_line(line, text, n, &reader->names);
	switch (line->kind) {
	case READ_LINE_BAD:
		reader->result->malformed++;
		return 0;
	case READ_LINE_START:
		reader->result->format = READ_FORMAT_JSONL;
		return introduce(reader, &line->about);
	case READ_LINE_VERSION:
		return -EPROTONOSUPPORT;
	case READ_LINE_STOP:
		reader->result->stopped = true;
		if (line->lost > reader->result->lost)
			reader->result->lost = line->lost;
		return 0;
	case READ_LINE_ITEM:
		reader->result->format = READ_FORMAT_JSONL;
		r = introduce(reader, &(struct trace_about){});
		return r ? r : take_item(reader, &line->item);
	case READ_LINE_SEED:
		if (reader->result->format == READ_FORMAT_NONE)
			reader->result->format = READ_FORMAT_SEED;
		r = introduce(reader, &(struct trace_about){});
		return r ? r : read_seed_line(reader->seed, line);
	}
	return r;
}

/* The lines in the buffer; what is left of it is moved to its front. */
static int take_lines(struct reader *reader) {
	char *at = reader->buffer, *end = reader->buffer + reader->n, *newline;
	int r = 0;

	while (!r && (newline = memchr(at, '\n', (size_t)(end - at)))) {
		if (!reader->skipping && newline - at <= READ_LINE_MAX)
			r = take_line(reader, at, (size_t)(newline - at));
		else
			reader->result->malformed++;
		reader->skipping = false;
		at = newline + 1;
	}
	reader->n = (size_t)(end - at);
	if (reader->n > READ_LINE_MAX) {
		reader->skipping = true;
		reader->n = 0;
	}
	memmove(reader->buffer, at, reader->n);
	return r;
}

/* The last line, which has no end: it may be whole all the same. */
static int take_last(struct reader *reader) {
	const uint64_t malformed = reader->result->malformed;
	const size_t n = reader->n;
	int r;

	if (reader->skipping)
		reader->result->cut = n ? n : 1;
	if (!n || reader->skipping)
		return 0;
	r = take_line(reader, reader->buffer, n);
	if (reader->result->malformed > malformed) {
		reader->result->malformed = malformed;
		reader->result->cut = n;
	}
	return r;
}

static int read_lines(struct reader *reader) {
	size_t before;
	int r;

	r = read_seed_new(&reader->seed, take_item, reader);
	if (r)
		return r;
	do {
		r = take_lines(reader);
		before = reader->n;
		if (!r)
			r = fill(reader, before + 1);
	} while (!r && reader->n > before);
	if (!r)
		r = take_last(reader);
	if (!r)
		r = read_seed_finish(reader->seed);
	reader->result->unmatched = read_seed_unmatched(reader->seed);
	read_seed_free(reader->seed);
	return r;
}

static int take_raw(const struct trace_item *item, void *userdata) {
	struct reader *reader = userdata;

	reader->stop = take_item(reader, item);
	return reader->stop ? -ECANCELED : 0;
}

static int begin_raw(const struct trace_about *about, void *userdata) {
	struct reader *reader = userdata;

	reader->stop = introduce(reader, about);
	return reader->stop ? -ECANCELED : 0;
}

/* What the stream knows of itself, and what is left of it. */
static void finish_raw(struct reader *reader, const struct trace_stream *stream) {
	struct trace_stream_state state;

	trace_stream_state(stream, &state);
	reader->result->stopped = state.stopped;
	if (state.lost > reader->result->lost)
		reader->result->lost = state.lost;
	reader->result->malformed += state.damaged;
	reader->result->cut = trace_stream_cut(stream);
}

static int read_records(struct reader *reader) {
	const struct trace_order_options options = { .window = RAW_WINDOW,
						     .memory = RAW_MEMORY,
						     .gpu = true,
						     .counts = true,
						     .take = take_raw,
						     .userdata = reader };
	struct trace_stream *stream;
	int r, finished;

	r = trace_stream_new(&stream, &options, begin_raw);
	if (r)
		return r;
	reader->result->format = READ_FORMAT_RAW;
	while (!r && reader->n) {
		r = trace_stream_feed(stream, reader->buffer, reader->n);
		reader->n = 0;
		if (!r)
			r = fill(reader, 1);
	}
	/* what came before it got unreadable is shown */
	if (r > 0) {
		reader->result->malformed++;
		r = r == TRACE_STREAM_E_VERSION ? -EPROTONOSUPPORT : 0;
	}
	finished = r ? 0 : trace_stream_finish(stream);
	finish_raw(reader, stream);
	trace_stream_free(stream);
	if (reader->stop)
		return reader->stop;
	/* of a file that ends within its first record there is this only */
	return r ?: finished ?: introduce(reader, &(struct trace_about){});
}

/* Whether it begins as raw traces do. */
static bool is_raw(const struct reader *reader) {
	struct trace_start start;

	if (reader->n < sizeof(start.record) + sizeof(start.magic))
		return false;
	memcpy(&start, reader->buffer, sizeof(start.record) + sizeof(start.magic));
	return start.record.type == TRACE_START && start.magic == TRACE_MAGIC;
}

int read_file(int fd, const struct read_taker *taker, struct read_result *result) {
	struct reader *reader = malloc(sizeof(*reader));
	int r;

	*result = (struct read_result){};
	if (!reader)
		return -ENOMEM;
	reader->fd = fd;
	reader->taker = taker;
	reader->result = result;
	reader->introduced = reader->skipping = false;
	reader->stop = 0;
	reader->n = 0;
	report_names_init(&reader->names, TEXTS_MAX, TEXT_BYTES_MAX);
	r = fill(reader, sizeof(struct trace_start));
	if (!r)
		r = is_raw(reader) ? read_records(reader) : read_lines(reader);
	result->unnamed = reader->names.refused;
	report_names_deinit(&reader->names);
	free(reader);
	return r;
}
