/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Records who called a driver function (TRACE_RING_STACKS), by libc's backtrace(), which needs no
 * frame pointers. backtrace() loads its unwinder at its first call. So it is called once when a
 * session begins.
 */

#include <execinfo.h>

#include "tracing.h"

#define OWN_FRAMES 8 /* of ours, above the caller's */

void trace_stack_begin(void) {
	void *address;

	backtrace(&address, 1);
}

unsigned trace_stack(const struct trace_frame *frame, uint64_t addresses[TRACE_STACK_MAX]) {
	uint64_t caller = ((const uint64_t *)(frame + 1))[1];
	void *found[TRACE_STACK_MAX + OWN_FRAMES];
	struct trace_hush hush;
	int total, first = 0;
	unsigned count = 0;

	trace_hush(&hush);
	total = backtrace(found, TRACE_STACK_MAX + OWN_FRAMES);
	trace_unhush(&hush);
	while (first < total && (uint64_t)found[first] != caller)
		first++;
	for (int i = first; i < total && count < TRACE_STACK_MAX; i++)
		addresses[count++] = (uint64_t)found[i];
	if (!count)
		addresses[count++] = caller;
	return count;
}
