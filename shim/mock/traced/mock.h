/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the mock CUDA driver that tests of tracing run: a fake GPU that runs launches one
 * after another, and what a profiler is told of them.
 */

#include <stdint.h>

#define FUNCTION(name, ...)                                           \
	__attribute__((visibility("default"))) int name(__VA_ARGS__); \
	__attribute__((visibility("default"), noinline)) int name(__VA_ARGS__)

#define SLOW ((void *)0x7000) /* kernels whose time is told by their grid */

/* What a profiler in the process (mock/cupti) is told of. */
struct mock_tool {
	/* In the thread of a call, at its begin (site 0) and end (1). id: CUPTI's number of the
	 * function. */
	void (*call)(uint32_t id, int site, uint32_t correlation);
	/* It is known, at the launch, when it will run, of CLOCK_MONOTONIC. name NULL: a copy; node
	 * 0: not of a graph. */
	void (*ran)(uint32_t correlation, uint64_t start, uint64_t end, const char *name,
		    uint64_t node);
};

/* gpu.c. Returns the call's correlation. */
uint32_t gpu_call_begin(uint32_t id);
void gpu_call_end(uint32_t id, uint32_t correlation);
void gpu_launch_long(void *stream, uint64_t length, uint32_t correlation, const char *name,
		     uint64_t node);
void gpu_launch(void *stream, uint32_t correlation, const char *name, uint64_t node);
int gpu_query(void *event);
int gpu_failed(void);
void gpu_wait(void);
