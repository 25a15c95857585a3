/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `perfetto`.
 *
 * Perfetto's own format: a protobuf of packets. All items are in one sequence of packets, with
 * times of CLOCK_MONOTONIC, and names by numbers of a table that begins anew when it is full
 * (incremental state). The clock of each GPU is clock 64 of a sequence of its own, which has its
 * pairs with the host's. A span is two packets; readers sort packets by time, and those of one time
 * are in order here, so that a span's end comes after those within it only if it is later: an item
 * that is within another comes after it, and both ends at one time close the inner one first, as
 * they have no names.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "in-use.h"
#include "intern.h"
#include "ctl/trace/base/item.h"
#include "protobuf.h"
#include "ctl/trace/base/track.h"

#define GROUP_DEPTH 8
#define SEQUENCE 1 /* of all items; those of GPU clocks are behind it */
#define GPU_CLOCK 64 /* the first number that is a sequence's own */

enum {
	TRACE_PACKET = 1,

	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_TIMESTAMP_CLOCK = 58,
	PACKET_DEFAULTS = 59,
	PACKET_TRACK_DESCRIPTOR = 60,

	FLAG_CLEARED = 1, /* of the sequence */
	FLAG_NEEDS_STATE = 2,

	SNAPSHOT_CLOCKS = 1,
	SNAPSHOT_PRIMARY = 2,
	CLOCK_ID = 1,
	CLOCK_TIMESTAMP = 2,
	CLOCK_REALTIME_ID = 1,
	CLOCK_MONOTONIC_ID = 3,

	DESCRIPTOR_UUID = 1,
	DESCRIPTOR_NAME = 2,
	DESCRIPTOR_PROCESS = 3,
	DESCRIPTOR_THREAD = 4,
	DESCRIPTOR_PARENT = 5,
	DESCRIPTOR_COUNTER = 8,
	PROCESS_PID = 1,
	PROCESS_CMDLINE = 2,
	PROCESS_NAME = 6,
	THREAD_PID = 1,
	THREAD_TID = 2,
	THREAD_NAME = 5,
	COUNTER_UNIT = 3,
	UNIT_SIZE_BYTES = 3,

	EVENT_CATEGORY_IIDS = 3,
	EVENT_ANNOTATIONS = 4,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK = 11,
	EVENT_CATEGORIES = 22,
	EVENT_NAME = 23,
	EVENT_COUNTER_VALUE = 30,
	EVENT_FLOWS = 47,
	TYPE_BEGIN = 1,
	TYPE_END = 2,
	TYPE_INSTANT = 3,
	TYPE_COUNTER = 4,

	ANNOTATION_NAME_IID = 1,
	ANNOTATION_BOOL = 2,
	ANNOTATION_UINT = 3,
	ANNOTATION_INT = 4,
	ANNOTATION_DOUBLE = 5,
	ANNOTATION_STRING = 6,
	ANNOTATION_POINTER = 7,
	ANNOTATION_NAME = 10,
	ANNOTATION_MEMBERS = 11,
	ANNOTATION_ELEMENTS = 12,
	ANNOTATION_STRING_IID = 17,

	INTERNED_CATEGORIES = 1,
	INTERNED_NAMES = 2,
	INTERNED_ANNOTATION_NAMES = 3,
	INTERNED_STRINGS = 29,
	INTERNED_IID = 1,
	INTERNED_TEXT = 2,
};

struct trace_writer {
	FILE *out;
	uint64_t monotonic; /* the beginning */
	struct trace_tracks *tracks;
	struct trace_in_use *in_use;
	struct intern *intern;
	bool begun; /* the sequence has state */
	struct protobuf packet, event, interned; /* being built */
};

/* Writes writer->packet. */
static int put_packet(struct trace_writer *writer) {
	uint8_t head[11] = { TRACE_PACKET << 3 | 2 };
	size_t n = 1;

	if (writer->packet.failed)
		return -ENOMEM;
	for (size_t length = writer->packet.n;; length >>= 7) {
		head[n++] = (uint8_t)(length >= 0x80 ? length | 0x80 : length);
		if (length < 0x80)
			break;
	}
	fwrite_unlocked(head, 1, n, writer->out);
	fwrite_unlocked(writer->packet.data, 1, writer->packet.n, writer->out);
	return 0;
}

static void begin_packet(struct trace_writer *writer, uint64_t sequence) {
	writer->packet.n = 0;
	protobuf_varint(&writer->packet, PACKET_SEQUENCE, sequence);
}

static void put_clock(struct trace_writer *writer, uint64_t id, uint64_t time) {
	size_t mark = protobuf_begin(&writer->packet, SNAPSHOT_CLOCKS);

	protobuf_varint(&writer->packet, CLOCK_ID, id);
	protobuf_varint(&writer->packet, CLOCK_TIMESTAMP, time);
	protobuf_end(&writer->packet, mark);
}

/* Two clocks at one moment. */
static int put_snapshot(struct trace_writer *writer, uint64_t sequence, uint64_t host, uint64_t id,
			uint64_t time) {
	size_t mark;

	begin_packet(writer, sequence);
	mark = protobuf_begin(&writer->packet, PACKET_CLOCK_SNAPSHOT);
	put_clock(writer, CLOCK_MONOTONIC_ID, host);
	put_clock(writer, id, time);
	protobuf_varint(&writer->packet, SNAPSHOT_PRIMARY, CLOCK_MONOTONIC_ID);
	protobuf_end(&writer->packet, mark);
	return put_packet(writer);
}

/* A text of the event's: by number if it can have one (field by_number), else as it is (field
 * plain). */
static void put_interned(struct trace_writer *writer, unsigned table, const char *text,
			 unsigned by_number, unsigned plain) {
	bool is_new;
	uint64_t iid = intern_get(writer->intern, table, text, &is_new);

	if (!iid) {
		protobuf_string(&writer->event, plain, text);
		return;
	}
	if (is_new) {
		size_t mark = protobuf_begin(&writer->interned, table);

		protobuf_varint(&writer->interned, INTERNED_IID, iid);
		protobuf_string(&writer->interned, INTERNED_TEXT, text);
		protobuf_end(&writer->interned, mark);
	}
	protobuf_varint(&writer->event, by_number, iid);
}

/* Begins an annotation, which is a field of the event, or a member of another. */
static size_t begin_annotation(struct trace_writer *writer, unsigned field, const char *name) {
	size_t mark = protobuf_begin(&writer->event, field);

	if (name)
		put_interned(writer, INTERNED_ANNOTATION_NAMES, name, ANNOTATION_NAME_IID,
			     ANNOTATION_NAME);
	return mark;
}

static void put_annotation(struct trace_writer *writer, const char *name, unsigned kind,
			   uint64_t number) {
	size_t mark = begin_annotation(writer, EVENT_ANNOTATIONS, name);

	protobuf_varint(&writer->event, kind, number);
	protobuf_end(&writer->event, mark);
}

static void put_text_annotation(struct trace_writer *writer, const char *name, const char *text) {
	size_t mark = begin_annotation(writer, EVENT_ANNOTATIONS, name);

	put_interned(writer, INTERNED_STRINGS, text, ANNOTATION_STRING_IID, ANNOTATION_STRING);
	protobuf_end(&writer->event, mark);
}

/* An argument, with its members if it is a struct; *i goes behind them. */
static void put_value(struct trace_writer *writer, const struct trace_item *item, size_t *i,
		      size_t end, unsigned field, unsigned depth) {
	const struct trace_value *value = item->values + (*i)++;
	size_t mark = begin_annotation(writer, field, value->name);
	struct protobuf *event = &writer->event;

	switch (value->kind) {
	case VALUE_INT:
		protobuf_varint(event, ANNOTATION_INT, (uint64_t)value->number);
		break;
	case VALUE_UINT:
	case VALUE_SIZE:
		protobuf_varint(event, ANNOTATION_UINT, (uint64_t)value->number);
		break;
	case VALUE_HEX:
		protobuf_varint(event, ANNOTATION_POINTER, (uint64_t)value->number);
		break;
	case VALUE_FLOAT:
		protobuf_double(event, ANNOTATION_DOUBLE, value->real);
		break;
	case VALUE_BOOL:
		protobuf_varint(event, ANNOTATION_BOOL, value->number != 0);
		break;
	case VALUE_NAME:
		if (value->text)
			put_interned(writer, INTERNED_STRINGS, value->text, ANNOTATION_STRING_IID,
				     ANNOTATION_STRING);
		else
			protobuf_varint(event, ANNOTATION_INT, (uint64_t)value->number);
		break;
	case VALUE_STRING:
	case VALUE_BYTES:
		protobuf_string(event, ANNOTATION_STRING, value->text);
		break;
	case VALUE_GROUP:
		for (int64_t k = 0; k < value->number && *i < end && depth < GROUP_DEPTH; k++)
			put_value(writer, item, i, end, ANNOTATION_MEMBERS, depth + 1);
		break;
	}
	protobuf_end(event, mark);
}

/* What is known of an item besides the values: each under a name that no argument has. */
static void put_facts(struct trace_writer *writer, const struct trace_item *item) {
	if (item->has_result && item->result_name)
		put_text_annotation(writer, "=result", item->result_name);
	else if (item->has_result)
		put_annotation(writer, "=result", ANNOTATION_INT, (uint64_t)item->result);
	if (item->failed)
		put_annotation(writer, "=failed", ANNOTATION_BOOL, true);
	if (item->open)
		put_annotation(writer, "=open", ANNOTATION_BOOL, true);
	if (item->size)
		put_annotation(writer, "=size", ANNOTATION_UINT, item->size);
	if (item->kernel)
		put_text_annotation(writer, "=kernel", item->kernel);
	if (item->kind == EVENT_KERNEL || item->error)
		put_annotation(writer, "=error_ns", ANNOTATION_UINT, item->error);
	if (item->kind == EVENT_LOST)
		put_annotation(writer, "=count", ANNOTATION_UINT, item->count);
	if (item->violation)
		put_text_annotation(writer, "=violation", item->violation);
	put_annotation(writer, "=id", ANNOTATION_UINT, item->id);
	if (item->n_frames) {
		size_t mark = begin_annotation(writer, EVENT_ANNOTATIONS, "=stack");

		for (size_t i = 0; i < item->n_frames; i++) {
			size_t element = begin_annotation(writer, ANNOTATION_ELEMENTS, NULL);

			put_interned(writer, INTERNED_STRINGS, item->frames[i],
				     ANNOTATION_STRING_IID, ANNOTATION_STRING);
			protobuf_end(&writer->event, element);
		}
		protobuf_end(&writer->event, mark);
	}
}

static void begin_event(struct trace_writer *writer, uint64_t type, uint64_t track) {
	writer->event.n = writer->interned.n = 0;
	protobuf_varint(&writer->event, EVENT_TYPE, type);
	protobuf_varint(&writer->event, EVENT_TRACK, track);
}

/* Ends an event; the sequence's first one, and the first after its table was emptied, say that
 * names begin anew. */
static int put_event(struct trace_writer *writer, uint64_t time) {
	begin_packet(writer, SEQUENCE);
	if (!writer->begun) {
		size_t mark;

		protobuf_varint(&writer->packet, PACKET_SEQUENCE_FLAGS,
				FLAG_CLEARED | FLAG_NEEDS_STATE);
		mark = protobuf_begin(&writer->packet, PACKET_DEFAULTS);
		protobuf_varint(&writer->packet, PACKET_TIMESTAMP_CLOCK, CLOCK_MONOTONIC_ID);
		protobuf_end(&writer->packet, mark);
		writer->begun = true;
	} else {
		protobuf_varint(&writer->packet, PACKET_SEQUENCE_FLAGS, FLAG_NEEDS_STATE);
	}
	protobuf_varint(&writer->packet, PACKET_TIMESTAMP, writer->monotonic + time);
	if (writer->interned.n)
		protobuf_message(&writer->packet, PACKET_INTERNED, &writer->interned);
	protobuf_message(&writer->packet, PACKET_TRACK_EVENT, &writer->event);
	writer->packet.failed |= writer->interned.failed;
	return put_packet(writer);
}

/* A track's number in the file; that of a counter is beside that of its process. */
static uint64_t track_uuid(const struct trace_track_key *key, unsigned lane) {
	const uint64_t words[] = { key->kind, (uint64_t)key->pid << 32 | key->id, key->context,
				   key->stream, lane };

	return trace_hash(0, words, sizeof(words));
}

static void begin_descriptor(struct trace_writer *writer, uint64_t uuid, uint64_t parent) {
	begin_packet(writer, SEQUENCE);
	/* ended by end_descriptor(), with nothing behind it */
	writer->event.n = 0;
	protobuf_varint(&writer->event, DESCRIPTOR_UUID, uuid);
	if (parent)
		protobuf_varint(&writer->event, DESCRIPTOR_PARENT, parent);
}

static int end_descriptor(struct trace_writer *writer) {
	protobuf_message(&writer->packet, PACKET_TRACK_DESCRIPTOR, &writer->event);
	return put_packet(writer);
}

static int describe_process(struct trace_writer *writer, const struct trace_item *item) {
	const struct trace_track_key key = { .kind = TRACK_PROCESS, .pid = item->pid };
	char name[32];
	size_t mark;

	if (!trace_track_is_news(writer->tracks, &key, 0, trace_process_name(item, name)))
		return 0;
	begin_descriptor(writer, track_uuid(&key, 0), 0);
	mark = protobuf_begin(&writer->event, DESCRIPTOR_PROCESS);
	protobuf_varint(&writer->event, PROCESS_PID, item->pid);
	if (item->process->exe && *item->process->exe)
		protobuf_string(&writer->event, PROCESS_CMDLINE, item->process->exe);
	protobuf_string(&writer->event, PROCESS_NAME, name);
	protobuf_end(&writer->event, mark);
	return end_descriptor(writer);
}

/* A thread is one for readers only in its first lane; the others are beneath it. */
static int describe_thread(struct trace_writer *writer, const struct trace_track_key *key,
			   unsigned lane, const char *name) {
	const struct trace_track_key process = { .kind = TRACK_PROCESS, .pid = key->pid };
	size_t mark;

	if (!trace_track_is_news(writer->tracks, key, lane, name))
		return 0;
	begin_descriptor(writer, track_uuid(key, lane),
			 lane ? track_uuid(key, 0) : track_uuid(&process, 0));
	if (lane) {
		protobuf_string(&writer->event, DESCRIPTOR_NAME, "overlapping");
		return end_descriptor(writer);
	}
	mark = protobuf_begin(&writer->event, DESCRIPTOR_THREAD);
	protobuf_varint(&writer->event, THREAD_PID, key->pid);
	protobuf_varint(&writer->event, THREAD_TID, key->id);
	if (*name)
		protobuf_string(&writer->event, THREAD_NAME, name);
	protobuf_end(&writer->event, mark);
	return end_descriptor(writer);
}

/* Any other track: of a name alone, beneath its process if it has one. */
static int describe_named(struct trace_writer *writer, const struct trace_track_key *key,
			  unsigned lane, const char *name) {
	const struct trace_track_key process = { .kind = TRACK_PROCESS, .pid = key->pid };

	if (!trace_track_is_news(writer->tracks, key, lane, name))
		return 0;
	begin_descriptor(writer, track_uuid(key, lane), key->pid ? track_uuid(&process, 0) : 0);
	protobuf_string(&writer->event, DESCRIPTOR_NAME, name);
	return end_descriptor(writer);
}

/* The track of an item, which is described first if need be. */
static int place_item(struct trace_writer *writer, const struct trace_item *item, uint64_t *uuidp) {
	struct trace_track_key key = trace_track_of(item);
	unsigned lane = item->instant ? 0
				      : trace_track_lane(trace_tracks_get(writer->tracks, &key),
							 item->start, item->end);
	char name[64];
	int r = 0;

	*uuidp = track_uuid(&key, lane);
	if (item->pid)
		r = describe_process(writer, item);
	if (r < 0)
		return r;
	if (key.kind == TRACK_THREAD) {
		if (lane)
			r = describe_thread(writer, &key, 0, item->thread);
		return r < 0 ? r : describe_thread(writer, &key, lane, item->thread);
	}
	if (key.kind == TRACK_CPU)
		snprintf(name, sizeof(name), "interrupts on CPU %" PRIu64, key.id);
	else if (key.kind == TRACK_GPU)
		snprintf(name, sizeof(name), "GPU %" PRIu64, key.id);
	else if (key.kind == TRACK_CONTEXTS)
		snprintf(name, sizeof(name), "GPU %" PRIu64 " contexts", key.id);
	else
		snprintf(name, sizeof(name), "GPU %" PRIu64 " stream 0x%" PRIx64, key.id,
			 key.stream);
	return describe_named(writer, &key, lane, name);
}

/* How much memory of GPUs a process has from now on. */
static int put_memory(struct trace_writer *writer, const struct trace_item *item, uint64_t bytes) {
	const struct trace_track_key process = { .kind = TRACK_PROCESS, .pid = item->pid };
	/* a lane that no process has */
	uint64_t uuid = track_uuid(&process, TRACK_LANES);
	size_t mark;

	if (trace_track_is_news(
		    writer->tracks,
		    &(struct trace_track_key){ .kind = TRACK_PROCESS, .pid = item->pid, .id = 1 },
		    0, "")) {
		int r;

		begin_descriptor(writer, uuid, track_uuid(&process, 0));
		protobuf_string(&writer->event, DESCRIPTOR_NAME, "GPU memory in use");
		mark = protobuf_begin(&writer->event, DESCRIPTOR_COUNTER);
		protobuf_varint(&writer->event, COUNTER_UNIT, UNIT_SIZE_BYTES);
		protobuf_end(&writer->event, mark);
		r = end_descriptor(writer);
		if (r < 0)
			return r;
	}
	begin_event(writer, TYPE_COUNTER, uuid);
	protobuf_varint(&writer->event, EVENT_COUNTER_VALUE, bytes);
	return put_event(writer, item->end);
}

/* The number of a value of that name, or another one. */
static uint64_t number_of(const struct trace_item *item, const char *name, uint64_t other) {
	for (size_t i = 0; i < item->n_values; i++)
		if (strcmp(item->values[i].name, name) == 0)
			return (uint64_t)item->values[i].number;
	return other;
}

/*
 * A pair of clocks, if both have gone on since the last one: readers refuse a clock that runs
 * backwards. The host's time may lie before the beginning of the trace, where the item's cannot.
 */
static int put_clocks(struct trace_writer *writer, const struct trace_item *item) {
	const struct trace_track_key key = { .kind = TRACK_CLOCK,
					     .pid = item->pid,
					     .id = item->device };
	struct trace_track *track = trace_tracks_get(writer->tracks, &key);
	const uint64_t gpu = number_of(item, "gpu_time", 0),
		       host = number_of(item, "host_time", writer->monotonic + item->start);

	if (gpu <= track->last.start || host <= track->last.end)
		return 0;
	track->last = (struct trace_span){ gpu, host };
	return put_snapshot(writer, SEQUENCE + track->number, host, GPU_CLOCK, gpu);
}

/* All that a span's beginning, or an instant, says. */
static void put_details(struct trace_writer *writer, const struct trace_item *item) {
	size_t i = 0, end = item->n_values;

	put_interned(writer, INTERNED_CATEGORIES, item->class, EVENT_CATEGORY_IIDS,
		     EVENT_CATEGORIES);
	put_interned(writer, INTERNED_NAMES, *item->name ? item->name : "graph", EVENT_NAME_IID,
		     EVENT_NAME);
	while (i < end)
		put_value(writer, item, &i, end, EVENT_ANNOTATIONS, 0);
	put_facts(writer, item);
	/* of kernels, too: a flow that one of them ended would not go on to the others of a graph
	 */
	if (item->flow)
		protobuf_fixed64(&writer->event, EVENT_FLOWS, item->flow);
}

static int perfetto_item(struct trace_writer *writer, const struct trace_item *item) {
	uint64_t uuid = 0, bytes;
	int r;

	if (intern_is_full(writer->intern)) {
		intern_clear(writer->intern);
		writer->begun = false;
	}
	r = item->kind == EVENT_CLOCK ? put_clocks(writer, item) : 0;
	if (!r)
		r = place_item(writer, item, &uuid);
	if (r < 0)
		return r;
	begin_event(writer, item->instant ? TYPE_INSTANT : TYPE_BEGIN, uuid);
	put_details(writer, item);
	r = put_event(writer, item->start);
	/* of an open one, too: its process may have ended long before the trace, and its pid be
	 * another's */
	if (!r && !item->instant) {
		begin_event(writer, TYPE_END, uuid);
		r = put_event(writer, item->end);
	}
	if (!r && trace_in_use_item(writer->in_use, item, &bytes))
		r = put_memory(writer, item, bytes);
	return r;
}

static int perfetto_close(struct trace_writer *writer, bool complete) {
	if (writer) {
		protobuf_deinit(&writer->packet);
		protobuf_deinit(&writer->event);
		protobuf_deinit(&writer->interned);
		trace_tracks_free(writer->tracks);
		trace_in_use_free(writer->in_use);
		intern_free(writer->intern);
	}
	free(writer);
	return 0;
}

static int perfetto_open(struct trace_writer **writerp, FILE *out,
			 const struct trace_about *about) {
	struct trace_writer *writer = calloc(1, sizeof(*writer));
	int r = writer ? trace_tracks_new(&writer->tracks) : -ENOMEM;

	if (!r)
		r = trace_in_use_new(&writer->in_use);
	if (!r)
		r = intern_new(&writer->intern);
	if (!r) {
		writer->out = out;
		writer->monotonic = about->monotonic;
		r = put_snapshot(writer, SEQUENCE, about->monotonic, CLOCK_REALTIME_ID,
				 about->realtime);
	}
	if (r < 0) {
		perfetto_close(writer, false);
		return r;
	}
	*writerp = writer;
	return 0;
}

const struct trace_format trace_format_perfetto = { "perfetto", ".pftrace", perfetto_open,
						    perfetto_item, perfetto_close };
