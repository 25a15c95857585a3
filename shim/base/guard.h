/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Locks of the shim that threads of the application take. A thread that has one of them gets no
 * other: a signal handler, or a callback of a tool, that comes meanwhile goes on without it. A
 * thread that has one is not cancelled.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* False: the lock was not free in time, or this thread has one, or is barred. */
bool guard_lock(pthread_mutex_t *mutex, uint64_t until_ms);
void guard_unlock(pthread_mutex_t *mutex);

/* This thread gets none of these locks: it has another one, which is taken after them. */
extern __thread bool guard_barred __attribute__((visibility("hidden"), tls_model("initial-exec")));
