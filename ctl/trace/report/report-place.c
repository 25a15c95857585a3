/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds where a span lies within its thread (report-place.h): keeps a stack of open spans for each
 * thread, and forgets all when there are too many threads.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash-table.h"
#include "ctl/trace/read/report-names.h"
#include "report-place.h"

#define THREADS_MAX 6144
#define DEPTH_MAX 64

struct place_span {
	uint64_t id, start, end;
	enum report_layer layer;
};

struct place_thread {
	uint32_t pid, tid; /* the key */
	unsigned int depth;
	const char *call; /* base name of the outermost call on the stack */
	unsigned int call_depth; /* its place on the stack */
	struct place_span *spans;
};

struct report_places {
	struct report_names names;
	struct hash_table threads;
};

int report_places_new(struct report_places **placesp) {
	struct report_places *places = calloc(1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	places->threads.key_size = offsetof(struct place_thread, depth);
	places->threads.entry_size = sizeof(struct place_thread);
	report_names_init(&places->names, 4096, (size_t)1 << 20);
	*placesp = places;
	return 0;
}

static void forget_threads(struct report_places *places) {
	for (size_t i = 0; i < places->threads.n; i++)
		free(((struct place_thread *)hash_table_at(&places->threads, i))->spans);
	hash_table_clear(&places->threads);
}

struct report_places *report_places_free(struct report_places *places) {
	if (!places)
		return NULL;
	forget_threads(places);
	hash_table_deinit(&places->threads);
	report_names_deinit(&places->names);
	free(places);
	return NULL;
}

static enum report_layer layer_of(const struct trace_item *item) {
	static const char *const waits[] = { "gsp", "rpc", "lock", "locks" };

	switch (item->kind) {
	case EVENT_CALL:
		return REPORT_LAYER_API;
	case EVENT_IOCTL:
		return REPORT_LAYER_IOCTL;
	case EVENT_HOOK:
		for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
			if (!strcmp(item->class, waits[i]))
				return REPORT_LAYER_RPC;
		return REPORT_LAYER_DRIVER;
	default:
		return REPORT_LAYER_NONE;
	}
}

/* When there are too many threads, what they are doing is forgotten: the threads that go on are
 * found again. */
static struct place_thread *thread_of(struct report_places *places, uint32_t pid, uint32_t tid) {
	const uint32_t ids[] = { pid, tid };
	struct place_thread *thread = hash_table_find(&places->threads, ids);

	if (!thread) {
		if (places->threads.n == THREADS_MAX)
			forget_threads(places);
		thread = hash_table_add(&places->threads, ids, NULL);
		if (!thread)
			return NULL;
	}
	if (!thread->spans)
		thread->spans = malloc(DEPTH_MAX * sizeof(*thread->spans));
	return thread->spans ? thread : NULL;
}

/* Takes from the stack what cannot be around the item. Returns whether the item can be put on it.
 */
static bool unwind(struct place_thread *thread, const struct trace_item *item,
		   struct report_place *place) {
	unsigned int depth = item->parent ? thread->depth : 0;

	while (depth && thread->spans[depth - 1].id != item->parent)
		depth--;
	if (depth) {
		thread->depth = depth;
		return true;
	}
	while (thread->depth) {
		const struct place_span *top = &thread->spans[thread->depth - 1];

		if (top->start > item->start) {
			place->late = !item->instant;
			if (item->end <= top->start)
				return false;
		} else if (top->end > item->start || (item->instant && top->end == item->start)) {
			return true;
		}
		thread->depth--;
	}
	return true;
}

int report_places_item(struct report_places *places, const struct trace_item *item,
		       struct report_place *place) {
	const enum report_layer layer = layer_of(item);
	struct place_thread *thread;
	uint64_t end = item->end > item->start ? item->end : item->start;

	*place = (struct report_place){ .layer = layer,
					.around = REPORT_LAYER_NONE,
					.outermost = true };
	if (layer == REPORT_LAYER_NONE)
		return 0;
	thread = thread_of(places, item->pid, item->tid);
	if (!thread)
		return -ENOMEM;
	if (!unwind(thread, item, place)) {
		place->duration = end - item->start;
		return 0;
	}
	if (thread->depth) {
		const struct place_span *top = &thread->spans[thread->depth - 1];

		place->around = top->layer;
		if (end > top->end)
			end = top->end > item->start ? top->end : item->start;
	}
	for (unsigned int i = 0; i < thread->depth; i++)
		place->outermost = place->outermost && thread->spans[i].layer != layer;
	if (thread->call && thread->call_depth >= thread->depth)
		thread->call = NULL;
	if (!thread->call && layer == REPORT_LAYER_API) {
		thread->call = report_names_keep(&places->names, item->base);
		thread->call_depth = thread->depth;
	}
	place->call = thread->call;
	place->duration = end - item->start;
	if (!item->instant && thread->depth < DEPTH_MAX)
		thread->spans[thread->depth++] = (struct place_span){
			.id = item->id, .start = item->start, .end = end, .layer = layer
		};
	else if (item->instant && thread->call && thread->call_depth >= thread->depth)
		thread->call = NULL;
	return 0;
}
