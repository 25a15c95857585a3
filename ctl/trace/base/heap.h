/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A heap of entries of one size: the one that goes first is at its beginning. All zeros is an empty
 * one. The functions are inline, because each caller has one size and one order.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct trace_heap {
	char *entries; /* free it in the end */
	size_t n, n_max;
};

typedef bool trace_heap_order(const void *a, const void *b); /* whether a goes before b */

/* 0 or -ENOMEM. */
static inline int trace_heap_push(struct trace_heap *heap, const void *entry, size_t size,
				  trace_heap_order *goes_first) {
	size_t i;

	if (heap->n == heap->n_max) {
		size_t n_max = heap->n_max ? heap->n_max * 2 : 256;
		char *entries = reallocarray(heap->entries, n_max, size);

		if (!entries)
			return -ENOMEM;
		heap->entries = entries;
		heap->n_max = n_max;
	}
	for (i = heap->n++; i && goes_first(entry, heap->entries + (i - 1) / 2 * size);
	     i = (i - 1) / 2)
		memcpy(heap->entries + i * size, heap->entries + (i - 1) / 2 * size, size);
	memcpy(heap->entries + i * size, entry, size);
	return 0;
}

/* Puts an entry, which is not in the heap, into the place of the first one. */
static inline void trace_heap_replace(struct trace_heap *heap, const void *entry, size_t size,
				      trace_heap_order *goes_first) {
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < heap->n; i = child) {
		child += child + 1 < heap->n && goes_first(heap->entries + (child + 1) * size,
							   heap->entries + child * size);
		if (!goes_first(heap->entries + child * size, entry))
			break;
		memcpy(heap->entries + i * size, heap->entries + child * size, size);
	}
	memmove(heap->entries + i * size, entry, size);
}

/* Takes the first entry out; there is one. */
static inline void trace_heap_pop(struct trace_heap *heap, void *first, size_t size,
				  trace_heap_order *goes_first) {
	memcpy(first, heap->entries, size);
	heap->n--;
	trace_heap_replace(heap, heap->entries + heap->n * size, size, goes_first);
}
