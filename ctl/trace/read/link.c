/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the parent of a span and the launch of a kernel (link.h), with bounded tables of what each
 * thread and stream did last. order.c passes it every item.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link.h"
#include "ctl/trace/base/map.h"

#define LAUNCHES ((size_t)1 << 18)
#define STREAM_LAUNCHES 1024
#define STREAMS_MAX 4096
#define DEPTH_MAX 32
#define THREADS_MAX 65536
#define SLACK 1000 /* nanoseconds that the clocks of two sources may differ by */
#define LAUNCH_SLACK \
	20000 /* the shim has a kernel begin at an event that it recorded just before the call */

struct span {
	uint64_t id, end;
};

struct thread {
	size_t n;
	struct span spans[DEPTH_MAX]; /* open ones, the innermost last */
};

struct launch {
	uint32_t pid, tid;
	uint64_t sequence;
	uint64_t start, id; /* id 0: not given away yet */
	const char *name, *kernel;
};

/* Launches on a stream whose kernels have not come, for traces that do not say which launch it was.
 */
struct stream {
	size_t first, n;
	struct launch launches[STREAM_LAUNCHES];
};

struct trace_links {
	struct trace_map threads, streams;
	struct launch *launches; /* by their sequence: one takes the place of an old one; NULL: none
				    so far */
	bool by_stream;
	char violation[64];
};

/* The newest one of that number has the first place; the one before it, of the program that the
 * process executed before, the second. */
static struct launch *launch_at(const struct trace_links *links, uint32_t pid, uint32_t tid,
				uint64_t sequence, bool second) {
	return &links->launches[(trace_map_hash(pid, tid) + sequence +
				 (second ? LAUNCHES / 2 : 0)) &
				(LAUNCHES - 1)];
}

/* The launch of that number that started then; start 0: the newest. */
static struct launch *find_launch(const struct trace_links *links, uint32_t pid, uint32_t tid,
				  uint64_t sequence, uint64_t start) {
	for (int i = 0; i < 2 && tid && links->launches; i++) {
		struct launch *launch = launch_at(links, pid, tid, sequence, i);

		if (launch->pid == pid && launch->tid == tid && launch->sequence == sequence &&
		    (!start || launch->start == start))
			return launch;
	}
	return NULL;
}

void trace_links_expect(struct trace_links *links, uint32_t pid, uint32_t tid, uint64_t sequence,
			uint64_t start) {
	struct launch *launch;

	links->launches = links->launches ?: calloc(LAUNCHES, sizeof(*links->launches));
	if (!links->launches)
		return;
	launch = launch_at(links, pid, tid, sequence, false);
	if (launch->pid == pid && launch->tid == tid && launch->sequence == sequence)
		*launch_at(links, pid, tid, sequence, true) = *launch;
	*launch = (struct launch){ .pid = pid, .tid = tid, .sequence = sequence, .start = start };
}

uint64_t trace_links_started(const struct trace_links *links, uint32_t pid, uint32_t tid,
			     uint64_t sequence) {
	const struct launch *launch = find_launch(links, pid, tid, sequence, 0);

	return launch ? launch->start : 0;
}

void trace_links_by_stream(struct trace_links *links) {
	links->by_stream = true;
}

static bool has_open_spans(void *value, void *userdata) {
	const struct thread *thread = value;
	const uint64_t *now = userdata;

	if (thread->n && thread->spans[0].end > *now)
		return true;
	free(value);
	return false;
}

/* The item's thread, or NULL without memory. */
static struct thread *find_thread(struct trace_links *links, const struct trace_item *item) {
	struct thread *thread = trace_map_get(&links->threads, item->pid, item->tid);
	uint64_t now = item->start;

	if (thread)
		return thread;
	if (links->threads.table.n >= THREADS_MAX)
		trace_map_filter(&links->threads, has_open_spans, &now);
	thread = calloc(1, sizeof(*thread));
	if (thread && trace_map_set(&links->threads, item->pid, item->tid, thread)) {
		free(thread);
		return NULL;
	}
	return thread;
}

/* The innermost span of the thread around the item becomes its parent; the item may be one for
 * others. */
static int link_span(struct trace_links *links, struct trace_item *item) {
	struct thread *thread = find_thread(links, item);

	if (!thread)
		return -ENOMEM;
	while (thread->n && thread->spans[thread->n - 1].end <= item->start)
		thread->n--;
	for (size_t i = thread->n; i-- > 0 && !item->parent;)
		if (item->end <= thread->spans[i].end + SLACK)
			item->parent = thread->spans[i].id;
	if (!item->instant && item->end > item->start && thread->n < DEPTH_MAX)
		thread->spans[thread->n++] = (struct span){ item->id, item->end };
	return 0;
}

static struct stream *find_stream(struct trace_links *links, const struct trace_item *item) {
	struct stream *stream = trace_map_get(&links->streams, item->pid, item->stream);

	if (stream || links->streams.table.n >= STREAMS_MAX)
		return stream;
	stream = calloc(1, sizeof(*stream));
	if (stream && trace_map_set(&links->streams, item->pid, item->stream, stream)) {
		free(stream);
		return NULL;
	}
	return stream;
}

static void link_launch(struct trace_links *links, struct trace_item *item) {
	struct launch *launch =
		find_launch(links, item->pid, item->tid, item->sequence, item->start);
	struct stream *stream = links->by_stream ? find_stream(links, item) : NULL;

	item->flow = item->id;
	if (launch) {
		launch->id = item->id;
		launch->name = item->base;
	}
	if (!stream)
		return;
	if (stream->n == STREAM_LAUNCHES) {
		stream->first++;
		stream->n--;
	}
	stream->launches[(stream->first + stream->n++) % STREAM_LAUNCHES] = (struct launch){
		.start = item->start, .id = item->id, .name = item->base, .kernel = item->kernel
	};
}

/* The oldest launch on the stream that can be the kernel's; those before it will not come any more.
 */
static struct launch *take_from_stream(struct trace_links *links, const struct trace_item *item) {
	struct stream *stream = trace_map_get(&links->streams, item->pid, item->stream);

	for (size_t i = 0; stream && i < stream->n; i++) {
		struct launch *launch = &stream->launches[(stream->first + i) % STREAM_LAUNCHES];

		if (item->kernel && launch->kernel && launch->kernel != item->kernel)
			continue;
		stream->first += i + 1;
		stream->n -= i + 1;
		return launch;
	}
	return NULL;
}

static void link_kernel(struct trace_links *links, struct trace_item *item) {
	const struct launch *launch =
		item->tid ? find_launch(links, item->pid, item->tid, item->sequence, item->launched)
			  : take_from_stream(links, item);

	item->launched = 0;
	if (!*item->name)
		item->name = item->base = launch && launch->id ? launch->name : "GPU";
	if (!launch || !launch->id)
		return;
	item->parent = item->flow = launch->id;
	if (item->start >= launch->start)
		return;
	if (launch->start - item->start <= LAUNCH_SLACK + item->error) {
		item->start = launch->start;
		item->end = item->end > item->start ? item->end : item->start;
	} else {
		snprintf(links->violation, sizeof(links->violation),
			 "starts %.3fus before its launch",
			 (double)(launch->start - item->start) / 1e3);
		item->violation = links->violation;
		item->launched = launch->start;
	}
}

int trace_links_item(struct trace_links *links, struct trace_item *item, bool launch) {
	int r = 0;

	if (item->kind == EVENT_KERNEL)
		link_kernel(links, item);
	else if (item->tid && (item->kind == EVENT_CALL || item->kind == EVENT_IOCTL ||
			       item->kind == EVENT_HOOK))
		r = link_span(links, item);
	if (launch)
		link_launch(links, item);
	return r;
}

int trace_links_new(struct trace_links **linksp) {
	*linksp = calloc(1, sizeof(**linksp));
	return *linksp ? 0 : -ENOMEM;
}

struct trace_links *trace_links_free(struct trace_links *links) {
	if (!links)
		return NULL;
	trace_map_deinit(&links->threads, free);
	trace_map_deinit(&links->streams, free);
	free(links->launches);
	free(links);
	return NULL;
}
