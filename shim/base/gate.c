/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The lock between launches and patching (gate.h). It keeps a list of records, one for each thread
 * of the application that launches. Used only with the sanitizer engine.
 */

#include "gate.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cancel.h"
#include "deadline.h"

#define PAUSE_NS 10000

__thread struct gate_thread *gate_mine;
bool gate_closed, gate_fenced = true;

static struct gate_thread *threads; /* never freed: records are used again */
static struct gate_thread homeless; /* of threads that there was no memory for, on no list; */
static bool has_homeless; /* since one has it the gate is never closed again */
static pthread_key_t key;
static bool has_key;
static __thread bool closer; /* this thread has closed it: a signal handler passes */
static unsigned hurried; /* threads that wait for the closer */

static void give_back(void *record) {
	struct gate_thread *thread = record;

	__atomic_store_n(&thread->depth, 0, __ATOMIC_RELEASE);
	gate_mine = NULL;
	__atomic_store_n(&thread->used, false, __ATOMIC_RELEASE);
}

void gate_start(void) {
	has_key = pthread_key_create(&key, give_back) == 0;
	gate_fenced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
	pthread_atfork(NULL, NULL, gate_open); /* who closed it is not in the child */
}

struct gate_thread *gate_register(void) {
	int saved = errno;
	struct gate_thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
	bool unused = false;

	for (; thread; thread = thread->next, unused = false)
		if (__atomic_compare_exchange_n(&thread->used, &unused, true, false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			break;
	if (!thread) {
		thread = aligned_alloc(_Alignof(struct gate_thread), sizeof(*thread));
		if (!thread) {
			__atomic_store_n(&has_homeless, true, __ATOMIC_SEQ_CST);
			gate_mine = &homeless;
			errno = saved;
			return &homeless;
		}
		*thread = (struct gate_thread){ __atomic_load_n(&threads, __ATOMIC_RELAXED), 0,
						true };
		while (!__atomic_compare_exchange_n(&threads, &thread->next, thread, true,
						    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			;
	}
	gate_mine = thread;
	if (has_key)
		pthread_setspecific(key, thread);
	errno = saved;
	return thread;
}

static void pause_shortly(void) {
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int saved = errno,
	    before = cancel_forbid(); /* a launch is none of the calls that end threads */

	nanosleep(&pause, NULL);
	cancel_allow(before);
	errno = saved;
}

void gate_wait(struct gate_thread *thread) {
	if (closer)
		return;
	while (thread == &homeless) { /* who closes it waits for none of these */
		if (!__atomic_load_n(&gate_closed, __ATOMIC_ACQUIRE))
			return;
		pause_shortly();
	}
	if (thread->depth > 1)
		return; /* who closes the gate waits for this thread: its launch must go on */
	do {
		__atomic_store_n(&thread->depth, 0, __ATOMIC_RELEASE);
		while (__atomic_load_n(&gate_closed, __ATOMIC_ACQUIRE))
			pause_shortly();
		__atomic_store_n(&thread->depth, 1, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&gate_closed, __ATOMIC_ACQUIRE));
}

bool gate_is_inside(void) {
	return closer || (gate_mine && gate_mine->depth);
}

void gate_hurry(bool begin) {
	__atomic_add_fetch(&hurried, begin ? 1 : -1, __ATOMIC_SEQ_CST);
}

bool gate_is_hurried(void) {
	return __atomic_load_n(&hurried, __ATOMIC_SEQ_CST);
}

bool gate_close(uint64_t until_ms) {
	if (gate_is_inside())
		return false;
	if (__atomic_exchange_n(&gate_closed, true, __ATOMIC_SEQ_CST))
		return false; /* another thread has closed it */
	closer = true;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!gate_fenced)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	if (__atomic_load_n(&has_homeless, __ATOMIC_SEQ_CST)) {
		gate_open();
		return false;
	}
	for (const struct gate_thread *thread = __atomic_load_n(&threads, __ATOMIC_SEQ_CST); thread;
	     thread = thread->next) {
		while (__atomic_load_n(&thread->depth, __ATOMIC_ACQUIRE)) {
			if (gate_is_hurried() || deadline_now_ms() >= until_ms) {
				gate_open();
				return false;
			}
			pause_shortly();
		}
	}
	return true;
}

void gate_open(void) {
	__atomic_store_n(&gate_closed, false, __ATOMIC_RELEASE);
	closer = false;
}
