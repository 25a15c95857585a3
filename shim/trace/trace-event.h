/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Times of kernels by events of the driver; for trace-gpu.c, and for calls that end contexts. */

#include "shim/driver/driver.h"
#include "gpu-launch.h"
#include "tracing.h"

/* In a forked child: nothing of the parent's is there. */
void trace_event_forked(void);

/* Is what is launched into this stream captured? Then it does not run. */
bool trace_event_is_captured(const struct gpu_launch *launch);

/* Before a launch: if it can be timed, frame->timing is for the next two. */
void trace_event_before(struct trace_frame *frame, const struct gpu_launch *launch);

/* Behind it, or behind a call that waits for the GPU; reads what has ended. */
void trace_event_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence);

/* A call has put something else into a stream. */
void trace_event_other_work(void);

/* The launch did not return. */
void trace_event_abandon(struct trace_timing *timing);

/* Has there been any that has events? */
bool trace_event_has_contexts(void);

/* Before a call that may end a context. NULL: any of them. */
void trace_event_context_ending(driver_handle handle);

/*
 * Called before a call that ends the primary context of a device, or (surely: false) that ends it
 * only if no other code holds it.
 */
void trace_event_primary_ending(int device, bool surely);
