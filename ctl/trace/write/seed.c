/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The lines of the seeds' tools, for scripts that were made for them: event_id, ts (milliseconds
 * since the beginning), tid, type, name, phase (B, E), cmd, duration_us, size, decoded, fence;
 * nothing else, so what has no place there (processes, clocks, losses) is left out. A span is two
 * lines. Ends wait in a heap until no line before them can come any more.
 *
 *   a call         userspace B and E; an allocation has a line of type memory with its size before
 *                  that
 *   an ioctl       syscall with cmd, kernel nvidia_ioctl B; at its end kernel E, and ioctl with its
 *                  decoded number
 *   a hook         kernel, or scheduler (driver work), kernel_mem (memory)
 *   on the GPU     gpu_complete at the end
 */

#include <errno.h>

#include "ctl/trace/base/heap.h"
#include "ctl/trace/base/item.h"
#include "ctl/trace/base/out.h"

#define SEED_NAME_MAX                                                              \
	16384 /* bytes as they are written: lines are short enough to be read back \
	       */

struct pending {
	uint64_t time, order;
	char *text; /* of the line, behind the timestamp */
};

struct trace_writer {
	FILE *file;
	struct trace_out line, later;
	uint64_t n_lines, n_pending_ever;
	struct trace_heap pending; /* of struct pending */
};

static bool goes_first(const void *a, const void *b) {
	const struct pending *x = a, *y = b;

	return x->time != y->time ? x->time < y->time
				  : x->order > y->order; /* the inner one ends first */
}

/* {"event_id":1,"ts":0.001000 and what follows */
static int write_line(struct trace_writer *writer, uint64_t time, const char *rest, size_t n) {
	struct trace_out *line = &writer->line;

	out_literal(line, "{\"event_id\":");
	out_uint(line, ++writer->n_lines);
	out_literal(line, ",\"ts\":");
	out_fixed(line, time, 6);
	out_bytes(line, rest, n);
	out_literal(line, "}\n");
	return out_write(line, writer->file);
}

static int write_pending(struct trace_writer *writer, uint64_t until) {
	struct pending pending;
	int r = 0;

	while (!r && writer->pending.n &&
	       ((const struct pending *)(const void *)writer->pending.entries)->time <= until) {
		trace_heap_pop(&writer->pending, &pending, sizeof(pending), goes_first);
		r = write_line(writer, pending.time, pending.text, strlen(pending.text));
		free(pending.text);
	}
	return r;
}

/* Begins the rest of a line in writer->later. */
static struct trace_out *begin(struct trace_writer *writer, const struct trace_item *item,
			       const char *type, const char *name) {
	struct trace_out *out = &writer->later;

	out->n = 0;
	out_literal(out, ",\"tid\":");
	out_uint(out, item->tid);
	out_literal(out, ",\"type\":\"");
	out_text(out, type);
	out_literal(out, "\",\"name\":");
	out_json_cut(out, name, SEED_NAME_MAX);
	return out;
}

static void put_size(struct trace_out *out, const struct trace_item *item) {
	if (!item->size)
		return;
	out_literal(out, ",\"size\":");
	out_uint(out, item->size);
}

static void put_duration(struct trace_out *out, const struct trace_item *item) {
	out_literal(out, ",\"duration_us\":");
	out_fixed(out, item->end - item->start, 3);
}

static int write_now(struct trace_writer *writer, const struct trace_item *item) {
	if (writer->later.failed)
		return -ENOMEM;
	return write_line(writer, item->start, writer->later.text, writer->later.n);
}

static int write_at_end(struct trace_writer *writer, const struct trace_item *item) {
	struct pending pending = { .time = item->end, .order = ++writer->n_pending_ever };
	int r;

	out_char(&writer->later, '\0');
	pending.text = writer->later.failed ? NULL : strdup(writer->later.text);
	r = pending.text ? trace_heap_push(&writer->pending, &pending, sizeof(pending), goes_first)
			 : -ENOMEM;
	if (r)
		free(pending.text);
	return r;
}

/* B and E of a span; an open one has no end. */
static int write_span(struct trace_writer *writer, const struct trace_item *item, const char *type,
		      const char *name) {
	struct trace_out *out = begin(writer, item, type, name);
	int r;

	out_literal(out, ",\"phase\":\"B\"");
	put_size(out, item);
	r = write_now(writer, item);
	if (r || item->open)
		return r;
	out = begin(writer, item, type, name);
	out_literal(out, ",\"phase\":\"E\"");
	put_duration(out, item);
	return write_at_end(writer, item);
}

static bool is_allocation(const struct trace_item *item) {
	return !strcmp(item->class, "memory") && item->size && !item->failed &&
	       (strstr(item->base, "Alloc") || strstr(item->base, "Create"));
}

static int write_call(struct trace_writer *writer, const struct trace_item *item) {
	int r = 0;

	if (is_allocation(item)) {
		put_size(begin(writer, item, "memory", item->name), item);
		r = write_now(writer, item);
	}
	return r ?: write_span(writer, item, "userspace", item->name);
}

static void put_command(struct trace_out *out, uint32_t command) {
	out_literal(out, ",\"cmd\":");
	out_uint(out, command);
}

static int write_ioctl(struct trace_writer *writer, const struct trace_item *item) {
	const uint32_t command = item->command;
	struct trace_out *out;
	int r;

	put_command(begin(writer, item, "syscall", "ioctl"), command);
	r = write_now(writer, item);
	if (!r)
		r = write_span(writer, item, "kernel", "nvidia_ioctl");
	if (r)
		return r;
	out = begin(writer, item, "ioctl", item->name);
	put_command(out, command);
	out_literal(out, ",\"decoded\":{\"dir\":");
	out_uint(out, command >> 30);
	out_literal(out, ",\"type\":");
	out_uint(out, command >> 8 & 0xff);
	out_literal(out, ",\"nr\":");
	out_uint(out, command & 0xff);
	out_literal(out, ",\"size\":");
	out_uint(out, command >> 16 & 0x3fff);
	out_char(out, '}');
	if (!item->open)
		put_duration(out, item);
	return write_at_end(writer, item);
}

static int write_hook(struct trace_writer *writer, const struct trace_item *item) {
	const char *type = !strcmp(item->class, "work")     ? "scheduler"
			   : !strcmp(item->class, "memory") ? "kernel_mem"
							    : "kernel";
	const char *module = strchr(item->name, ':'), *name = module ? module + 1 : item->name;

	if (!item->instant)
		return write_span(writer, item, type, name);
	put_size(begin(writer, item, type, name), item);
	return write_now(writer, item);
}

static int write_kernel(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *out = begin(writer, item, "gpu_complete", item->name);

	out_literal(out, ",\"fence\":\"nvidia\"");
	put_duration(out, item);
	return write_at_end(writer, item);
}

static int seed_item(struct trace_writer *writer, const struct trace_item *item) {
	int r;

	r = write_pending(writer, item->start);
	if (r)
		return r;
	switch (item->kind) {
	case EVENT_CALL:
		return write_call(writer, item);
	case EVENT_IOCTL:
		return write_ioctl(writer, item);
	case EVENT_HOOK:
		return write_hook(writer, item);
	case EVENT_KERNEL:
		return write_kernel(writer, item);
	default:
		return 0;
	}
}

static int seed_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	*writerp = calloc(1, sizeof(**writerp));
	if (!*writerp)
		return -ENOMEM;
	(*writerp)->file = file;
	return 0;
}

static int seed_close(struct trace_writer *writer, bool complete) {
	int r = write_pending(writer, UINT64_MAX);
	struct pending pending;

	while (writer->pending.n) {
		trace_heap_pop(&writer->pending, &pending, sizeof(pending), goes_first);
		free(pending.text);
	}
	free(writer->pending.entries);
	free(writer->line.text);
	free(writer->later.text);
	free(writer);
	return r;
}

const struct trace_format trace_format_seed = { "jsonl-seed", ".jsonl", seed_open, seed_item,
						seed_close };
