/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sorts the records of a trace by their start (order.h): a heap of records that wait, within a
 * bound of time and memory. Each record becomes an item when its turn comes.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/decode/call.h"
#include "ctl/trace/base/heap.h"
#include "link.h"
#include "order.h"

struct trace_block {
	size_t n_refs, size;
	bool counted;
	_Alignas(16) char bytes[];
};

struct entry {
	uint64_t start, end, number;
	uint64_t launched; /* of a kernel: when its launch started; 0: not known */
	const struct trace_record *record;
	struct trace_block *block;
};

struct trace_order {
	struct trace_decoder *decoder;
	struct trace_links *links;
	struct trace_order_options options;
	struct trace_heap heap; /* of struct entry */
	size_t held; /* bytes of blocks */
	uint64_t newest, n_items;
	bool gpu;
	struct trace_item item;
};

int trace_block_new(struct trace_block **blockp, size_t size) {
	struct trace_block *block = malloc(sizeof(*block) + size);

	if (!block)
		return -ENOMEM;
	block->n_refs = 0;
	block->size = size;
	block->counted = false;
	*blockp = block;
	return 0;
}

char *trace_block_bytes(struct trace_block *block) {
	return block->bytes;
}

void trace_order_ref(struct trace_order *order, struct trace_block *block) {
	block->n_refs++;
	if (!block->counted)
		order->held += block->size;
	block->counted = true;
}

void trace_order_unref(struct trace_order *order, struct trace_block *block) {
	if (--block->n_refs)
		return;
	order->held -= block->size;
	free(block);
}

/* By start; what lasts longer is around the other. */
static bool goes_first(const void *a, const void *b) {
	const struct entry *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start;
	if (x->end != y->end)
		return x->end > y->end;
	return x->number < y->number;
}

static struct entry pop(struct trace_order *order) {
	struct entry first;

	trace_heap_pop(&order->heap, &first, sizeof(first), goes_first);
	return first;
}

static bool is_wanted(const struct trace_order *order, const struct trace_item *item) {
	const bool span = item->kind == EVENT_CALL || item->kind == EVENT_IOCTL ||
			  (item->kind == EVENT_HOOK && !item->instant);

	if (span && !item->open && item->end - item->start < order->options.min_duration)
		return false;
	return !order->options.errors || item->failed ||
	       (!span && item->kind != EVENT_HOOK && item->kind != EVENT_KERNEL &&
		item->kind != EVENT_CTXSW);
}

static int give(struct trace_order *order) {
	struct entry entry = pop(order);
	struct trace_item *item = &order->item;
	bool launch;
	int r = 0;

	if (trace_decoder_item(order->decoder, entry.record, entry.number, item) &&
	    is_wanted(order, item)) {
		launch = order->gpu && item->kind == EVENT_CALL && !item->failed &&
			 trace_call_launches(((const struct trace_call *)entry.record)->function);
		item->id = ++order->n_items;
		item->launched = entry.launched;
		r = item->kind == EVENT_COUNTS ? 0 : trace_links_item(order->links, item, launch);
		if (!r)
			r = order->options.take(item, order->options.userdata);
	}
	trace_order_unref(order, entry.block);
	return r;
}

/* Gives away what has waited long enough, and more while too much waits. */
static int give_old(struct trace_order *order) {
	int r = 0;

	while (!r && order->heap.n &&
	       (((const struct entry *)(const void *)order->heap.entries)->start +
				order->options.window <
			order->newest ||
		order->held > order->options.memory))
		r = give(order);
	return r;
}

static uint64_t relative(const struct trace_order *order, uint64_t time) {
	const uint64_t beginning = trace_decoder_about(order->decoder)->monotonic;

	return time > beginning ? time - beginning : 0;
}

/* A call that will have kernels is known by its number; they go behind it even if their clock says
 * otherwise. */
static void expect_launch(struct trace_order *order, const struct trace_call *call,
			  const struct entry *entry) {
	if (trace_call_launches(call->function))
		trace_links_expect(order->links, call->pid, call->tid, call->sequence,
				   entry->start);
}

static void place_kernel(struct trace_order *order, const struct trace_kernel *kernel,
			 struct entry *entry) {
	uint64_t launched =
		trace_links_started(order->links, kernel->pid, kernel->tid, kernel->sequence);

	order->gpu = true;
	entry->launched = launched;
	if (!kernel->tid)
		trace_links_by_stream(order->links);
	if (entry->start <= launched) {
		entry->start = launched;
		entry->end = 0; /* last of those that start then */
	}
}

int trace_order_add(struct trace_order *order, struct trace_block *block,
		    const struct trace_record *record, uint64_t number) {
	struct entry entry = { .number = number, .record = record, .block = block };
	uint64_t time;
	int r;

	switch (record->type) {
	case TRACE_CALL:
	case TRACE_IOCTL:
	case TRACE_EVENT:
	case TRACE_KERNEL:
	case TRACE_CTXSW:
	case TRACE_COUNTS: /* all begin alike */
		entry.start = relative(order, ((const struct trace_call *)record)->start);
		entry.end = relative(order, ((const struct trace_call *)record)->end);
		break;
	case TRACE_PROCESS:
	case TRACE_LOST: /* so do these */
	case TRACE_NOTE:
		entry.start = entry.end =
			relative(order, ((const struct trace_lost *)record)->time);
		break;
	case TRACE_CLOCK:
		/* the timer of a GPU does not say that times of kernels will come */
		order->gpu = order->gpu || ((const struct trace_clock *)record)->pid;
		entry.start = entry.end =
			relative(order, ((const struct trace_clock *)record)->host_time);
		break;
	default:
		return 0;
	}
	time = entry.end > entry.start ? entry.end : entry.start;
	if (record->type == TRACE_CALL)
		expect_launch(order, (const struct trace_call *)record, &entry);
	else if (record->type == TRACE_KERNEL)
		place_kernel(order, (const struct trace_kernel *)record, &entry);
	r = trace_heap_push(&order->heap, &entry, sizeof(entry), goes_first);
	if (r)
		return r;
	trace_order_ref(order, block);
	if (time > order->newest && record->type != TRACE_KERNEL)
		order->newest = time;
	return give_old(order);
}

int trace_order_finish(struct trace_order *order) {
	int r = 0;

	while (!r && order->heap.n)
		r = give(order);
	return r;
}

int trace_order_new(struct trace_order **orderp, struct trace_decoder *decoder,
		    const struct trace_order_options *options) {
	struct trace_order *order = calloc(1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	if (trace_links_new(&order->links)) {
		free(order);
		return -ENOMEM;
	}
	order->decoder = decoder;
	order->options = *options;
	order->gpu = options->gpu;
	*orderp = order;
	return 0;
}

struct trace_order *trace_order_free(struct trace_order *order) {
	if (!order)
		return NULL;
	while (order->heap.n)
		trace_order_unref(order, pop(order).block);
	trace_links_free(order->links);
	free(order->heap.entries);
	free(order);
	return NULL;
}

_Static_assert(offsetof(struct trace_call, start) == offsetof(struct trace_ioctl, start),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, start) == offsetof(struct trace_event, start),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, start) == offsetof(struct trace_kernel, start),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, start) == offsetof(struct trace_counts, start),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, end) == offsetof(struct trace_counts, end),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, start) == offsetof(struct trace_ctxsw, start),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, end) == offsetof(struct trace_ctxsw, end),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, end) == offsetof(struct trace_ioctl, end),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, end) == offsetof(struct trace_event, end),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_call, end) == offsetof(struct trace_kernel, end),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_process, time) == offsetof(struct trace_lost, time),
	       "as trace_order_add() reads them");
_Static_assert(offsetof(struct trace_process, time) == offsetof(struct trace_note, time),
	       "as trace_order_add() reads them");
