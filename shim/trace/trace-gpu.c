/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When kernels and graphs ran on the GPU (TRACE_RING_GPU): what is common to its two sources. By
 * CUPTI if the session asks for it and it can be used; else by events, which disturb no other tool.
 */

#include "trace-gpu.h"

#include <string.h>

#include "trace-cupti.h"
#include "trace-event.h"

/* Which argument of a launch is the stream, and which the function. */
enum gpu_role {
	NO_ROLE = 0,
	KERNEL, /* function 0, stream 8 */
	KERNEL_EX, /* function 1; the configuration has the stream */
	GRAPH, /* stream 1 */
	GRID, /* function 0, stream 3 */
	GRID_DEFAULT, /* function 0, the default stream */
	WAITS, /* for the GPU */
	COPY, /* puts a copy or memset into the default stream, */
	COPY_ASYNC, /* or into that of the last argument */
	OTHER_WORK, /* puts something else into a stream */
};

#define CONFIGURATION_STREAM 32

static uint8_t roles[DRIVER_FUNCTION_COUNT];
static bool by_cupti; /* this session's times; also read by calls of an earlier one */
static const char *note; /* for readers of the trace; NULL: none, or it is written */

static bool is_by_cupti(void) {
	return __atomic_load_n(&by_cupti, __ATOMIC_RELAXED);
}

static enum gpu_role role_of(const char *name) {
	static const struct {
		const char *prefix;
		enum gpu_role role;
	} known[] = {
		{ "cuLaunchKernelEx", KERNEL_EX },
		{ "cuLaunchKernel", KERNEL },
		{ "cuLaunchCooperativeKernelMultiDevice", OTHER_WORK },
		{ "cuLaunchCooperativeKernel", KERNEL },
		{ "cuLaunchGridAsync", GRID },
		{ "cuLaunchHostFunc", OTHER_WORK },
		{ "cuLaunch", GRID_DEFAULT },
		{ "cuGraphLaunch", GRAPH },
		{ "cuCtxSynchronize", WAITS },
		{ "cuStreamSynchronize", WAITS },
		{ "cuEventSynchronize", WAITS },
		{ "cuStreamQuery", WAITS },
		{ "cuEventQuery", WAITS },
		{ "cuMemcpy", COPY },
		{ "cuMemset", COPY },
		{ "cuMemPrefetch", OTHER_WORK },
		{ "cuMemAllocAsync", OTHER_WORK },
		{ "cuMemAllocFromPoolAsync", OTHER_WORK },
		{ "cuMemFreeAsync", OTHER_WORK },
		{ "cuStreamWait", OTHER_WORK },
		{ "cuStreamWrite", OTHER_WORK },
		{ "cuStreamBatchMemOp", OTHER_WORK },
		{ "cuStreamAddCallback", OTHER_WORK },
		{ "cuStreamAttachMem", OTHER_WORK },
		{ "cuStreamDestroy", OTHER_WORK }, /* another gets its handle */
		{ "cuGraphUpload", OTHER_WORK },
		{ "cuGraphicsMap", OTHER_WORK },
		{ "cuGraphicsUnmap", OTHER_WORK },
		{ "cuMemBatchDecompress", OTHER_WORK },
		{ "cuMemDiscard", OTHER_WORK },
		{ "cuMemMapArray", OTHER_WORK },
		{ "cuSignalExternal", OTHER_WORK },
		{ "cuWaitExternal", OTHER_WORK },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(name, known[i].prefix, strlen(known[i].prefix)))
			return known[i].role == COPY && strstr(name, "Async") ? COPY_ASYNC
									      : known[i].role;
	return NO_ROLE;
}

/* Of the function of a trampoline; a call of an earlier session may see it too early. */
static enum gpu_role role_at(uint32_t index) {
	return (enum gpu_role)__atomic_load_n(&roles[index], __ATOMIC_RELAXED);
}

static void find_roles(void) {
	if (role_at(FUNCTION_cuLaunchKernel))
		return;
	for (int i = 0; i < FUNCTION_COUNT; i++)
		__atomic_store_n(&roles[i], (uint8_t)role_of(driver_function_name(i)),
				 __ATOMIC_RELAXED);
}

static bool is_copy(enum gpu_role role) {
	return role == COPY || role == COPY_ASYNC;
}

static bool is_kernel(enum gpu_role role) {
	return role >= KERNEL && role <= GRID_DEFAULT;
}

/* Which functions the session traces that put work on the GPU; returns whether copies are some. */
static bool wanted_calls(uint32_t calls[FUNCTION_COUNT], uint32_t *count) {
	bool copies = false;

	*count = 0;
	for (int i = 0; i < FUNCTION_COUNT; i++) {
		unsigned number = function_rows[i].number;

		if (!(is_kernel(role_at((uint32_t)i)) || is_copy(role_at((uint32_t)i))) ||
		    number >= TRACE_FUNCTION_OWN ||
		    !(trace_session.functions[number / 64] >> number % 64 & 1))
			continue;
		calls[(*count)++] = number;
		copies |= is_copy(role_at((uint32_t)i));
	}
	return copies;
}

void trace_gpu_begin(void) {
	uint32_t calls[FUNCTION_COUNT], count;
	const char *reason = NULL;
	bool copies;

	find_roles();
	__atomic_store_n(&by_cupti, false, __ATOMIC_RELAXED);
	if (trace_flag(TRACE_RING_CUPTI)) {
		copies = wanted_calls(calls, &count);
		reason = trace_cupti_begin(calls, count, copies);
		__atomic_store_n(&by_cupti, !reason, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&note, reason, __ATOMIC_RELEASE);
}

void trace_gpu_began(uint64_t number) {
	if (is_by_cupti())
		trace_cupti_began(number);
}

void trace_gpu_forking(void) {
	trace_cupti_forking();
}

void trace_gpu_forked(bool in_child) {
	if (in_child)
		trace_event_forked();
	trace_cupti_forked(in_child);
}

static bool is_per_thread(uint32_t index) {
	const char *name = driver_function_name((int)index);

	return !strcmp(name + strlen(name) - strlen("_ptsz"), "_ptsz");
}

/* What the call puts on the GPU; false: it is no launch. */
static bool is_launch(const struct trace_frame *frame, struct gpu_launch *launch) {
	*launch = (struct gpu_launch){ .function = trace_word(frame, 0) };
	switch (role_at(frame->index)) {
	case KERNEL:
		launch->stream = trace_word(frame, 8);
		break;
	case KERNEL_EX:
		launch->function = trace_word(frame, 1);
		if (!trace_word(frame, 0))
			return false;
		memcpy(&launch->stream, (const char *)trace_word(frame, 0) + CONFIGURATION_STREAM,
		       8);
		break;
	case GRAPH:
		launch->function = 0;
		launch->stream = trace_word(frame, 1);
		break;
	case GRID:
		launch->stream = trace_word(frame, 3);
		break;
	case GRID_DEFAULT:
		break;
	default:
		return false;
	}
	launch->per_thread = is_per_thread(frame->index);
	return true;
}

void trace_gpu_before(struct trace_frame *frame) {
	struct gpu_launch launch;
	struct trace_hush hush;

	if (is_by_cupti()) {
		trace_cupti_before(frame);
		return;
	}
	if (!is_launch(frame, &launch))
		return;
	trace_hush(&hush);
	trace_event_before(frame, &launch);
	trace_unhush(&hush);
}

/* A call has succeeded that CUPTI has told us of. */
static void launched(struct trace_self *thread, const struct trace_frame *frame,
		     uint32_t sequence) {
	enum gpu_role role = role_at(frame->index);
	struct gpu_launch launch;

	if (!is_launch(frame, &launch)) {
		if (!is_copy(role))
			return;
		launch = (struct gpu_launch){ .per_thread = is_per_thread(frame->index) };
		if (role == COPY_ASYNC)
			launch.stream = trace_word(frame, function_rows[frame->index].words - 1u);
	}
	if (!trace_event_is_captured(&launch))
		trace_cupti_launched(thread, frame, &launch, sequence);
}

static void write_note(struct trace_self *thread, uint64_t number) {
	const char *text = __atomic_load_n(&note, __ATOMIC_ACQUIRE);

	if (!trace_claim_and_enter(thread, number))
		return;
	if (text && trace_write_note(thread, text))
		__atomic_store_n(&note, NULL, __ATOMIC_RELEASE);
	trace_leave(thread);
}

void trace_gpu_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence) {
	enum gpu_role role = role_at(frame->index);
	struct trace_hush hush;

	if (__builtin_expect(__atomic_load_n(&note, __ATOMIC_RELAXED) != NULL, 0))
		write_note(thread, frame->session);
	if (frame->recorded && trace_cupti_has(frame) && !(int32_t)frame->result[0])
		launched(thread, frame, sequence);
	if (!is_by_cupti() &&
	    (role == OTHER_WORK || is_copy(role) || (is_kernel(role) && !frame->timing)))
		trace_event_other_work();
	if (!frame->timing && !frame->untimed && ((role != WAITS && role != COPY) || is_by_cupti()))
		return;
	trace_hush(&hush);
	trace_event_after(thread, frame, sequence);
	trace_unhush(&hush);
}
