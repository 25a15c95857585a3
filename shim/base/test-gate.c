/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of gate.c: closing the gate waits for launches, but not for ever, and no thread waits
 * for itself.
 */

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "deadline.h"
#include "gate.h"

#define THREADS 2000
#define SHORTLY (deadline_now_ms() + 50)
#define LONG (deadline_now_ms() + 20000)

static unsigned passed;
static bool changing, met, ending;
static sem_t inside, go_on;

static void *launch_often(void *unused) {
	do {
		gate_enter();
		if (__atomic_load_n(&changing, __ATOMIC_RELAXED))
			__atomic_store_n(&met, true, __ATOMIC_RELAXED);
		gate_leave();
		__atomic_add_fetch(&passed, 1, __ATOMIC_RELAXED);
	} while (!__atomic_load_n(&ending, __ATOMIC_RELAXED));
	return unused;
}

static void test_nobody_is_met(void **state) {
	pthread_t threads[3];

	__atomic_store_n(&ending, false, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, launch_often, NULL), 0);
	for (int i = 0; i < 500; i++) {
		assert_true(gate_close(LONG));
		__atomic_store_n(&changing, true, __ATOMIC_RELAXED);
		for (volatile int n = 0; n < 1000; n++)
			;
		__atomic_store_n(&changing, false, __ATOMIC_RELAXED);
		gate_open();
	}
	__atomic_store_n(&ending, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_false(met);
}

static void test_many_threads(void **state) {
	pthread_attr_t attributes;
	unsigned before = passed;

	__atomic_store_n(&ending, true, __ATOMIC_RELAXED); /* each launches once */
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, &attributes, launch_often, NULL), 0);
		if (i % 100 == 0) {
			assert_true(gate_close(LONG));
			gate_open();
		}
	}
	for (uint64_t until = LONG; __atomic_load_n(&passed, __ATOMIC_RELAXED) < before + THREADS;)
		assert_true(deadline_now_ms() < until);
	assert_true(gate_close(LONG));
	gate_open();
	assert_false(met);
}

static void *leave_in_launch(void *unused) {
	gate_enter();
	sem_post(&inside);
	sem_wait(&go_on);
	return unused;
}

static void test_a_thread_that_never_leaves(void **state) {
	pthread_t thread;

	pthread_create(&thread, NULL, leave_in_launch, NULL);
	sem_wait(&inside);
	assert_false(gate_close(SHORTLY)); /* it is waited for, not for ever */
	gate_enter(); /* the gate is open again */
	gate_leave();
	sem_post(&go_on);
	pthread_join(thread, NULL); /* and it ends in its launch */
	assert_true(gate_close(LONG));
	gate_open();
}

static void test_a_launch_in_a_launch(void **state) {
	gate_enter();
	assert_true(gate_is_inside());
	assert_false(gate_close(LONG));
	gate_enter();
	gate_leave();
	assert_true(gate_is_inside());
	gate_leave();
	assert_false(gate_is_inside());
	assert_true(gate_close(LONG));
	gate_open();
}

static void on_signal(int number) {
	gate_enter();
	passed++;
	gate_leave();
}

static void test_a_signal_handler_launches(void **state) {
	unsigned before = passed;

	signal(SIGUSR1, on_signal);
	assert_true(gate_close(LONG));
	assert_true(gate_is_inside());
	raise(SIGUSR1);
	assert_int_equal(passed, before + 1);
	gate_open();
	raise(SIGUSR1);
	assert_int_equal(passed, before + 2);
}

static void test_who_waits_for_the_closer(void **state) {
	pthread_t thread;

	pthread_create(&thread, NULL, leave_in_launch, NULL);
	sem_wait(&inside);
	gate_hurry(true);
	assert_false(gate_close(UINT64_MAX));
	assert_true(gate_is_hurried());
	gate_hurry(false);
	assert_false(gate_is_hurried());
	sem_post(&go_on);
	pthread_join(thread, NULL);
	assert_true(gate_close(LONG));
	gate_open();
}

static void *launch_and_end(void *lock) {
	pthread_mutex_lock(lock);
	sem_post(&inside);
	gate_enter();
	gate_leave();
	pthread_mutex_unlock(lock);
	pthread_testcancel();
	return NULL;
}

static void test_a_thread_that_is_cancelled(void **state) {
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	void *result;

	assert_true(gate_close(LONG));
	pthread_create(&thread, NULL, launch_and_end, &lock);
	sem_wait(&inside);
	pthread_cancel(thread);
	for (volatile int n = 0; n < 10000000; n++)
		;
	gate_open();
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(pthread_mutex_trylock(&lock), 0); /* behind its launch, not in it */
}

static bool no_memory;

/* In place of libc's. */
void *aligned_alloc(size_t alignment, size_t size) {
	void *memory = NULL;

	return no_memory || posix_memalign(&memory, alignment, size) ? NULL : memory;
}

static void *launch_twice(void *unused) {
	gate_enter();
	gate_enter();
	gate_leave();
	gate_leave();
	return unused;
}

/* Who comes while it is closed waits; later it is not closed any more. In a process of its own. */
static void test_no_memory_for_a_thread(void **state) {
	pthread_t thread;

	assert_true(gate_close(LONG));
	no_memory = true;
	pthread_create(&thread, NULL, launch_often, NULL);
	for (volatile int n = 0; n < 10000000; n++)
		;
	assert_int_equal(__atomic_load_n(&passed, __ATOMIC_RELAXED), 0);
	gate_open();
	while (!__atomic_load_n(&passed, __ATOMIC_RELAXED))
		;
	assert_false(gate_close(LONG));
	__atomic_store_n(&ending, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	launch_twice(NULL);
	no_memory = false;
	pthread_create(&thread, NULL, launch_twice, NULL);
	pthread_join(thread, NULL);
	assert_false(gate_close(LONG));
}

static void test_lines(void **state) {
	gate_enter();
	assert_int_equal((uintptr_t)gate_mine % 64, 0);
	gate_leave();
}

int main(int argc, char **argv) {
	const struct CMUnitTest memory[] = { cmocka_unit_test(test_no_memory_for_a_thread) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_is_met),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_a_thread_that_never_leaves),
		cmocka_unit_test(test_a_launch_in_a_launch),
		cmocka_unit_test(test_a_signal_handler_launches),
		cmocka_unit_test(test_who_waits_for_the_closer),
		cmocka_unit_test(test_a_thread_that_is_cancelled),
		cmocka_unit_test(test_lines),
	};

	sem_init(&inside, 0, 0);
	sem_init(&go_on, 0, 0);
	gate_start();
	if (argc > 1)
		return cmocka_run_group_tests(memory, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
