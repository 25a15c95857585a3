/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Splits the bytes of a trace into records. Bytes are copied once, into blocks. A record is read
 * where it lies in its block, and a block is freed when none of its records waits any more.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define BLOCK_SIZE ((size_t)256 << 10)

struct trace_stream {
	struct trace_decoder *decoder;
	struct trace_order *order;
	struct trace_order_options options;
	int (*begin)(const struct trace_about *about, void *userdata);
	struct trace_block *block;
	size_t n_block, n_read; /* bytes in the block; those of whole records */
	struct trace_stream_state state;
};

static int read_start(struct trace_stream *stream, const struct trace_record *record) {
	const struct trace_start *start = (const struct trace_start *)record;

	if (record->type != TRACE_START || record->size < sizeof(*start) ||
	    start->magic != TRACE_MAGIC)
		return TRACE_STREAM_E_FOREIGN;
	if (start->version != TRACE_VERSION)
		return TRACE_STREAM_E_VERSION;
	stream->state.started = true;
	trace_decoder_learn(stream->decoder, record, 0);
	return stream->begin ? stream->begin(trace_decoder_about(stream->decoder),
					     stream->options.userdata)
			     : 0;
}

static void note_time(struct trace_stream *stream, uint64_t time) {
	if (time > stream->state.newest)
		stream->state.newest = time;
}

static void count_lost(struct trace_stream *stream, const struct trace_record *record) {
	const uint64_t n = ((const struct trace_lost *)record)->count;

	*(record->flags & TRACE_LOST_ENDS ? &stream->state.unknown_ends : &stream->state.lost) += n;
	stream->state.calls += record->source == TRACE_SOURCE_SHIM ? n : 0;
}

/* Takes note of a record. Whether it is to be put in order. */
static bool note_record(struct trace_stream *stream, const struct trace_record *record) {
	switch (record->type) {
	case TRACE_PROCESS:
		stream->state.processes +=
			((const struct trace_process *)record)->what != TRACE_PROCESS_SEEN;
		__attribute__((fallthrough));
	case TRACE_THREAD:
	case TRACE_NAME:
	case TRACE_STACK:
		if (stream->options.take)
			trace_decoder_learn(stream->decoder, record, stream->state.records);
		break;
	case TRACE_CALL:
		stream->state.calls++;
		__attribute__((fallthrough));
	case TRACE_IOCTL:
	case TRACE_EVENT:
		note_time(stream, ((const struct trace_call *)record)->end);
		stream->state.events++;
		break;
	case TRACE_LOST:
		count_lost(stream, record);
		break;
	case TRACE_STOP:
		stream->state.stopped = true;
		return false;
	case TRACE_CTXSW:
		/* of a GPU that was watched before the trace began */
		if (((const struct trace_ctxsw *)record)->end <=
		    trace_decoder_about(stream->decoder)->monotonic)
			return false;
		stream->state.contexts++;
		stream->state.events++;
		break;
	case TRACE_KERNEL:
		stream->state.events++;
		break;
	case TRACE_CLOCK:
	case TRACE_NOTE:
		break;
	case TRACE_COUNTS:
		stream->state.events += ((const struct trace_counts *)record)->calls;
		stream->state.calls += ((const struct trace_counts *)record)->calls;
		return stream->options.counts;
	default:
		return false;
	}
	return true;
}

static int read_record(struct trace_stream *stream, const struct trace_record *record) {
	stream->state.records++;
	if (!stream->state.started)
		return read_start(stream, record);
	if (!trace_record_is_whole(record)) {
		stream->state.damaged++;
		return 0;
	}
	if (!note_record(stream, record))
		return 0;
	return stream->options.take ? trace_order_add(stream->order, stream->block, record,
						      stream->state.records)
				    : 0;
}

/* Reads the whole records that are in the block. */
static int read_block(struct trace_stream *stream) {
	int r = 0;

	while (!r && !stream->state.stopped &&
	       stream->n_block - stream->n_read >= sizeof(struct trace_record)) {
		const struct trace_record *record =
			(const void *)(trace_block_bytes(stream->block) + stream->n_read);

		if (record->size < sizeof(*record) || record->size % 8 ||
		    record->size > TRACE_RECORD_MAX)
			return stream->state.started ? TRACE_STREAM_E_BROKEN
						     : TRACE_STREAM_E_FOREIGN;
		if (record->size > stream->n_block - stream->n_read)
			break;
		stream->n_read += record->size;
		r = read_record(stream, record);
	}
	return r;
}

/* Begins a new block with what of the old one is not a whole record yet. */
static int new_block(struct trace_stream *stream) {
	struct trace_block *block;
	int r;

	r = trace_block_new(&block, BLOCK_SIZE);
	if (r)
		return r;
	trace_order_ref(stream->order, block);
	if (stream->block) {
		stream->n_block -= stream->n_read;
		memcpy(trace_block_bytes(block), trace_block_bytes(stream->block) + stream->n_read,
		       stream->n_block);
		trace_order_unref(stream->order, stream->block);
	}
	stream->block = block;
	stream->n_read = 0;
	return 0;
}

int trace_stream_feed(struct trace_stream *stream, const void *bytes, size_t n) {
	const char *from = bytes;
	size_t part;
	int r = 0;

	while (!r && n && !stream->state.stopped) {
		if (!stream->block || stream->n_block == BLOCK_SIZE)
			r = new_block(stream);
		if (r)
			return r;
		part = n < BLOCK_SIZE - stream->n_block ? n : BLOCK_SIZE - stream->n_block;
		memcpy(trace_block_bytes(stream->block) + stream->n_block, from, part);
		stream->n_block += part;
		from += part;
		n -= part;
		r = read_block(stream);
	}
	return r;
}

/* One record after the other: what looks like the last one may be text in another one, which a
 * program that is traced chooses. */
bool trace_stream_ends(const void *bytes, size_t n) {
	const char *at = bytes;
	struct trace_record record;

	while (n >= sizeof(record)) {
		memcpy(&record, at, sizeof(record));
		if (record.type == TRACE_STOP)
			return true;
		if (record.size < sizeof(record) || record.size > n)
			return false;
		at += record.size;
		n -= record.size;
	}
	return false;
}

int trace_stream_finish(struct trace_stream *stream) {
	return trace_order_finish(stream->order);
}

void trace_stream_state(const struct trace_stream *stream, struct trace_stream_state *state) {
	*state = stream->state;
}

size_t trace_stream_cut(const struct trace_stream *stream) {
	return stream->state.stopped ? 0 : stream->n_block - stream->n_read;
}

int trace_stream_new(struct trace_stream **streamp, const struct trace_order_options *options,
		     int (*begin)(const struct trace_about *about, void *userdata)) {
	struct trace_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return -ENOMEM;
	stream->options = *options;
	stream->begin = begin;
	r = trace_decoder_new(&stream->decoder);
	if (!r)
		r = trace_order_new(&stream->order, stream->decoder, options);
	if (r)
		trace_stream_free(stream);
	else
		*streamp = stream;
	return r;
}

struct trace_stream *trace_stream_free(struct trace_stream *stream) {
	if (!stream)
		return NULL;
	if (stream->block)
		trace_order_unref(stream->order, stream->block);
	trace_order_free(stream->order);
	trace_decoder_free(stream->decoder);
	free(stream);
	return NULL;
}
