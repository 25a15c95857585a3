/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Protects critical sections against pthread_cancel(). A thread of the application may be cancelled
 * at any call of libc that waits, also at the shim's calls. It must not be while it holds a lock of
 * the shim, because all other threads would wait for that lock.
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
