/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Times of kernels (trace-gpu.c): but for the end of a context, for sessions that want them. */

#include "driver.h"
#include "tracing.h"

struct trace_timing;

void trace_gpu_begin(void);

/* In a forked child: nothing of the parent's is there. */
void trace_gpu_forked(void);

/* Before a call: if it is a launch that can be timed, frame->timing is for the next two. */
void trace_gpu_before(struct trace_frame *frame);

/* Behind it; reads what has ended. sequence: of its record, or 0. */
void trace_gpu_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence);

/* It did not return. */
void trace_gpu_abandon(struct trace_timing *timing);

/* Before a call that may end a context, traced or not; NULL: any of them. */
void trace_gpu_context_ending(driver_handle handle);
