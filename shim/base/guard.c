/* SPDX-License-Identifier: Apache-2.0 */

/* Locks that a thread has one of at most (guard.h). */

#include "guard.h"

#include "cancel.h"
#include "deadline.h"

__thread bool guard_barred;
static __thread bool inside; /* this thread has a lock, or is about to */
static __thread int cancel_before; /* it: cancel.h */

bool guard_lock(pthread_mutex_t *mutex, uint64_t until_ms) {
	int before;

	if (inside || guard_barred)
		return false;
	inside = true;
	before = cancel_forbid();
	if (deadline_lock(mutex, until_ms)) {
		cancel_before = before;
		return true;
	}
	cancel_allow(before);
	inside = false;
	return false;
}

void guard_unlock(pthread_mutex_t *mutex) {
	int before = cancel_before;

	pthread_mutex_unlock(mutex);
	inside = false;
	cancel_allow(before);
}
