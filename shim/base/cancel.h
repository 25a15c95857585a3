/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A thread of the application may be cancelled at any call of libc that waits, also at ours. None
 * is while it holds a lock of ours: the others would wait for it, launch by launch.
 */

#include <pthread.h>

/* Returns what cancel_allow() gives back. */
static inline int cancel_forbid(void) {
	int before = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_allow(int before) {
	pthread_setcancelstate(before, NULL);
}
