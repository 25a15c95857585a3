/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads lines of the seeds' format (read-seed.h): pairs the begin and the end of spans, and gives
 * items away in the order of their start.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "read-seed.h"

#define DEPTH_MAX 64

/* An item as far as the seeds know it. */
struct slot {
	uint64_t id, parent, start, end, size;
	const char *name, *base, *class;
	uint32_t pid, tid, command;
	enum trace_item_kind kind;
	bool instant, open;
};

struct seed_thread {
	uint32_t tid;
	bool used;
	unsigned int depth;
	size_t stack[DEPTH_MAX]; /* of slots */
	size_t n, capacity;
	struct slot *slots;
};

struct read_seed {
	int (*take)(void *userdata, const struct trace_item *item);
	void *userdata;
	uint64_t next_id, latest, unmatched;
	size_t n_threads;
	struct trace_item item;
	struct trace_process_info process;
	struct seed_thread threads[READ_SEED_THREADS];
};

int read_seed_new(struct read_seed **seedp,
		  int (*take)(void *userdata, const struct trace_item *item), void *userdata) {
	struct read_seed *seed = calloc(1, sizeof(*seed));

	if (!seed)
		return -ENOMEM;
	seed->take = take;
	seed->userdata = userdata;
	seed->process.exe = "";
	*seedp = seed;
	return 0;
}

struct read_seed *read_seed_free(struct read_seed *seed) {
	if (seed)
		for (size_t i = 0; i < READ_SEED_THREADS; i++)
			free(seed->threads[i].slots);
	free(seed);
	return NULL;
}

uint64_t read_seed_unmatched(const struct read_seed *seed) {
	return seed->unmatched;
}

static int give(struct read_seed *seed, const struct slot *slot) {
	struct trace_item *item = &seed->item;

	memset(item, 0, offsetof(struct trace_item, values));
	item->n_values = 0;
	item->kind = slot->kind;
	item->source = TRACE_SOURCE_BPF;
	item->id = slot->id;
	item->parent = slot->parent;
	item->start = slot->start;
	item->end = slot->end;
	item->instant = slot->instant;
	item->open = slot->open;
	item->pid = slot->pid;
	item->tid = slot->tid;
	seed->process.pid = slot->pid;
	item->process = &seed->process;
	item->thread = "";
	item->name = slot->name;
	item->base = slot->base;
	item->class = slot->class;
	item->size = slot->size;
	item->command = slot->command;
	return seed->take(seed->userdata, item);
}

/* By their start; of those that start together the longer one is outside. */
static int slot_order(const void *a, const void *b) {
	const struct slot *left = a, *right = b;

	if (left->start != right->start)
		return left->start < right->start ? -1 : 1;
	if (left->end != right->end)
		return left->end > right->end ? -1 : 1;
	return (left->id > right->id) - (left->id < right->id);
}

/* Gives away what a thread has; the spans that are not over only if all is to go. */
static int flush(struct read_seed *seed, struct seed_thread *thread, bool all) {
	struct slot open[DEPTH_MAX];
	unsigned int depth = all ? 0 : thread->depth;
	int r = 0;

	for (unsigned int i = 0; i < thread->depth; i++) {
		struct slot *slot = &thread->slots[thread->stack[i]];

		slot->end = all && seed->latest > slot->start ? seed->latest : slot->end;
		open[i] = *slot;
		if (!all)
			slot->name = NULL;
	}
	if (thread->n && (all || !depth))
		qsort(thread->slots, thread->n, sizeof(*thread->slots), slot_order);
	for (size_t i = 0; i < thread->n && !r; i++)
		if (thread->slots[i].name)
			r = give(seed, &thread->slots[i]);
	for (unsigned int i = 0; i < depth; i++) {
		thread->slots[i] = open[i];
		thread->stack[i] = i;
	}
	thread->n = thread->depth = depth;
	return r;
}

int read_seed_finish(struct read_seed *seed) {
	int r = 0;

	for (size_t i = 0; i < READ_SEED_THREADS && !r; i++)
		r = flush(seed, &seed->threads[i], true);
	return r;
}

/* The thread of a line. When there are too many of them, those of before are over. */
static int thread_of(struct read_seed *seed, uint32_t tid, struct seed_thread **threadp) {
	size_t place = (size_t)tid * 0x9e3779b1 % READ_SEED_THREADS;
	int r;

	while (seed->threads[place].used && seed->threads[place].tid != tid)
		place = (place + 1) % READ_SEED_THREADS;
	if (!seed->threads[place].used && seed->n_threads >= READ_SEED_THREADS * 3 / 4) {
		r = read_seed_finish(seed);
		for (size_t i = 0; i < READ_SEED_THREADS; i++)
			seed->threads[i].used = false;
		seed->n_threads = 0;
		if (r)
			return r;
	}
	if (!seed->threads[place].used) {
		seed->threads[place].used = true;
		seed->threads[place].tid = tid;
		seed->n_threads++;
	}
	*threadp = &seed->threads[place];
	return 0;
}

/* A new slot of the thread, filled in from the line. */
static int add_slot(struct read_seed *seed, struct seed_thread *thread,
		    const struct read_line *line, struct slot **slotp) {
	const struct trace_item *item = &line->item;
	struct slot *slots;
	int r;

	if (thread->n == READ_SEED_MAX) {
		r = flush(seed, thread, false);
		if (r)
			return r;
	}
	if (thread->n == thread->capacity) {
		thread->capacity = thread->capacity ? thread->capacity * 2 : 16;
		slots = realloc(thread->slots, thread->capacity * sizeof(*slots));
		if (!slots)
			return -ENOMEM;
		thread->slots = slots;
	}
	seed->next_id++;
	thread->slots[thread->n] = (struct slot){
		.id = item->id ? item->id : seed->next_id,
		.parent = thread->depth && item->kind != EVENT_KERNEL
				  ? thread->slots[thread->stack[thread->depth - 1]].id
				  : 0,
		.start = item->start,
		.end = item->end,
		.size = item->size,
		.command = item->command,
		.name = item->name,
		.base = item->base,
		.class = item->class,
		.pid = item->pid,
		.tid = item->tid,
		.kind = item->kind,
	};
	*slotp = &thread->slots[thread->n++];
	return 0;
}

/* Of lines of a file that somebody made, or of two processors, an end may be before its beginning.
 */
static void end_slot(struct slot *slot, uint64_t end) {
	slot->end = end > slot->start ? end : slot->start;
}

/* The end of a span: of the innermost one of that name. What is inside and not over has lost its
 * end. */
static bool close_span(struct seed_thread *thread, const struct read_line *line) {
	const struct trace_item *item = &line->item;
	unsigned int depth = thread->depth;
	struct slot *slot;

	while (depth && strcmp(thread->slots[thread->stack[depth - 1]].name, item->name) != 0)
		depth--;
	if (!depth)
		return false;
	for (unsigned int i = depth; i < thread->depth; i++)
		end_slot(&thread->slots[thread->stack[i]], item->end);
	slot = &thread->slots[thread->stack[depth - 1]];
	end_slot(slot, item->end);
	slot->open = false;
	slot->size = slot->size ? slot->size : item->size;
	thread->depth = depth - 1;
	return true;
}

int read_seed_line(struct read_seed *seed, const struct read_line *line) {
	struct seed_thread *thread;
	struct slot *slot = NULL;
	int r;

	r = thread_of(seed, line->item.tid, &thread);
	if (r)
		return r;
	if (line->timed && line->item.start > seed->latest)
		seed->latest = line->item.start;
	if (line->phase == 'E') {
		if (!close_span(thread, line)) {
			seed->unmatched++;
			r = add_slot(seed, thread, line, &slot);
			if (r)
				return r;
			slot->start -= line->duration < slot->start ? line->duration : slot->start;
			slot->instant = !line->duration;
		}
	} else {
		r = add_slot(seed, thread, line, &slot);
		if (r)
			return r;
		if (!line->timed)
			slot->start = slot->end = seed->latest;
		slot->open = line->phase == 'B';
		slot->instant = !slot->open && !line->duration;
		slot->start -= line->duration < slot->start ? line->duration : slot->start;
		if (slot->open && thread->depth < DEPTH_MAX)
			thread->stack[thread->depth++] = thread->n - 1;
	}
	return thread->depth ? 0 : flush(seed, thread, true);
}
