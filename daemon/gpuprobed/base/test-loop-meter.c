/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of loop-meter.c: work in the loop counts, waiting for an event or a signal does not.
 */

#include "loop-meter.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#define MS 1000 /* what the meter tells is microseconds */
#define TRIES 10

static uv_loop_t loop;

static void pause_ms(long ms) {
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static void work(uv_timer_t *timer) {
	pause_ms(100);
	uv_close((uv_handle_t *)timer, NULL);
}

/* A turn is as long as what is done in it. */
static void test_work(void **state) {
	struct loop_meter *meter = NULL;
	uv_timer_t timer;

	assert_int_equal(loop_meter_new(&meter, &loop), 0);
	uv_timer_init(&loop, &timer);
	uv_timer_start(&timer, work, 1, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(loop_meter_longest(meter) >= 95 * MS);
	loop_meter_free(meter);
	uv_run(&loop, UV_RUN_DEFAULT);
}

static uv_thread_t main_thread;

static void signal_main(void *unused) {
	pause_ms(500);
	pthread_kill(main_thread, SIGUSR1);
}

static void on_timer(uv_timer_t *timer) {
	uv_close(timer->data, NULL);
	uv_close((uv_handle_t *)timer, NULL);
}

/* Goes on for one more turn, at whose beginning this one is known. */
static void on_signal(uv_signal_t *handle, int number) {
	uv_timer_start(handle->data, on_timer, 1, 0);
}

/* What the loop waited until a signal came is no work. A machine that is busy may stop us for that
 * long: not each time. */
static void test_signal(void **state) {
	uint64_t longest = UINT64_MAX;

	for (int i = 0; i < TRIES && longest >= 400 * MS; i++) {
		struct loop_meter *meter = NULL;
		uv_signal_t signal;
		uv_timer_t timer;
		uv_thread_t thread;

		main_thread = pthread_self();
		assert_int_equal(loop_meter_new(&meter, &loop), 0);
		uv_signal_init(&loop, &signal);
		uv_timer_init(&loop, &timer);
		timer.data = &signal;
		signal.data = &timer;
		uv_signal_start(&signal, on_signal, SIGUSR1);
		uv_thread_create(&thread, signal_main, NULL);
		uv_run(&loop, UV_RUN_DEFAULT);
		uv_thread_join(&thread);
		longest = loop_meter_longest(meter);
		loop_meter_free(meter);
		uv_run(&loop, UV_RUN_DEFAULT);
	}
	assert_true(longest < 400 * MS);
}

static int setup(void **state) {
	return uv_loop_init(&loop);
}

static int teardown(void **state) {
	return uv_loop_close(&loop);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_work),
					    cmocka_unit_test(test_signal) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
