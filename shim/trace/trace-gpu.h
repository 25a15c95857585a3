/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Times of kernels, for sessions that want them (trace-gpu.c): by events of the driver
 * (trace-event.h), or by CUPTI (trace-cupti.h), which a session may ask for.
 */

#include "shim/driver/driver.h"
#include "tracing.h"

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
