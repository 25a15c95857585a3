/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Between libgpuprobe-shim.so and libgpuprobe-cupti.so, which lies beside it and which it loads in
 * processes that are traced with CUPTI's times (TRACE_RING_CUPTI). What is in libgpuprobe-cupti.so
 * knows NVIDIA's profiling library (libcupti.so) and nothing of traces.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

#define CUPTI_LIBRARY "libgpuprobe-cupti.so"
#define CUPTI_ENTRY "gpuprobe_cupti"
#define CUPTI_ABI 1

/* What ran on the GPU: a kernel, or (name NULL) a copy or memset. */
struct cupti_work {
	uint32_t correlation; /* of the call that caused it */
	uint32_t device;
	uint64_t start, end; /* of the clock */
	const char *name; /* mangled; valid until the next start() */
	bool in_graph;
};

struct cupti_events {
	/* CLOCK_MONOTONIC in nanoseconds. From any thread. */
	uint64_t (*clock)(void);
	/*
	 * One of the calls that start() was told has reached the driver; in the thread that makes
	 * it, from within it.
	 */
	void (*called)(uint32_t correlation, driver_handle context);
	/* From within flush() and stop(). */
	void (*ran)(const struct cupti_work *work);
	void (*lost)(uint64_t count);
	/* From within flush(): something is wrong with the times from now on. A static line. */
	void (*trouble)(const char *line);
};

/* What is collected. calls: numbers of functions of CUPTI (trace.h). */
struct cupti_wish {
	const char *path; /* of libcupti.so, or empty: where toolkits and wheels put it */
	const uint32_t *calls;
	uint32_t call_count;
	bool copies; /* too */
};

/* The table that gpuprobe_cupti() returns. */
struct cupti_source {
	uint32_t abi; /* CUPTI_ABI */
	/*
	 * Begins, or continues with another wish. Returns NULL, or why it did not: one line, of
	 * this thread. In that case nothing is left behind.
	 */
	const char *(*start)(const struct cupti_wish *wish, const struct cupti_events *events);
	/*
	 * Tells what has ended since. all: all that is known by now; else that waits for the next
	 * flush(), so that calls which caused it have ended.
	 */
	void (*flush)(bool all);
	/*
	 * Tells the rest, and leaves the process: at the end of the next call of the driver, as
	 * NVIDIA wants it, CUPTI is gone.
	 */
	void (*stop)(void);
	/* In a forked child, where CUPTI does not live: it is never called again. */
	void (*forked)(void);
};

typedef const struct cupti_source *(*cupti_entry)(void);
