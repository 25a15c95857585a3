/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `chrome`.
 *
 * Chrome's Trace Event Format, as chrome://tracing, Perfetto and Speedscope read it: an object with
 * traceEvents, microseconds with three decimals since the trace's beginning. Threads are threads.
 * Streams of a GPU are the threads of a process of their own, whose pid is no process's: Linux has
 * none from 2^22.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "in-use.h"
#include "ctl/trace/base/item.h"
#include "ctl/trace/base/out.h"
#include "ctl/trace/base/track.h"

#define PID_LIMIT (UINT32_C(1) << 22)
#define GROUP_DEPTH 8
#define END "\n]}\n" /* shorter than any event, which overwrites it */

struct trace_writer {
	FILE *file;
	struct trace_out out;
	struct trace_tracks *tracks;
	struct trace_in_use *in_use;
	bool some; /* an event was written */
};

/* The beginning of an event, up to what is special about its phase. */
static void begin_event(struct trace_writer *writer, char phase, uint64_t pid, uint64_t tid) {
	out_text(&writer->out, writer->some ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
	out_char(&writer->out, phase);
	out_literal(&writer->out, "\",\"pid\":");
	out_uint(&writer->out, pid);
	out_literal(&writer->out, ",\"tid\":");
	out_uint(&writer->out, tid);
	writer->some = true;
}

/* Microseconds; what: with comma and colon. */
static void put_time(struct trace_writer *writer, const char *what, uint64_t ns) {
	out_text(&writer->out, what);
	out_fixed(&writer->out, ns, 3);
}

static void put_name(struct trace_writer *writer, const char *name, const char *category) {
	out_literal(&writer->out, ",\"name\":");
	out_json(&writer->out, name);
	out_literal(&writer->out, ",\"cat\":");
	out_json(&writer->out, category);
}

static void put_values(struct trace_writer *writer, const struct trace_item *item, size_t *i,
		       size_t end, size_t n, unsigned depth);

static void put_value(struct trace_writer *writer, const struct trace_item *item, size_t *i,
		      size_t end, unsigned depth) {
	const struct trace_value *value = item->values + (*i)++;
	struct trace_out *out = &writer->out;

	if (value->kind == VALUE_GROUP) {
		out_char(out, '{');
		if (depth < GROUP_DEPTH)
			put_values(writer, item, i, end, (size_t)value->number, depth + 1);
		out_char(out, '}');
	} else if (value->kind == VALUE_FLOAT && !isfinite(value->real)) {
		/* JSON has only finite ones */
		out_text(out, isnan(value->real) ? "\"nan\""
			      : value->real < 0  ? "\"-inf\""
						 : "\"inf\"");
	} else {
		trace_value_json(out, value);
	}
}

/* Up to n members from *i on, which lie before end. A name that comes twice has its number behind
 * it. */
static void put_values(struct trace_writer *writer, const struct trace_item *item, size_t *i,
		       size_t end, size_t n, unsigned depth) {
	const size_t first = *i;

	for (size_t done = 0; done < n && *i < end; done++) {
		const char *name = item->values[*i].name;
		bool twice = false;

		for (size_t k = first; k < *i; k++)
			twice |= strcmp(item->values[k].name, name) == 0;
		out_text(&writer->out, done ? "," : "");
		if (twice) {
			char numbered[128];

			snprintf(numbered, sizeof(numbered), "%.100s#%zu", name, *i);
			out_json(&writer->out, numbered);
		} else {
			out_json(&writer->out, name);
		}
		out_char(&writer->out, ':');
		put_value(writer, item, i, end, depth);
	}
}

static void put_fact(struct trace_out *out, const char *name, const char *text) {
	out_text(out, name);
	out_json(out, text);
}

/* What is known of an item besides the values: each under a name that no argument has. */
static void put_facts(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *out = &writer->out;

	out_literal(out, "\"=id\":");
	out_uint(out, item->id);
	if (item->has_result && item->result_name) {
		put_fact(out, ",\"=result\":", item->result_name);
	} else if (item->has_result) {
		out_literal(out, ",\"=result\":");
		out_json_int(out, item->result);
	}
	out_text(out, item->failed ? ",\"=failed\":true" : "");
	out_text(out, item->open ? ",\"=open\":true" : "");
	if (item->size) {
		out_literal(out, ",\"=size\":");
		out_json_uint(out, item->size);
	}
	if (item->kernel)
		put_fact(out, ",\"=kernel\":", item->kernel);
	if (item->kind == EVENT_KERNEL || item->error) {
		out_literal(out, ",\"=error_ns\":");
		out_uint(out, item->error);
	}
	if (item->kind == EVENT_LOST) {
		out_literal(out, ",\"=count\":");
		out_json_uint(out, item->count);
	}
	if (item->violation)
		put_fact(out, ",\"=violation\":", item->violation);
	for (size_t i = 0; i < item->n_frames; i++)
		put_fact(out, i ? "," : ",\"=stack\":[", item->frames[i]);
	out_text(out, item->n_frames ? "]" : "");
}

static void put_args(struct trace_writer *writer, const struct trace_item *item) {
	size_t i = 0, end = item->n_values;

	out_literal(&writer->out, ",\"args\":{");
	put_values(writer, item, &i, end, end, 0);
	out_text(&writer->out, end ? "," : "");
	put_facts(writer, item);
	out_literal(&writer->out, "}}");
}

/* Names a process or a thread, if that has not been done, or was done with another name. */
static void put_metadata(struct trace_writer *writer, const struct trace_track_key *key,
			 unsigned lane, const char *what, uint64_t pid, uint64_t tid,
			 const char *name) {
	if (!trace_track_is_news(writer->tracks, key, lane, name))
		return;
	begin_event(writer, 'M', pid, tid);
	out_literal(&writer->out, ",\"name\":\"");
	out_text(&writer->out, what);
	out_literal(&writer->out, "\",\"args\":{\"name\":");
	out_json(&writer->out, name);
	out_literal(&writer->out, "}}");
}

/* Where an item goes: its process and thread, both with names. */
static void place_item(struct trace_writer *writer, const struct trace_item *item, uint64_t *pidp,
		       uint64_t *tidp) {
	struct trace_track_key key = trace_track_of(item);
	struct trace_track_key process = { .kind = TRACK_PROCESS, .pid = item->pid };
	struct trace_track *track = trace_tracks_get(writer->tracks, &key);
	unsigned lane = item->instant ? 0 : trace_track_lane(track, item->start, item->end);
	uint32_t number = track->number;
	char owner[32], name[128];

	trace_process_name(item, owner);
	*pidp = item->pid;
	if (key.kind == TRACK_STREAM || key.kind == TRACK_GPU) {
		*pidp |= ((uint64_t)item->device % 1000 + 1) * PID_LIMIT;
		*tidp = key.kind == TRACK_GPU ? 0 : (uint64_t)number * TRACK_LANES + lane;
		process = (struct trace_track_key){ .kind = TRACK_GPU,
						    .pid = item->pid,
						    .id = item->device };
		snprintf(name, sizeof(name),
			 item->pid ? "GPU %" PRIu32 " of %s (%" PRIu32 ")" : "GPU %" PRIu32,
			 item->device, owner, item->pid);
		put_metadata(writer, &process, 0, "process_name", *pidp, 0, name);
		snprintf(name, sizeof(name), "stream 0x%" PRIx64, item->stream);
	} else if (key.kind == TRACK_CONTEXTS) {
		*pidp = ((uint64_t)item->device % 1000 + 1) * PID_LIMIT;
		*tidp = (uint64_t)number * TRACK_LANES + lane;
		process = (struct trace_track_key){ .kind = TRACK_GPU, .id = item->device };
		snprintf(name, sizeof(name), "GPU %" PRIu32, item->device);
		put_metadata(writer, &process, 0, "process_name", *pidp, 0, name);
		snprintf(name, sizeof(name), "contexts");
	} else if (key.kind == TRACK_CPU) {
		*tidp = key.id + (uint64_t)lane * PID_LIMIT;
		put_metadata(writer, &process, 0, "process_name", 0, 0, "interrupts");
		snprintf(name, sizeof(name), "CPU %" PRIu64, key.id);
	} else {
		*tidp = key.id + (uint64_t)lane * PID_LIMIT;
		put_metadata(writer, &process, 0, "process_name", *pidp, 0, owner);
		snprintf(name, sizeof(name), "%.64s", *item->thread ? item->thread : owner);
	}
	if (key.kind != TRACK_GPU)
		put_metadata(writer, &key, lane, "thread_name", *pidp, *tidp, name);
}

/*
 * An end of the arrow from a launch to what it launched. Both lie within their slices. Viewers know
 * no arrow that ends before it begins: that of a kernel that starts before its launch ends just
 * behind the launch's start.
 */
static void put_flow(struct trace_writer *writer, const struct trace_item *item, uint64_t pid,
		     uint64_t tid) {
	bool to = item->kind == EVENT_KERNEL;
	uint64_t time = item->start;

	if (to && item->launched >= time && item->launched < item->end)
		time = item->launched + 1;
	begin_event(writer, to ? 'f' : 's', pid, tid);
	put_time(writer, ",\"ts\":", time);
	out_literal(&writer->out, ",\"name\":\"launch\",\"cat\":\"flow\",\"id\":\"");
	out_hex(&writer->out, item->flow);
	out_text(&writer->out, to ? "\",\"bp\":\"e\"}" : "\"}");
}

static void put_memory(struct trace_writer *writer, uint64_t pid, uint64_t time, uint64_t bytes) {
	begin_event(writer, 'C', pid, 0);
	put_time(writer, ",\"ts\":", time);
	out_literal(&writer->out, ",\"name\":\"GPU memory in use\",\"args\":{\"bytes\":");
	out_uint(&writer->out, bytes);
	out_literal(&writer->out, "}}");
}

static int chrome_item(struct trace_writer *writer, const struct trace_item *item) {
	uint64_t pid, tid, bytes;

	place_item(writer, item, &pid, &tid);
	begin_event(writer, item->instant ? 'i' : 'X', pid, tid);
	put_time(writer, ",\"ts\":", item->start);
	if (item->instant)
		/* a loss, and what is of a process, is to be seen in all of its height */
		out_text(&writer->out, item->kind == EVENT_HOOK                 ? ",\"s\":\"t\""
				       : item->kind == EVENT_LOST && !item->pid ? ",\"s\":\"g\""
										: ",\"s\":\"p\"");
	else
		put_time(writer, ",\"dur\":", item->end - item->start);
	put_name(writer, *item->name ? item->name : "graph", item->class);
	put_args(writer, item);
	if (item->flow && !item->instant)
		put_flow(writer, item, pid, tid);
	if (trace_in_use_item(writer->in_use, item, &bytes))
		put_memory(writer, pid, item->end, bytes);
	return out_write(&writer->out, writer->file);
}

static void chrome_free(struct trace_writer *writer) {
	if (writer) {
		trace_tracks_free(writer->tracks);
		trace_in_use_free(writer->in_use);
		free(writer->out.text);
	}
	free(writer);
}

/* A text of fixed size. */
static void put_about(struct trace_writer *writer, const char *name, const char *text,
		      size_t size) {
	char copy[65];
	size_t n = strnlen(text, size);

	memcpy(copy, text, n);
	copy[n] = '\0';
	out_text(&writer->out, name);
	out_json(&writer->out, copy);
}

static int chrome_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	struct trace_writer *writer = calloc(1, sizeof(*writer));
	int r = writer ? trace_tracks_new(&writer->tracks) : -ENOMEM;

	if (!r)
		r = trace_in_use_new(&writer->in_use);
	if (!r) {
		writer->file = file;
		out_literal(&writer->out,
			    "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"monotonic_ns\":\"");
		out_uint(&writer->out, about->monotonic);
		out_literal(&writer->out, "\",\"realtime_ns\":\"");
		out_uint(&writer->out, about->realtime);
		put_about(writer, "\",\"host\":", about->host, sizeof(about->host));
		put_about(writer, ",\"driver\":", about->driver, sizeof(about->driver));
		put_about(writer, ",\"gpuprobed\":", about->daemon, sizeof(about->daemon));
		out_literal(&writer->out, "},\"traceEvents\":[");
		r = out_write(&writer->out, file);
	}
	if (r < 0) {
		chrome_free(writer);
		return r;
	}
	*writerp = writer;
	return 0;
}

static int chrome_close(struct trace_writer *writer, bool complete) {
	fputs(END, writer->file);
	chrome_free(writer);
	return 0;
}

const struct trace_format trace_format_chrome = { "chrome",    ".json",      chrome_open,
						  chrome_item, chrome_close, END };
