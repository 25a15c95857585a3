/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Deadlines: milliseconds of CLOCK_MONOTONIC. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "lib/base/clock.h"

static inline uint64_t deadline_now_ms(void) {
	return (uint64_t)clock_ms(CLOCK_MONOTONIC);
}

/* As the functions of pthread that end in clocklock and clockwait take it. */
static inline struct timespec deadline_time(uint64_t until_ms) {
	return (struct timespec){ .tv_sec = (time_t)(until_ms / 1000),
				  .tv_nsec = (long)(until_ms % 1000) * 1000000 };
}

/* Returns whether the mutex is locked; not if that takes longer. */
static inline bool deadline_lock(pthread_mutex_t *mutex, uint64_t until_ms) {
	const struct timespec until = deadline_time(until_ms);

	return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until) == 0;
}
