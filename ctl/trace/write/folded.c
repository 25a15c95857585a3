/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `folded`.
 *
 * Folded stacks, as flamegraph.pl and speedscope read them: "process;frames, outermost first;calls
 * within calls;kernel MICROSECONDS". What is counted is a span's own time, that of those within it
 * is theirs; a kernel's time on the GPU is below its launch. Lines may come more than once: readers
 * add them up. So the table of sums can be written out whenever it is full; then only those stay
 * whose spans are open.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/base/item.h"
#include "ctl/trace/base/map.h"
#include "ctl/trace/base/out.h"
#include "ctl/trace/base/track.h"
#include "lib/base/utf8.h"

#define SUMS_MAX 12288
#define BYTES_MAX ((size_t)16 << 20) /* of their paths */
#define THREADS_MAX 4096
#define DEPTH 16
#define LAUNCHES (1 << 14)
#define HISTORY 32

struct sum {
	uint64_t ns;
	size_t n_open; /* spans */
	size_t n; /* of the path, without its NUL */
	char path[];
};

struct named_sum {
	struct hash_text path; /* the sum's */
	struct sum *sum;
};

struct span {
	uint64_t start, end, own;
	struct sum *sum;
};

/* Time of a thread that was counted from a moment on, up to the next one of these. */
struct counted {
	uint64_t start, ns;
};

struct thread {
	size_t depth, n_counted;
	struct span spans[DEPTH]; /* open ones, outermost first */
	struct counted counted[HISTORY]; /* oldest first */
};

/* Where launches are in the sums, for the kernels that follow. */
struct launch {
	uint64_t id;
	struct sum *sum;
};

struct trace_writer {
	FILE *file;
	struct hash_table sums; /* of struct named_sum */
	size_t n_bytes; /* of their paths */
	struct trace_map threads;
	struct launch launches[LAUNCHES]; /* by id */
	struct trace_out path;
};

/* Adds a frame to writer->path. What would end a frame or a line becomes something else, and so
 * does what is no UTF-8. */
static void add_frame(struct trace_writer *writer, const char *frame, size_t n) {
	const char *end = frame + n;
	struct trace_out *path = &writer->path;

	if (path->n)
		out_char(path, ';');
	while (frame < end) {
		size_t length = utf8_length(frame, end - frame < 4 ? (size_t)(end - frame) : 4);

		if (length < 2)
			out_char(path, !length || (unsigned char)*frame < 0x20 || *frame == 0x7f
					       ? '?'
				       : *frame == ';' ? ','
						       : *frame);
		else if (length == 2 && (unsigned char)frame[0] == 0xc2 &&
			 (unsigned char)frame[1] < 0xa0) /* a control character */
			out_char(path, '?');
		else
			out_bytes(path, frame, length);
		frame += length ? length : 1;
	}
}

/* A span is over: its own time counts. */
static void pop_span(struct thread *thread) {
	const struct span *span = &thread->spans[--thread->depth];

	span->sum->ns += span->own;
	span->sum->n_open--;
}

static void free_thread(void *value) {
	struct thread *thread = value;

	while (thread->depth)
		pop_span(thread);
	free(thread);
}

static bool has_open_spans(void *value, void *userdata) {
	const struct thread *thread = value;
	const uint64_t *now = userdata;

	if (thread->depth && thread->spans[0].end > *now)
		return true;
	free_thread(value);
	return false;
}

static bool is_full(const struct trace_writer *writer, size_t n_max, size_t bytes_max) {
	return writer->sums.n >= n_max || writer->n_bytes >= bytes_max;
}

/* All sums are written out, and begin anew. Launches are forgotten, and all that is not open. */
static void flush_sums(struct trace_writer *writer) {
	for (size_t i = 0; i < LAUNCHES; i++)
		if (writer->launches[i].id && !writer->launches[i].sum->n_open)
			writer->launches[i] = (struct launch){ 0 };
	for (size_t i = 0; i < writer->sums.n; i++) {
		struct sum *sum = ((struct named_sum *)hash_table_at(&writer->sums, i))->sum;

		if (sum->ns >= 500)
			fprintf(writer->file, "%s %" PRIu64 "\n", sum->path,
				(sum->ns + 500) / 1000);
		sum->ns = 0;
	}
	for (size_t i = writer->sums.n; i-- > 0;) {
		struct named_sum *entry = hash_table_at(&writer->sums, i);
		struct sum *sum = entry->sum;

		if (sum->n_open)
			continue;
		hash_table_remove(&writer->sums, entry);
		writer->n_bytes -= sum->n;
		free(sum);
	}
}

/* The sum of writer->path; NULL: out of memory. */
static struct sum *find_sum(struct trace_writer *writer) {
	const struct trace_out *path = &writer->path;
	struct hash_text key = { .bytes = path->text, .n = (uint32_t)path->n };
	struct named_sum *entry;
	struct sum *sum;

	if (path->failed)
		return NULL;
	entry = hash_table_find(&writer->sums, &key);
	if (entry)
		return entry->sum;
	sum = calloc(1, sizeof(*sum) + path->n + 1);
	if (!sum)
		return NULL;
	sum->n = path->n;
	key.bytes = memcpy(sum->path, path->text, path->n);
	entry = hash_table_add(&writer->sums, &key, NULL);
	if (!entry) {
		free(sum);
		return NULL;
	}
	entry->sum = sum;
	writer->n_bytes += sum->n;
	return sum;
}

/* "file+0x12 (function+0x4)": the function alone, as calls of one are to lie together. */
static void add_function(struct trace_writer *writer, const char *frame) {
	const char *name = NULL, *end = strrchr(frame, '+');

	/* names of files and of functions may have " (", too */
	for (const char *at = strstr(frame, "+0x"); at && !name; at = strstr(at, "+0x")) {
		at += strlen("+0x");
		at += strspn(at, "0123456789abcdef");
		name = strncmp(at, " (", 2) ? NULL : at;
	}
	if (!name || !end || end < name + 3 || strncmp(end, "+0x", 3))
		add_frame(writer, frame, strlen(frame));
	else
		add_frame(writer, name + 2, (size_t)(end - name - 2));
}

static void begin_path(struct trace_writer *writer, const struct trace_item *item) {
	char buffer[32];
	const char *name = trace_process_name(item, buffer);

	writer->path.n = 0;
	add_frame(writer, name, strlen(name));
	for (size_t i = item->n_frames; i-- > 0;)
		add_function(writer, item->frames[i]);
}

/* Begins a path below that of a sum. */
static void copy_path(struct trace_writer *writer, const struct sum *sum) {
	writer->path.n = 0;
	out_bytes(&writer->path, sum->path, sum->n);
}

static int write_kernel(struct trace_writer *writer, const struct trace_item *item) {
	const struct launch *launch = &writer->launches[item->parent % LAUNCHES];
	const char *name = *item->name ? item->name : "graph";
	struct sum *sum;

	if (item->parent && launch->id == item->parent) {
		copy_path(writer, launch->sum);
	} else {
		begin_path(writer, item);
		add_frame(writer, "[GPU]", strlen("[GPU]"));
	}
	add_frame(writer, name, strlen(name));
	sum = find_sum(writer);
	if (!sum)
		return -ENOMEM;
	sum->ns += item->end - item->start;
	return 0;
}

/* The thread of an item, or NULL without memory. */
static struct thread *find_thread(struct trace_writer *writer, const struct trace_item *item) {
	const uint64_t id = item->pid ? item->tid : (uint64_t)item->cpu << 32 | item->tid;
	struct thread *thread = trace_map_get(&writer->threads, item->pid, id);
	uint64_t now = item->start;

	if (thread)
		return thread;
	if (writer->threads.table.n >= THREADS_MAX) {
		trace_map_filter(&writer->threads, has_open_spans, &now);
		if (writer->threads.table.n >
		    THREADS_MAX /
			    2) /* too many to keep even those: their spans count as they are */
			trace_map_deinit(&writer->threads, free_thread);
	}
	thread = calloc(1, sizeof(*thread));
	if (thread && trace_map_set(&writer->threads, item->pid, id, thread)) {
		free(thread);
		return NULL;
	}
	return thread;
}

/*
 * The own time of a span that is within no other one, and remembers that all of it is counted. It
 * may come after those within it, as long calls do: then their time has been counted already.
 */
static uint64_t count_outermost(struct thread *thread, uint64_t start, uint64_t end) {
	struct counted *counted = thread->counted;
	uint64_t own = end - start;
	size_t first = thread->n_counted, last;

	while (first && counted[first - 1].start >= start)
		first--;
	for (last = first; last < thread->n_counted && counted[last].start < end; last++)
		own -= counted[last].ns < own ? counted[last].ns : own;
	memmove(counted + first, counted + last, (thread->n_counted - last) * sizeof(*counted));
	thread->n_counted -= last - first;
	if (thread->n_counted == HISTORY) {
		/* the two oldest become one */
		counted[0].ns += counted[1].ns;
		memmove(counted + 1, counted + 2, (HISTORY - 2) * sizeof(*counted));
		thread->n_counted--;
		first -= first > 1;
	}
	memmove(counted + first + 1, counted + first,
		(thread->n_counted - first) * sizeof(*counted));
	counted[first] = (struct counted){ start, end - start };
	thread->n_counted++;
	return own;
}

static int write_span(struct trace_writer *writer, const struct trace_item *item) {
	struct thread *thread = find_thread(writer, item);
	uint64_t own = item->end - item->start;
	struct span *outer;
	struct sum *sum;

	if (!thread)
		return -ENOMEM;
	/* what starts later than this one, which came late, is within it or behind it */
	while (thread->depth && (thread->spans[thread->depth - 1].end <= item->start ||
				 thread->spans[thread->depth - 1].start > item->start))
		pop_span(thread);
	outer = thread->depth ? &thread->spans[thread->depth - 1] : NULL;
	if (outer)
		copy_path(writer, outer->sum);
	else
		begin_path(writer, item);
	add_frame(writer, item->name, strlen(item->name));
	sum = find_sum(writer);
	if (!sum)
		return -ENOMEM;
	if (outer) {
		uint64_t within = (item->end < outer->end ? item->end : outer->end) - item->start;

		outer->own -= within < outer->own ? within : outer->own;
	} else {
		own = count_outermost(thread, item->start, item->end);
	}
	if (thread->depth == DEPTH) {
		sum->ns += own; /* too deep to have any within it */
	} else {
		thread->spans[thread->depth++] = (struct span){ item->start, item->end, own, sum };
		sum->n_open++;
	}
	writer->launches[item->id % LAUNCHES] = (struct launch){ item->id, sum };
	return 0;
}

static int folded_item(struct trace_writer *writer, const struct trace_item *item) {
	if (item->instant || item->end <= item->start || item->kind == EVENT_CTXSW)
		return 0;
	if (is_full(writer, SUMS_MAX, BYTES_MAX)) {
		flush_sums(writer);
		if (is_full(writer, SUMS_MAX / 2, BYTES_MAX / 2)) { /* with what is open alone */
			trace_map_deinit(&writer->threads, free_thread);
			flush_sums(writer);
		}
	}
	return item->kind == EVENT_KERNEL ? write_kernel(writer, item) : write_span(writer, item);
}

static int folded_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	struct trace_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return -ENOMEM;
	writer->file = file;
	writer->sums.entry_size = sizeof(struct named_sum);
	*writerp = writer;
	return 0;
}

static int folded_close(struct trace_writer *writer, bool complete) {
	trace_map_deinit(&writer->threads, free_thread);
	flush_sums(writer);
	hash_table_deinit(&writer->sums);
	free(writer->path.text);
	free(writer);
	return 0;
}

const struct trace_format trace_format_folded = { "folded", ".folded", folded_open, folded_item,
						  folded_close };
