/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system's clocks as numbers. `id` is one of clock_gettime(2). */

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t id) {
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline int64_t clock_us(clockid_t id) {
	return (int64_t)(clock_ns(id) / 1000);
}

static inline int64_t clock_ms(clockid_t id) {
	return (int64_t)(clock_ns(id) / 1000000);
}

static inline uint64_t monotonic_now(void) {
	return clock_ns(CLOCK_MONOTONIC);
}
