/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of watchdog.c with pools of workers that answer, that hang, and that do not start
 * (test-worker.c).
 */

#include "watchdog.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>

static const char *worker_path;

struct fixture {
	uv_loop_t loop;
	struct worker_pool *pool;
	struct watchdog *watchdog;
	unsigned int beats;
};

static void on_beat(void *userdata) {
	struct fixture *f = userdata;

	f->beats++;
}

static void setup(struct fixture *f, const char *argument, uint64_t timeout_ms) {
	const char *const arguments[] = { argument, NULL }, *const environment[] = { "LANG=C",
										     NULL };
	const struct worker_pool_options options = {
		.size = sizeof(options),
		.path = worker_path,
		.arguments = arguments,
		.environment = environment,
		.workers = 2,
	};

	*f = (struct fixture){};
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(worker_pool_new(&f->pool, &f->loop, &options), 0);
	assert_int_equal(watchdog_new(&f->watchdog, &f->loop, f->pool, timeout_ms, on_beat, f), 0);
}

static void teardown(struct fixture *f) {
	f->watchdog = watchdog_free(f->watchdog);
	f->pool = worker_pool_free(f->pool);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void test_alive(void **state) {
	struct fixture f;

	setup(&f, NULL, 400);
	while (f.beats < 3)
		uv_run(&f.loop, UV_RUN_ONCE);
	teardown(&f);
}

/* Each ping that is not answered ends a worker; none of them is a beat. */
static void test_hang(void **state) {
	struct fixture f;

	setup(&f, "--mute", 400);
	while (worker_pool_counters(f.pool)->timeouts < 3)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(f.beats, 0);
	teardown(&f); /* with a ping on its way */
}

static void on_reply(struct worker_task *task, int result, json_object *reply, const char *message,
		     void *userdata) {
	++*(unsigned int *)userdata;
}

/* Workers that have more time for their jobs than the watchdog has are no reason; those whose time
 * is up are. */
static void test_busy(void **state) {
	struct worker_task *tasks[2];
	unsigned int replies = 0;
	struct fixture f;

	setup(&f, "--mute", 400);
	for (int i = 0; i < 2; i++) {
		tasks[i] = worker_task_new(json_object_new_object(), on_reply, &replies);
		worker_pool_submit(f.pool, tasks[i], 600000);
	}
	while (worker_pool_counters(f.pool)->busy < 6)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(f.beats, worker_pool_counters(f.pool)->busy);
	assert_int_equal(replies, 0);
	for (int i = 0; i < 2; i++)
		worker_task_cancel(tasks[i]);
	while (replies < 2)
		uv_run(&f.loop, UV_RUN_ONCE);
	f.beats = 0;
	while (worker_pool_counters(f.pool)->timeouts < 3)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(f.beats, 0);
	teardown(&f);
}

static void test_no_worker(void **state) {
	struct fixture f;

	setup(&f, "--die", 400);
	while (worker_pool_counters(f.pool)->spawned < 6)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(f.beats, 0);
	teardown(&f);
}

/* It never was in the loop. */
static void test_short(void **state) {
	struct fixture f;

	setup(&f, NULL, 1);
	teardown(&f);
	assert_int_equal(f.beats, 0);
	assert_null(watchdog_free(NULL));
}

int main(int argc, char *argv[]) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alive), cmocka_unit_test(test_hang),
		cmocka_unit_test(test_busy),  cmocka_unit_test(test_no_worker),
		cmocka_unit_test(test_short),
	};

	char path[PATH_MAX];

	if (argc < 2 || !realpath(argv[1], path)) /* workers start in / */
		return 77;
	worker_path = path;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
