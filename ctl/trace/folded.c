/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Folded stacks, as flamegraph.pl and speedscope read them: "process;frames, outermost first;calls within calls;kernel
 * MICROSECONDS". What is counted is a span's own time, that of those within it is theirs; a kernel's time on the GPU is below its
 * launch. Lines may come more than once: readers add them up. So the table of sums can be written out and begun anew whenever it
 * is full.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "item.h"
#include "track.h"
#include "utf8.h"

#define SLOTS (1 << 14) /* of sums and of threads: powers of two */
#define SUMS_MAX (SLOTS / 4 * 3)
#define THREADS 1024
#define DEPTH 16
#define LAUNCHES (1 << 14)
#define HISTORY 32
#define PATH_MAX_BYTES 4096

struct sum {
	uint64_t hash; /* 0: none */
	uint64_t ns;
	char *path;
};

struct span {
	uint64_t start, end, own;
	size_t sum;
};

/* Time of a thread that was counted from a moment on, up to the next one of these. */
struct counted {
	uint64_t start, ns;
};

struct thread {
	uint32_t pid, tid, cpu;
	size_t depth, n_counted;
	struct span spans[DEPTH]; /* open ones, outermost first */
	struct counted counted[HISTORY]; /* oldest first */
};

/* Where launches are in the sums, for the kernels that follow. */
struct launch {
	uint64_t id;
	size_t sum;
};

struct trace_writer {
	FILE *out;
	size_t n;
	struct sum sums[SLOTS];
	struct thread threads[THREADS]; /* by a hash; another thread of the same one takes the place */
	struct launch launches[LAUNCHES]; /* by id */
	char path[PATH_MAX_BYTES];
};

/* Adds a frame to writer->path. What would end a frame or a line becomes something else, and so does what is no UTF-8. */
static size_t add_frame(struct trace_writer *writer, size_t n, const char *frame)
{
	if (n && n < PATH_MAX_BYTES - 1)
		writer->path[n++] = ';';
	while (*frame) {
		size_t length = trace_utf8_length(frame, strnlen(frame, 4));

		if (n + 4 > PATH_MAX_BYTES - 1)
			break;
		if (length < 2)
			writer->path[n] = !length || (unsigned char)*frame < 0x20 ? '?' : *frame == ';' ? ',' : *frame;
		else
			memcpy(writer->path + n, frame, length);
		length = length ? length : 1;
		frame += length;
		n += length;
	}
	writer->path[n] = '\0';
	return n;
}

/* A span is over: its own time counts. */
static void pop_span(struct trace_writer *writer, struct thread *thread)
{
	const struct span *span = &thread->spans[--thread->depth];

	writer->sums[span->sum].ns += span->own;
}

/* All sums are written out. Spans that are open, and launches, are forgotten: the former count as they are. */
static void flush_sums(struct trace_writer *writer)
{
	for (size_t i = 0; i < THREADS; i++)
		while (writer->threads[i].depth)
			pop_span(writer, &writer->threads[i]);
	for (size_t i = 0; i < SLOTS; i++) {
		struct sum *sum = &writer->sums[i];

		if (sum->path && sum->ns >= 500)
			fprintf(writer->out, "%s %" PRIu64 "\n", sum->path, (sum->ns + 500) / 1000);
		free(sum->path);
		*sum = (struct sum){ 0 };
	}
	memset(writer->launches, 0, sizeof(writer->launches));
	writer->n = 0;
}

/* The sum of writer->path; negative: out of memory. */
static ssize_t find_sum(struct trace_writer *writer, size_t n)
{
	uint64_t hash = trace_hash(0, writer->path, n);
	size_t slot = hash % SLOTS;

	while (writer->sums[slot].hash && (writer->sums[slot].hash != hash || strcmp(writer->sums[slot].path, writer->path) != 0))
		slot = (slot + 1) % SLOTS;
	if (!writer->sums[slot].hash) {
		char *path = strdup(writer->path);

		if (!path)
			return -ENOMEM;
		writer->sums[slot] = (struct sum){ .hash = hash, .path = path };
		writer->n++;
	}
	return (ssize_t)slot;
}

/* "file+0x12 (function+0x4)": the function alone, as calls of one are to lie together. */
static size_t add_function(struct trace_writer *writer, size_t n, const char *frame)
{
	const char *name = NULL, *end = strrchr(frame, '+');
	char text[1024];

	/* names of files and of functions may have " (", too */
	for (const char *at = strstr(frame, "+0x"); at && !name; at = strstr(at, "+0x")) {
		at += strlen("+0x");
		at += strspn(at, "0123456789abcdef");
		name = strncmp(at, " (", 2) ? NULL : at;
	}
	if (!name || !end || end < name + 3 || strncmp(end, "+0x", 3) || end - name - 2 >= (ptrdiff_t)sizeof(text))
		return add_frame(writer, n, frame);
	memcpy(text, name + 2, (size_t)(end - name - 2));
	text[end - name - 2] = '\0';
	return add_frame(writer, n, text);
}

static size_t begin_path(struct trace_writer *writer, const struct trace_item *item)
{
	char name[32];
	size_t n = add_frame(writer, 0, trace_process_name(item, name));

	for (size_t i = item->n_frames; i-- > 0;)
		n = add_function(writer, n, item->frames[i]);
	return n;
}

/* Begins a path below that of a sum. */
static size_t copy_path(struct trace_writer *writer, size_t sum)
{
	size_t n = strlen(writer->sums[sum].path);

	memcpy(writer->path, writer->sums[sum].path, n + 1);
	return n;
}

static int write_kernel(struct trace_writer *writer, const struct trace_item *item)
{
	const struct launch *launch = &writer->launches[item->parent % LAUNCHES];
	ssize_t sum;
	size_t n;

	if (item->parent && launch->id == item->parent) {
		n = copy_path(writer, launch->sum);
	} else {
		n = begin_path(writer, item);
		n = add_frame(writer, n, "[GPU]");
	}
	n = add_frame(writer, n, *item->name ? item->name : "graph");
	sum = find_sum(writer, n);
	if (sum < 0)
		return (int)sum;
	writer->sums[sum].ns += item->end - item->start;
	return 0;
}

/* The thread of an item; what was of another one in its place is over. */
static struct thread *find_thread(struct trace_writer *writer, const struct trace_item *item)
{
	const uint32_t words[] = { item->pid, item->tid, item->pid ? 0 : item->cpu };
	struct thread *thread = &writer->threads[trace_hash(0, words, sizeof(words)) % THREADS];

	if (thread->pid != words[0] || thread->tid != words[1] || thread->cpu != words[2]) {
		while (thread->depth)
			pop_span(writer, thread);
		*thread = (struct thread){ .pid = words[0], .tid = words[1], .cpu = words[2] };
	}
	return thread;
}

/*
 * The own time of a span that is within no other one, and remembers that all of it is counted. It may come after those within it,
 * as long calls do: then their time has been counted already.
 */
static uint64_t count_outermost(struct thread *thread, uint64_t start, uint64_t end)
{
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
	memmove(counted + first + 1, counted + first, (thread->n_counted - first) * sizeof(*counted));
	counted[first] = (struct counted){ start, end - start };
	thread->n_counted++;
	return own;
}

static int write_span(struct trace_writer *writer, const struct trace_item *item)
{
	struct thread *thread = find_thread(writer, item);
	uint64_t own = item->end - item->start;
	struct span *outer;
	ssize_t sum;
	size_t n;

	/* what starts later than this one, which came late, is within it or behind it */
	while (thread->depth && (thread->spans[thread->depth - 1].end <= item->start || thread->spans[thread->depth - 1].start > item->start))
		pop_span(writer, thread);
	outer = thread->depth ? &thread->spans[thread->depth - 1] : NULL;
	n = outer ? copy_path(writer, outer->sum) : begin_path(writer, item);
	n = add_frame(writer, n, item->name);
	sum = find_sum(writer, n);
	if (sum < 0)
		return (int)sum;
	if (outer) {
		uint64_t within = (item->end < outer->end ? item->end : outer->end) - item->start;

		outer->own -= within < outer->own ? within : outer->own;
	} else {
		own = count_outermost(thread, item->start, item->end);
	}
	if (thread->depth == DEPTH)
		writer->sums[sum].ns += own; /* too deep to have any within it */
	else
		thread->spans[thread->depth++] = (struct span){ item->start, item->end, own, (size_t)sum };
	writer->launches[item->id % LAUNCHES] = (struct launch){ item->id, (size_t)sum };
	return 0;
}

static int folded_item(struct trace_writer *writer, const struct trace_item *item)
{
	if (item->instant || item->end <= item->start || item->kind == EVENT_CTXSW)
		return 0;
	if (writer->n >= SUMS_MAX)
		flush_sums(writer);
	return item->kind == EVENT_KERNEL ? write_kernel(writer, item) : write_span(writer, item);
}

static int folded_open(struct trace_writer **writerp, FILE *out, const struct trace_about *about)
{
	struct trace_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return -ENOMEM;
	writer->out = out;
	*writerp = writer;
	return 0;
}

static int folded_close(struct trace_writer *writer, bool complete)
{
	flush_sums(writer);
	free(writer);
	return 0;
}

const struct trace_format trace_format_folded = { "folded", ".folded", folded_open, folded_item, folded_close };
