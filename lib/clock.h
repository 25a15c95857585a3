/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Converts other clocks to nanoseconds of CLOCK_MONOTONIC: the processor's counter, by which the
 * shim takes times of calls, and the timers of GPUs.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/clock.h"

/* ---- the processor's counter ---- */

#define TSC_SEGMENTS 16
#define TSC_PERIOD_NS UINT64_C(1000000000) /* a segment is that long */

/* From `tsc` on it was nanoseconds + (counter - tsc) * slope / 2^32. Segments join without a step,
 * so order is kept, unless the clocks have had one. */
struct tsc_segment {
	uint64_t tsc;
	uint64_t nanoseconds;
	uint64_t slope; /* nanoseconds of one step, times 2^32 */
};

struct tsc_clock {
	bool usable; /* the counter runs evenly, on all processors */
	uint64_t first_tsc, first_ns; /* the anchor that slopes are taken from; moved along, so that
					 they follow what NTP does */
	unsigned int n;
	struct tsc_segment segments[TSC_SEGMENTS]; /* the newest first */
};

/* Reads both clocks once. Slopes need some milliseconds after that: tsc_clock_start() waits for
 * what is left of them. It is called again after a pause. */
void tsc_clock_init(struct tsc_clock *clock);
void tsc_clock_start(struct tsc_clock *clock);

/* Goes on to a new segment once a second; cheap otherwise. */
void tsc_clock_update(struct tsc_clock *clock);

/* The same with a pair of readings: for tests. */
void tsc_clock_feed(struct tsc_clock *clock, uint64_t tsc, uint64_t nanoseconds);

uint64_t tsc_now(void);
uint64_t tsc_clock_nanoseconds(const struct tsc_clock *clock, uint64_t tsc);
/* How many steps of the counter that many nanoseconds are. */
uint64_t tsc_clock_steps(const struct tsc_clock *clock, uint64_t nanoseconds);

/* ---- a GPU's clock ---- */

#define GPU_CLOCK_PAIRS 64

/* Pairs of readings, the last of them, and a line through them by least squares, good pairs
 * weighing more. */
struct gpu_clock {
	unsigned int n, next;
	struct gpu_clock_pair {
		uint64_t gpu;
		uint64_t host;
		uint64_t half; /* the host's clock was within host +- half */
	} pairs[GPU_CLOCK_PAIRS];
	/* the line: host = base_host + (gpu - base_gpu) * (1 + drift) */
	uint64_t base_gpu, base_host;
	double drift;
	uint64_t error; /* nanoseconds, estimated */
};

/* A new pair. A clock that went back begins anew. */
void gpu_clock_add(struct gpu_clock *clock, uint64_t gpu, uint64_t host, uint64_t half);
/* Only after a pair. */
uint64_t gpu_clock_nanoseconds(const struct gpu_clock *clock, uint64_t gpu);
int64_t gpu_clock_drift_ppb(const struct gpu_clock *clock);
