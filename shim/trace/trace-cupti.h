/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Times of kernels and copies by CUPTI (trace-cupti.c); for trace-gpu.c. */

#include "gpu-launch.h"
#include "tracing.h"

/*
 * Called before a session: kernels and copies of calls of these functions (CUPTI's numbers) will
 * have times. NULL, or why that is not possible: a static line. Waits for a thread of ours, two
 * seconds at most.
 */
const char *trace_cupti_begin(const uint32_t *calls, uint32_t count, bool copies);

/* The session has begun. */
void trace_cupti_began(uint64_t number);

/* Around a fork: no thread of ours is in CUPTI meanwhile. It does not live in the child. */
void trace_cupti_forking(void);
void trace_cupti_forked(bool in_child);

/* Before a call that is recorded; and behind it: has it reached CUPTI? */
void trace_cupti_before(const struct trace_frame *frame);
bool trace_cupti_has(const struct trace_frame *frame);

/* It has, and has succeeded. */
void trace_cupti_launched(struct trace_self *thread, const struct trace_frame *frame,
			  const struct gpu_launch *launch, uint32_t sequence);
