/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Times of kernels, for sessions that want them (trace-gpu.c): by events of the driver
 * (trace-event.h), or by CUPTI (trace-cupti.h), which a session may ask for.
 */

#include "shim/driver/driver.h"
#include "tracing.h"

struct trace_timing;

/* A session is to begin, and has begun with this number. */
void trace_gpu_begin(void);
void trace_gpu_began(uint64_t number);

/* Around a fork. In the child nothing of the parent's is there. */
void trace_gpu_forking(void);
void trace_gpu_forked(bool in_child);

/* Around a call that is recorded. */
void trace_gpu_before(struct trace_frame *frame);

/* Behind it; reads what has ended. sequence: of its record, or 0. */
void trace_gpu_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence);

/* It did not return. */
void trace_gpu_abandon(struct trace_timing *timing);

/* Before a call that may end a context, traced or not; NULL: any of them. */
void trace_gpu_context_ending(driver_handle handle);

/* Has there been a context whose kernels are timed by events? */
bool trace_gpu_has_contexts(void);

/* Before one that ends a device's primary context, or may do so. */
void trace_gpu_primary_ending(int device, bool surely);
