/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `jsonl`.
 *
 * JSON, one object a line, none longer than JSONL_LINE_MAX; strings are UTF-8. `gpuprobectl trace
 * report` reads it back. A member that would be 0, empty or unknown is left out, and readers pass
 * over members that they do not know. A superset of what the seeds' tools wrote.
 *
 * The first line:
 *   {"type":"start","format":"gpuprobe-trace","version":1,"monotonic":NS,"realtime":NS,
 *    "host":TEXT,"driver":TEXT,"daemon":TEXT}
 * monotonic and realtime are one moment: CLOCK_MONOTONIC, and nanoseconds since the epoch. The last
 * line, which a trace that was cut off lacks:
 *   {"type":"stop","events":N,"lost":N}
 * Each other line is an event, in the order of ts_ns as far as it could be kept:
 *   event_id     from 1, in the order of lines
 *   ts           milliseconds since the beginning; ts_ns the same in nanoseconds
 *   type         userspace: a call of a cu* function; ioctl; kernel: a hook of the kernel, or a
 *                probe; gpu: something ran on the GPU; ctxsw: a context was on the GPU, from one
 *                context switch to the next; process; clock: how the clocks of GPU and host relate;
 *                lost: events that were lost; note: its name says what of the trace cannot be had,
 *                and why
 *   name         cuMemAlloc_v2, NV_ESC_RM_CONTROL, nvidia:nv_dma_map_alloc, vectorAdd(float*, int),
 *                python[4711]; of a process seen, fork, exec, exit
 *   base         name without version and stream suffix, if that is another
 *   class        launch, memory, transfer, ..., ioctl, uvm; the set of a hook
 *   phase        X: it has a duration; B: it was still running when the trace ended; i: a point in
 *                time
 *   dur_ns       duration; duration_us the same in microseconds
 *   pid, tid, comm (of the process), thread (its comm, if another), cpu
 *   source       shim, bpf, gpu, daemon
 *   parent       event_id of the event around it in its thread; of gpu that of the launch
 *   flow         the same number in a launch and what it put on the GPU
 *   sequence     of the thread's calls
 *   cmd          of an ioctl: its whole number
 *   ret, ret_name, failed
 *   size         bytes that were allocated, freed or copied
 *   stream, context (hexadecimal in a string), device
 *   kernel       of a launch or gpu: the mangled name
 *   count        of lost
 *   error_ns     of gpu, ctxsw and clock: how far off times may be
 *   violation    what is impossible about its times
 *   parent_pid, uid, exe, status   of a process
 *   args, out    objects: arguments, and what they were at the return. Numbers, as strings beyond
 *                2^53 and those of ids (streamId); pointers, handles and flags as "0x1f"; names of
 *                enumerators, classes and commands as strings, or numbers if they have none; bytes
 *                in hexadecimal; structs as objects. A name that another one of the object has is
 *                followed by a number: flags, flags#7
 *   stack        innermost first
 */

#include <errno.h>
#include <math.h>

#include "ctl/trace/base/item.h"
#include "ctl/trace/base/out.h"

#define JSONL_LINE_MAX 65536
/* Of texts, as they are written: those that an event has besides arguments and stack take no more
 * than three quarters of a line. */
#define JSONL_NAME_MAX 16384
#define JSONL_TEXT_MAX 4096

struct trace_writer {
	FILE *file;
	struct trace_out line;
	uint64_t n_items, lost;
};

static void member(struct trace_out *line, const char *key) {
	out_literal(line, ",\"");
	out_text(line, key);
	out_literal(line, "\":");
}

static void member_text(struct trace_out *line, const char *key, const char *text) {
	if (!text || !*text)
		return;
	member(line, key);
	out_json_cut(line, text, JSONL_TEXT_MAX);
}

static void member_uint(struct trace_out *line, const char *key, uint64_t number) {
	if (!number)
		return;
	member(line, key);
	out_uint(line, number);
}

static void member_hex(struct trace_out *line, const char *key, uint64_t number) {
	if (!number)
		return;
	member(line, key);
	out_char(line, '"');
	out_hex(line, number);
	out_char(line, '"');
}

/* How many of n values the first one is, with the members of its group. */
static size_t count_values(const struct trace_value *values, size_t n) {
	size_t i = 1;

	for (int64_t member = 0; values->kind == VALUE_GROUP && member < values->number && i < n;
	     member++)
		i += count_values(values + i, n - i);
	return i;
}

/* Whether one before it in the same object has its name: an ioctl and its parameters may both have
 * flags. */
static bool is_second(const struct trace_value *first, const struct trace_value *value) {
	for (; first < value; first += count_values(first, (size_t)(value - first)))
		if (first->out == value->out && !strcmp(first->name, value->name))
			return true;
	return false;
}

static size_t put_value(struct trace_out *line, const struct trace_value *values, size_t n);

/* "name":value of the first of n values, and of the members of its group. Returns how many these
 * are. siblings: the first one in its object. */
static size_t put_named(struct trace_out *line, const struct trace_value *siblings,
			const struct trace_value *values, size_t n) {
	out_json(line, values->name);
	if (is_second(siblings, values)) {
		line->n--; /* the quote */
		out_char(line, '#');
		out_uint(line, (uint64_t)(values - siblings));
		out_char(line, '"');
	}
	out_char(line, ':');
	return put_value(line, values, n);
}

static size_t put_group(struct trace_out *line, const struct trace_value *values, size_t n) {
	size_t i = 1;

	out_char(line, '{');
	for (int64_t member = 0; member < values->number && i < n; member++) {
		if (member)
			out_char(line, ',');
		i += put_named(line, values + 1, values + i, n - i);
	}
	out_char(line, '}');
	return i;
}

static size_t put_value(struct trace_out *line, const struct trace_value *values, size_t n) {
	if (values->kind == VALUE_GROUP)
		return put_group(line, values, n);
	if (values->kind == VALUE_FLOAT && !isfinite(values->real))
		out_literal(line, "null");
	else
		trace_value_json(line, values);
	return 1;
}

/* The values that are (or are not) of the return. */
static void put_values(struct trace_out *line, const struct trace_item *item, const char *key,
		       bool out) {
	bool first = true;
	size_t i = 0;

	while (i < item->n_values) {
		const struct trace_value *value = &item->values[i];

		if (value->out != out) { /* members are as their struct is */
			i++;
			continue;
		}
		if (first) {
			member(line, key);
			out_char(line, '{');
		} else {
			out_char(line, ',');
		}
		first = false;
		i += put_named(line, item->values, value, item->n_values - i);
	}
	if (!first)
		out_char(line, '}');
}

static void put_stack(struct trace_out *line, const struct trace_item *item) {
	if (!item->n_frames)
		return;
	out_literal(line, ",\"stack\":[");
	for (size_t i = 0; i < item->n_frames && line->n < JSONL_LINE_MAX - 8192; i++) {
		if (i)
			out_char(line, ',');
		out_json_cut(line, item->frames[i], JSONL_TEXT_MAX);
	}
	out_char(line, ']');
}

static void put_process(struct trace_out *line, const struct trace_item *item) {
	member_uint(line, "parent_pid", item->process->parent);
	member_uint(line, "uid", item->process->uid);
	member_text(line, "exe", item->process->exe);
	for (size_t i = 0; i < item->n_values; i++)
		if (!strcmp(item->values[i].name, "status")) {
			member(line, "status");
			out_int(line, item->values[i].number);
		}
}

static void put_head(struct trace_out *line, const struct trace_item *item) {
	out_literal(line, "{\"event_id\":");
	out_uint(line, item->id);
	out_literal(line, ",\"ts\":");
	out_fixed(line, item->start, 6);
	out_literal(line, ",\"type\":\"");
	out_text(line, trace_kind_name(item->kind));
	out_literal(line, "\",\"name\":");
	out_json_cut(line, item->name, JSONL_NAME_MAX);
	if (strcmp(item->base, item->name))
		member_text(line, "base", item->base);
	member_text(line, "class", item->class);
	member(line, "phase");
	out_text(line, item->instant ? "\"i\"" : item->open ? "\"B\"" : "\"X\"");
	member(line, "ts_ns");
	out_uint(line, item->start);
	if (item->instant)
		return;
	member(line, "dur_ns");
	out_uint(line, item->end - item->start);
	member(line, "duration_us");
	out_fixed(line, item->end - item->start, 3);
}

static void put_rest(struct trace_out *line, const struct trace_item *item) {
	member_uint(line, "pid", item->pid);
	member_uint(line, "tid", item->tid);
	member_uint(line, "cpu", item->cpu);
	member_text(line, "comm", item->process->comm);
	if (strcmp(item->thread, item->process->comm))
		member_text(line, "thread", item->thread);
	member_text(line, "source", trace_source_name(item->source));
	member_uint(line, "parent", item->parent);
	member_uint(line, "flow", item->flow);
	member_uint(line, "sequence", item->sequence);
	member_uint(line, "cmd", item->command);
	if (item->has_result) {
		member(line, "ret");
		out_json_int(line, item->result);
	}
	member_text(line, "ret_name", item->result_name);
	if (item->failed)
		out_literal(line, ",\"failed\":true");
	if (item->size) {
		member(line, "size");
		out_json_uint(line, item->size);
	}
	member_hex(line, "stream", item->stream);
	member_hex(line, "context", item->context);
	member_uint(line, "device", item->device);
	member_text(line, "kernel", item->kernel);
	member_uint(line, "count", item->count);
	member_uint(line, "error_ns", item->error);
	member_text(line, "violation", item->violation);
}

static int jsonl_item(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *line = &writer->line;
	size_t n;

	put_head(line, item);
	put_rest(line, item);
	n = line->n;
	if (item->kind == EVENT_PROCESS) {
		put_process(line, item);
	} else {
		put_values(line, item, "args", false);
		put_values(line, item, "out", true);
	}
	if (line->n > JSONL_LINE_MAX - 8192)
		line->n = n; /* texts that are nothing but escapes */
	put_stack(line, item);
	out_literal(line, "}\n");
	writer->n_items++;
	writer->lost += item->kind == EVENT_LOST ? item->count : 0;
	return out_write(line, writer->file);
}

static int jsonl_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	struct trace_writer *writer = calloc(1, sizeof(*writer));
	struct trace_out *line;

	if (!writer)
		return -ENOMEM;
	writer->file = file;
	line = &writer->line;
	out_literal(line, "{\"type\":\"start\",\"format\":\"gpuprobe-trace\",\"version\":1");
	member_uint(line, "monotonic", about->monotonic);
	member_uint(line, "realtime", about->realtime);
	member_text(line, "host", about->host);
	member_text(line, "driver", about->driver);
	member_text(line, "daemon", about->daemon);
	out_literal(line, "}\n");
	*writerp = writer;
	return out_write(line, file);
}

static int jsonl_close(struct trace_writer *writer, bool complete) {
	struct trace_out *line = &writer->line;
	int r = 0;

	if (complete) {
		out_literal(line, "{\"type\":\"stop\",\"events\":");
		out_uint(line, writer->n_items);
		member(line, "lost");
		out_uint(line, writer->lost);
		out_literal(line, "}\n");
		r = out_write(line, writer->file);
	}
	free(line->text);
	free(writer);
	return r;
}

const struct trace_format trace_format_jsonl = { "jsonl", ".jsonl", jsonl_open, jsonl_item,
						 jsonl_close };
