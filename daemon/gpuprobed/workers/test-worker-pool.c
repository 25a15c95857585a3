/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of the pool with workers that do everything wrong (test-worker.c). */

#include "worker-pool.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *worker_path;

static unsigned int n_done;
static struct {
	unsigned int n;
	uint64_t ms;
} worked[4]; /* for owners */

struct seen {
	bool mixed;
	unsigned int n;
	unsigned int order;
	int result;
	char message[256];
	long long pid, fds;
	bool home;
	char output[16];
	uint64_t output_size;
};

struct fixture {
	uv_loop_t loop;
	struct worker_pool *pool;
};

static void on_time(uint64_t owner, uint64_t ms, void *userdata) {
	assert_ptr_equal(userdata, worked);
	if (owner < 4) {
		worked[owner].n++;
		worked[owner].ms += ms;
	}
}

static void setup_pool_for(struct fixture *f, const char *argument, unsigned int workers,
			   bool single_use, unsigned int ready_ms, unsigned int owner_max,
			   unsigned int extra_max) {
	static const char *arguments[2];
	static const char *const environment[] = { "LANG=C", NULL };
	struct worker_pool_options options = {
		.size = sizeof(options),
		.path = worker_path,
		.arguments = arguments,
		.environment = environment,
		.workers = workers,
		.single_use = single_use,
		.owner_max = owner_max,
		.extra_max = extra_max,
		.ready_ms = ready_ms,
		.on_time = on_time,
		.userdata = worked,
	};

	arguments[0] = argument;
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(worker_pool_new(&f->pool, &f->loop, &options), 0);
}

static void setup_pool(struct fixture *f, const char *argument, unsigned int workers,
		       bool single_use, unsigned int ready_ms) {
	setup_pool_for(f, argument, workers, single_use, ready_ms, 0, 0);
}

static void teardown_pool(struct fixture *f) {
	f->pool = worker_pool_free(f->pool);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0); /* nothing is left behind */
}

static void on_done(struct worker_task *task, int result, json_object *reply, const char *message,
		    void *userdata) {
	struct seen *seen = userdata;
	int fd;

	seen->n++;
	seen->order = ++n_done;
	seen->result = result;
	snprintf(seen->message, sizeof(seen->message), "%s", message);
	if (reply) {
		seen->pid = json_object_get_int64(json_object_object_get(reply, "pid"));
		seen->fds = json_object_get_int64(json_object_object_get(reply, "fds"));
		seen->home = json_object_get_boolean(json_object_object_get(reply, "home"));
	}
	seen->mixed = worker_task_mixed(task);
	seen->output_size = worker_task_output_size(task, 0);
	fd = worker_task_steal_fd(task, 0);
	if (fd >= 0) {
		assert_true(pread(fd, seen->output, sizeof(seen->output) - 1, 0) >= 0);
		if (result == _WORKER_POOL_SUCCESS) {
			assert_int_equal(fcntl(fd, F_GET_SEALS),
					 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
			assert_true(pwrite(fd, "x", 1, 0) < 0);
		}
		close(fd);
	}
}

/* One that is done once more if the worker aborts. */
static struct seen once_more(struct fixture *f, const char *what) {
	json_object *request = json_object_new_object();
	struct worker_task *task;
	struct seen seen = {};

	json_object_object_add(request, "do", json_object_new_string(what));
	task = worker_task_new(request, on_done, &seen);
	assert_non_null(task);
	assert_int_equal(worker_task_add_output(task, 100), 0);
	worker_task_set_retry(task);
	worker_pool_submit(f->pool, task, 60000);
	while (!seen.n)
		uv_run(&f->loop, UV_RUN_ONCE);
	return seen;
}

static struct worker_task *submit_overtime(struct fixture *f, struct seen *seen, const char *what,
					   uint64_t output, unsigned int deadline_ms,
					   uint64_t owner, unsigned int overtime_ms) {
	json_object *request = json_object_new_object();
	struct worker_task *task;

	json_object_object_add(request, "do", json_object_new_string(what));
	task = worker_task_new(request, on_done, seen);
	assert_non_null(task);
	if (output)
		assert_int_equal(worker_task_add_output(task, output), 0);
	worker_task_set_owner(task, owner);
	worker_task_set_overtime(task, overtime_ms);
	worker_pool_submit(f->pool, task, deadline_ms);
	assert_int_equal(seen->n, 0); /* never from within */
	return task;
}

static void submit(struct fixture *f, struct seen *seen, const char *what, uint64_t output,
		   unsigned int deadline_ms) {
	submit_overtime(f, seen, what, output, deadline_ms, 0, 0);
}

static void wait_for(struct fixture *f, const struct seen *seen) {
	while (!seen->n)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static struct seen once(struct fixture *f, const char *what, uint64_t output,
			unsigned int deadline_ms) {
	struct seen seen = {};

	submit(f, &seen, what, output, deadline_ms);
	wait_for(f, &seen);
	return seen;
}

static void test_good(void **state) {
	struct fixture f;
	struct seen first, second;

	setup_pool(&f, NULL, 1, false, 0);
	first = once(&f, "", 0, 60000);
	assert_int_equal(first.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(first.fds, 0); /* nothing of ours leaks into it */
	assert_false(first.home); /* nor our environment */
	second = once(&f, "write", 100, 60000);
	assert_int_equal(second.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(second.pid, first.pid); /* the same worker again */
	assert_int_equal(second.output_size, 5);
	assert_string_equal(second.output, "hello");
	assert_string_equal(json_object_get_string(
				    json_object_object_get(worker_pool_features(f.pool), "name")),
			    "test");
	assert_null(worker_pool_trouble(f.pool));
	teardown_pool(&f);
}

/* One job of a user's. */
static struct seen once_of(struct fixture *f, uid_t uid) {
	struct worker_task *task;
	struct seen seen = {};

	task = worker_task_new(json_object_new_object(), on_done, &seen);
	worker_task_set_owner(task, uid);
	worker_pool_submit(f->pool, task, 60000);
	wait_for(f, &seen);
	assert_int_equal(seen.result, _WORKER_POOL_SUCCESS);
	return seen;
}

/* A worker that has seen two users' bytes says so, and gets no more. */
static void test_users(void **state) {
	struct seen first, other, next;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	first = once_of(&f, 0);
	assert_false(first.mixed);
	next = once(&f, "", 0, 60000); /* nobody's */
	assert_int_equal(next.pid, first.pid);
	assert_false(next.mixed);
	next = once_of(&f, 0);
	assert_int_equal(next.pid, first.pid);
	assert_false(next.mixed);
	other = once_of(&f, 1000); /* there is only this one */
	assert_int_equal(other.pid, first.pid);
	assert_true(other.mixed);
	next = once_of(&f, 1000);
	assert_int_not_equal(next.pid, first.pid);
	assert_false(next.mixed);
	teardown_pool(&f);
}

/* A task that is to be alone has a worker for itself, and who keeps the pool busy does not keep it
 * from that. */
static void test_alone(void **state) {
	struct seen first, seen = {}, next, many[20] = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	first = once_of(&f, 1000);
	for (int i = 0; i < 20; i++)
		submit_overtime(&f, &many[i], "slow", 0, 60000, 1000, 0);
	for (int i = 0; i < 2; i++) {
		memset(&seen, 0, sizeof(seen));
		task = worker_task_new(json_object_new_object(), on_done, &seen);
		worker_task_set_owner(task, 1000); /* even of the same owner */
		worker_task_set_alone(task);
		if (i)
			worker_task_set_owner(task, 0);
		worker_pool_submit(f.pool, task, 60000);
		wait_for(&f, i ? &seen : &many[19]);
		wait_for(&f, &seen);
		assert_int_equal(seen.result, _WORKER_POOL_SUCCESS);
		assert_false(seen.mixed);
		assert_int_not_equal(seen.pid, first.pid);
		for (int k = 0; k < 20; k++)
			assert_int_not_equal(seen.pid, many[k].pid);
		if (i)
			assert_int_equal(many[19].n, 0); /* it had its turn before */
		else
			for (int k = 0; k < 20; k++) {
				assert_int_equal(many[k].result, _WORKER_POOL_SUCCESS);
				many[k] = (struct seen){};
				submit_overtime(&f, &many[k], "slow", 0, 60000, 1000, 0);
			}
	}
	for (int k = 0; k < 20; k++)
		wait_for(&f, &many[k]);
	next = once_of(&f, 0);
	assert_int_not_equal(next.pid, seen.pid);
	teardown_pool(&f);
}

static void test_refused(void **state) {
	struct fixture f;
	struct seen seen;

	setup_pool(&f, NULL, 1, false, 0);
	seen = once(&f, "error", 0, 60000);
	assert_int_equal(seen.result, WORKER_POOL_E_REFUSED);
	assert_string_equal(seen.message, "no good");
	assert_int_equal(worker_pool_counters(f.pool)->crashes, 0);
	teardown_pool(&f);
}

/* A worker that fails is replaced, and the next job is done. */
static void check_failure(const char *what, uint64_t output, unsigned int deadline_ms, int result,
			  const char *message) {
	struct fixture f;
	struct seen seen, next;

	setup_pool(&f, NULL, 1, false, 0);
	seen = once(&f, what, output, deadline_ms);
	assert_int_equal(seen.result, result);
	assert_string_equal(seen.message, message);
	next = once(&f, "", 0, 60000);
	assert_int_equal(next.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(worker_pool_counters(f.pool)->spawned, 2);
	teardown_pool(&f);
}

static void test_crash(void **state) {
	check_failure("crash", 0, 60000, WORKER_POOL_E_CRASHED, "worker crashed (signal 11)");
}

static void test_abort(void **state) {
	struct fixture f;
	struct seen seen;

	check_failure("abort once", 100, 60000, WORKER_POOL_E_CRASHED, "worker crashed (signal 6)");
	setup_pool(&f, NULL, 1, false, 0);
	seen = once_more(&f, "abort once");
	assert_int_equal(seen.result, _WORKER_POOL_SUCCESS);
	assert_string_equal(seen.output, "second");
	assert_int_equal(worker_pool_counters(f.pool)->crashes, 1);
	assert_int_equal(worker_pool_counters(f.pool)->jobs, 1);
	seen = once_more(&f, "abort");
	assert_int_equal(seen.result, WORKER_POOL_E_CRASHED);
	assert_string_equal(seen.message, "worker crashed (signal 6)");
	assert_int_equal(worker_pool_counters(f.pool)->crashes, 3);
	teardown_pool(&f);
}

static void test_exit(void **state) {
	check_failure("exit", 0, 60000, WORKER_POOL_E_CRASHED, "worker ended (status 3)");
}

static void test_hang(void **state) {
	check_failure("hang", 0, 300, WORKER_POOL_E_TIMEOUT, "worker timed out");
}

static void test_close(void **state) {
	check_failure("close", 0, 60000, WORKER_POOL_E_CRASHED, "worker crashed (signal 9)");
}

static void test_garbage(void **state) {
	check_failure("garbage", 0, 60000, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
	check_failure("trailing", 0, 60000, WORKER_POOL_E_PROTOCOL,
		      "worker sent a malformed reply");
	check_failure("id", 0, 60000, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
	check_failure("fd", 0, 60000, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
}

static void test_cheating_outputs(void **state) {
	check_failure("large", 4096, 60000, WORKER_POOL_E_PROTOCOL,
		      "worker wrote more than it may");
	check_failure("map", 4096, 60000, WORKER_POOL_E_PROTOCOL,
		      "worker kept its output writable");
}

/* So long starting workers one after the other takes here and now, in milliseconds. */
static uint64_t time_starts(unsigned int n) {
	char *arguments[] = { (char *)worker_path, (char *)"--die", NULL };
	const uint64_t start = uv_hrtime();
	int status;
	pid_t pid;

	while (n--) {
		assert_int_equal(posix_spawn(&pid, worker_path, NULL, NULL, arguments, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	return (uv_hrtime() - start) / 1000000;
}

/* As many as may be started since then, when none ended well: a burst, and four a second. */
static uint64_t starts_allowed(const struct fixture *f, unsigned int workers, uint64_t start) {
	return workers + 16 + (uv_now(&f->loop) - start) * 4 / 1000 + 1;
}

/* Crashes in a row: the rate is bounded, jobs fail with a reason in their time. */
static void test_crash_loop(void **state) {
	struct fixture f;
	uint64_t start;

	setup_pool(&f, NULL, 1, false, 0);
	start = uv_now(&f.loop);
	for (int i = 0; i < 17; i++)
		assert_int_equal(once(&f, "crash", 0, 60000).result, WORKER_POOL_E_CRASHED);
	for (int i = 0; i < 23; i++)
		assert_int_not_equal(once(&f, "crash", 0, 100).result, _WORKER_POOL_SUCCESS);
	assert_true(worker_pool_counters(f.pool)->spawned <= starts_allowed(&f, 1, start));
	teardown_pool(&f);
}

/* One user's jobs kill workers, faster than these are replaced; another one's come right behind,
 * and do not wait for that. */
static void test_crash_loop_of_another(void **state) {
	const uint64_t starts = time_starts(60);
	struct fixture f;
	uint64_t start;

	setup_pool(&f, NULL, 1, false, 0);
	start = uv_now(&f.loop);
	for (int i = 0; i < 60; i++) {
		struct seen crash = {};

		submit_overtime(&f, &crash, "crash", 0, 60000, 1, 0);
		wait_for(&f, &crash);
		once_of(&f, 2);
	}
	assert_true(uv_now(&f.loop) - start <
		    8000 + 8 * starts); /* 60 - 17 at 4 a second are 11 s */
	teardown_pool(&f);
}

static void test_single_use(void **state) {
	const uint64_t starts = time_starts(60);
	struct fixture f;
	struct seen first, second;
	uint64_t start;

	setup_pool(&f, NULL, 1, true, 0);
	start = uv_now(&f.loop);
	first = once(&f, "", 0, 60000);
	second = once(&f, "", 0, 60000);
	assert_int_equal(first.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(second.result, _WORKER_POOL_SUCCESS);
	assert_int_not_equal(first.pid, second.pid);
	/* workers that did their job are replaced at once, however many */
	for (int i = 0; i < 60; i++)
		assert_int_equal(once(&f, "", 0, 60000).result, _WORKER_POOL_SUCCESS);
	assert_true(uv_now(&f.loop) - start < 8000 + 8 * starts);
	assert_int_equal(worker_pool_counters(f.pool)->crashes, 0);
	teardown_pool(&f);
}

static void test_queue(void **state) {
	struct seen seen[20] = {};
	struct fixture f;

	setup_pool(&f, NULL, 2, false, 0);
	for (int i = 0; i < 20; i++)
		submit(&f, &seen[i], "slow", 0, i == 19 ? 120 : 20000);
	for (int i = 0; i < 20; i++) {
		wait_for(&f, &seen[i]);
		assert_int_equal(seen[i].n, 1);
	}
	for (int i = 0; i < 19; i++)
		assert_int_equal(seen[i].result, _WORKER_POOL_SUCCESS);
	assert_int_equal(seen[19].result, WORKER_POOL_E_BUSY);
	assert_string_equal(seen[19].message, "no worker was free in time");
	teardown_pool(&f);
}

static void test_never_ready(void **state) {
	struct fixture f;
	struct seen seen;

	setup_pool(&f, "--not-ready", 1, false, 100);
	seen = once(&f, "", 0, 400);
	assert_true(seen.result == WORKER_POOL_E_BUSY || seen.result == WORKER_POOL_E_UNAVAILABLE);
	assert_non_null(worker_pool_trouble(f.pool));
	teardown_pool(&f);

	setup_pool(&f, "--die", 1, false, 0);
	seen = once(&f, "", 0, 3000);
	assert_int_equal(seen.result, WORKER_POOL_E_UNAVAILABLE);
	assert_non_null(strstr(seen.message, "did not get ready: worker ended (status 7)"));
	teardown_pool(&f);

	setup_pool(&f, "--garbage", 1, false, 0);
	seen = once(&f, "", 0, 1000);
	assert_int_not_equal(seen.result, _WORKER_POOL_SUCCESS);
	teardown_pool(&f);
}

static void test_missing(void **state) {
	const char *path = worker_path;
	struct fixture f;
	struct seen seen;

	worker_path = "/nonexistent/worker";
	setup_pool(&f, NULL, 1, false, 0);
	worker_path = path;
	seen = once(&f, "", 0, 60000);
	assert_int_equal(seen.result, WORKER_POOL_E_UNAVAILABLE);
	assert_string_equal(seen.message, "/nonexistent/worker: no such file or directory");
	teardown_pool(&f);
}

/* The pool ends while jobs are in work and in the queue. */
static void test_free_busy(void **state) {
	struct seen seen[3] = {};
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	once(&f, "", 0, 60000);
	for (int i = 0; i < 3; i++)
		submit(&f, &seen[i], "hang", 0, 10000);
	for (int i = 0; i < 3; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	teardown_pool(&f);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(seen[i].n, 1);
		assert_int_equal(seen[i].result, WORKER_POOL_E_UNAVAILABLE);
	}
}

/* What takes longer than its deadline is done, by a worker that ends then. */
static void test_overtime(void **state) {
	struct seen first, seen = {}, meanwhile, next;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	first = once(&f, "", 0, 60000);
	submit_overtime(&f, &seen, "slower", 0, 20, 1, 20000);
	meanwhile = once(&f, "", 0, 60000);
	wait_for(&f, &seen);
	assert_int_equal(seen.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(seen.pid, first.pid);
	assert_int_equal(meanwhile.result, _WORKER_POOL_SUCCESS);
	assert_int_not_equal(meanwhile.pid, first.pid);
	next = once(&f, "", 0, 60000);
	assert_int_equal(next.pid, meanwhile.pid);
	assert_int_equal(worker_pool_counters(f.pool)->spawned, 2);
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 0);
	assert_int_equal(worker_pool_counters(f.pool)->crashes, 0);
	teardown_pool(&f);
}

/* One that never ends is killed after all; one that crashes is replaced once. */
static void test_overtime_ends(void **state) {
	struct seen seen = {}, crash = {};
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	once(&f, "", 0, 60000);
	submit_overtime(&f, &seen, "hang", 0, 20, 1, 100);
	wait_for(&f, &seen);
	assert_int_equal(seen.result, WORKER_POOL_E_TIMEOUT);
	assert_string_equal(seen.message, "worker timed out");
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 1);
	once(&f, "", 0, 60000);
	assert_int_equal(worker_pool_counters(f.pool)->spawned, 2);
	submit_overtime(&f, &crash, "crash later", 0, 20, 1, 20000);
	wait_for(&f, &crash);
	assert_int_equal(crash.result, WORKER_POOL_E_CRASHED);
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 1);
	once(&f, "", 0, 60000);
	assert_int_equal(worker_pool_counters(f.pool)->spawned, 3);
	teardown_pool(&f);
}

/* Who has submitted much does not keep others waiting, and what workers did for whom is told. */
static void test_turns(void **state) {
	static const uint64_t owners[] = { 1, 1, 1, 1, 2, 2, 3 };
	static const unsigned int orders[] = { 1, 4, 6, 7, 2, 5, 3 };
	struct seen seen[7] = {};
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	n_done = 0;
	memset(worked, 0, sizeof(worked));
	for (size_t i = 0; i < 7; i++)
		submit_overtime(&f, &seen[i], i == 4 ? "slower" : "", 0, 60000, owners[i], 0);
	for (size_t i = 0; i < 7; i++)
		wait_for(&f, &seen[i]);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(seen[i].result, _WORKER_POOL_SUCCESS);
		assert_int_equal(seen[i].order, orders[i]);
	}
	assert_int_equal(worked[0].n, 0);
	assert_int_equal(worked[1].n, 4);
	assert_int_equal(worked[2].n, 2);
	assert_int_equal(worked[3].n, 1);
	assert_true(worked[2].ms >= 400); /* it slept for 500 */
	teardown_pool(&f);
}

/* An owner whose work does not end has one worker alone: the other one is there for others. */
static void test_owner_max(void **state) {
	struct seen hangs = {}, waits = {}, other[3] = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool_for(&f, NULL, 2, true, 0, 1, 0);
	task = submit_overtime(&f, &hangs, "hang", 0, 60000, 1, 0);
	submit_overtime(&f, &waits, "", 0, 60000, 1, 0);
	for (int i = 0; i < 3; i++)
		submit_overtime(&f, &other[i], "", 0, 60000, 2, 0);
	for (int i = 0; i < 3; i++)
		wait_for(&f, &other[i]);
	for (int i = 0; i < 100;
	     i++) { /* time for another worker to get ready, and to take what it may not */
		uv_run(&f.loop, UV_RUN_NOWAIT);
		usleep(5000);
	}
	assert_int_equal(hangs.n + waits.n, 0);
	worker_task_cancel(task);
	wait_for(&f, &waits);
	assert_int_equal(hangs.result, WORKER_POOL_E_UNAVAILABLE);
	assert_int_equal(waits.result, _WORKER_POOL_SUCCESS);
	teardown_pool(&f);
}

/* Owners whose work does not end keep nobody waiting for whom no worker works, as long as they are
 * few; and never root. */
static void check_extra(bool single_use, unsigned int owner_max) {
	static const uint64_t owners[] = { 1, 1, 1, 2, 3, 4 };
	struct seen hangs[6] = {}, fifth = {}, root = {}, nobody = {}, mine = {};
	struct worker_task *tasks[6];
	struct fixture f;

	setup_pool_for(&f, NULL, 2, single_use, 0, owner_max, 2);
	for (int i = 0; i < 6; i++)
		tasks[i] = submit_overtime(&f, &hangs[i], "hang", 0, 60000, owners[i], 0);
	while (worker_pool_load(f.pool).working < 4)
		uv_run(&f.loop, UV_RUN_ONCE);
	submit_overtime(&f, &fifth, "", 0, 60000, 5, 0);
	submit_overtime(&f, &mine, "", 0, 60000, 1, 0);
	worker_pool_submit(f.pool, worker_task_new(json_object_new_object(), on_done, &nobody),
			   60000);
	wait_for(&f, &nobody);
	assert_int_equal(nobody.result, _WORKER_POOL_SUCCESS);
	submit(&f, &root, "", 0, 60000);
	wait_for(&f, &root);
	assert_int_equal(root.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(fifth.n + mine.n, 0);
	assert_true(worker_pool_load(f.pool).working == 4);
	for (int i = 0; i < 6; i++)
		assert_int_equal(hangs[i].n, 0);
	for (int i = 3; i < 6; i++)
		worker_task_cancel(tasks[i]);
	wait_for(&f, &fifth);
	assert_int_equal(fifth.result, _WORKER_POOL_SUCCESS);
	for (int i = 0; i < 3; i++)
		worker_task_cancel(tasks[i]);
	wait_for(&f, &mine);
	assert_int_equal(mine.result, _WORKER_POOL_SUCCESS);
	while (worker_pool_load(f.pool).alive != 2)
		uv_run(&f.loop, UV_RUN_ONCE);
	teardown_pool(&f);
}

static void test_extra(void **state) {
	check_extra(false, 0);
	check_extra(true, 1);
}

/* What another owner waits for, too, is done at his turn, however much the first one has submitted.
 */
static void test_shared(void **state) {
	struct seen many[10] = {}, shared = {}, own = {}, busy = {}, late = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	for (int i = 0; i < 10; i++)
		submit_overtime(&f, &many[i], "slow", 0, 60000, 1, 0);
	task = submit_overtime(&f, &shared, "", 0, 60000, 1, 0);
	wait_for(&f, &many[1]);
	worker_task_share(task, 2, 60000);
	worker_task_share(task, 2, 60000); /* is nothing new */
	assert_int_equal(worker_task_owners(task), 2);
	submit_overtime(&f, &own, "", 0, 60000, 2, 0);
	wait_for(&f, &shared);
	assert_int_equal(shared.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(many[4].n + own.n, 0);
	wait_for(&f, &own);
	assert_true(many[3].n); /* that was the second one's turn */
	assert_int_equal(many[9].n, 0);
	wait_for(&f, &many[9]);

	/* who comes late has as much time as others */
	submit_overtime(&f, &busy, "slower", 0, 60000, 1, 0);
	while (!worker_pool_load(f.pool).working && !busy.n)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	task = submit_overtime(&f, &late, "", 0, 100, 1, 0);
	worker_task_share(task, 2, 60000);
	wait_for(&f, &late);
	assert_int_equal(late.result, _WORKER_POOL_SUCCESS);
	assert_true(busy.n);
	teardown_pool(&f);
}

/* Those of which there are too many wait as the others do. */
static void test_shared_many(void **state) {
	struct seen busy = {}, shared = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	submit_overtime(&f, &busy, "slow", 0, 60000, 1, 0);
	task = submit_overtime(&f, &shared, "", 0, 60000, 1, 0);
	for (uint64_t owner = 2; owner < 100; owner++)
		worker_task_share(task, owner, 60000);
	assert_int_equal(worker_task_owners(task), 8);
	for (unsigned int i = 0; i < 8; i++)
		assert_true(worker_task_is_of(task, worker_task_owner_at(task, i)));
	assert_false(worker_task_is_of(task, 99));
	wait_for(&f, &shared);
	assert_int_equal(shared.result, _WORKER_POOL_SUCCESS);
	teardown_pool(&f);
}

/* ... and if all workers work for the first one, the other gets one that is started besides. */
static void test_shared_extra(void **state) {
	struct seen hangs[2] = {}, shared = {};
	struct worker_task *tasks[2], *task;
	struct fixture f;

	setup_pool_for(&f, NULL, 2, false, 0, 0, 1);
	for (int i = 0; i < 2; i++)
		tasks[i] = submit_overtime(&f, &hangs[i], "hang", 0, 60000, 1, 0);
	while (worker_pool_load(f.pool).working < 2)
		uv_run(&f.loop, UV_RUN_ONCE);
	task = submit_overtime(&f, &shared, "", 0, 60000, 1, 0);
	worker_task_set_alone(task);
	worker_task_share(task, 2, 60000);
	wait_for(&f, &shared);
	assert_int_equal(shared.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(hangs[0].n + hangs[1].n, 0);
	for (int i = 0; i < 2; i++)
		worker_task_cancel(tasks[i]);
	teardown_pool(&f);
}

/* One that was started besides does not get ready: that is no trouble of the others, and not tried
 * again and again. */
static void test_extra_dies(void **state) {
	char folder[] = "/tmp/test-worker-pool-XXXXXX", argument[64], *flag;
	struct seen busy[2] = {}, alone = {};
	struct worker_task *tasks[2], *task;
	struct fixture f;
	uint64_t start;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(argument, sizeof(argument), "--die-if=%s/flag", folder);
	flag = strchr(argument, '/');
	setup_pool_for(&f, argument, 2, false, 0, 0, 2);
	start = uv_now(&f.loop);
	for (int i = 0; i < 2; i++)
		tasks[i] = submit_overtime(&f, &busy[i], "hang", 0, 60000, 1, 0);
	while (worker_pool_load(f.pool).working < 2)
		uv_run(&f.loop, UV_RUN_ONCE);
	fd = open(flag, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	task = worker_task_new(json_object_new_object(), on_done, &alone);
	worker_task_set_owner(task, 2);
	worker_task_set_alone(task);
	worker_pool_submit(f.pool, task, 60000);
	while (worker_pool_counters(f.pool)->crashes < 20) {
		uv_run(&f.loop, UV_RUN_ONCE);
		assert_null(worker_pool_trouble(f.pool));
	}
	assert_true(worker_pool_counters(f.pool)->spawned <= starts_allowed(&f, 2, start));
	unlink(flag);
	wait_for(&f, &alone);
	assert_int_equal(alone.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(busy[0].n + busy[1].n, 0);
	for (int i = 0; i < 2; i++)
		worker_task_cancel(tasks[i]);
	rmdir(folder);
	teardown_pool(&f);
}

/* However many take long: few go on, and all workers are there for others. */
static void test_overtime_bounds(void **state) {
	static const char refused[] = "worker timed out: too many other jobs take as long";
	struct seen mine[2] = {}, other = {}, third = {}, quick[2] = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 2, false, 0);
	task = submit_overtime(&f, &mine[0], "hang", 0, 2000, 1, 60000);
	submit_overtime(&f, &mine[1], "hang", 0, 2100, 1, 60000);
	wait_for(&f, &mine[1]);
	assert_int_equal(mine[1].result, WORKER_POOL_E_TIMEOUT);
	assert_string_equal(mine[1].message, refused);
	assert_int_equal(mine[0].n, 0);

	submit_overtime(&f, &other, "hang", 0, 2000, 2, 60000);
	submit_overtime(&f, &third, "hang", 0, 2100, 3, 60000);
	wait_for(&f, &third);
	assert_int_equal(third.result, WORKER_POOL_E_TIMEOUT);
	assert_string_equal(third.message, refused);
	assert_int_equal(other.n, 0);

	for (int i = 0; i < 2; i++)
		submit(&f, &quick[i], "slower", 0, 20000);
	for (int i = 0; i < 2; i++) {
		wait_for(&f, &quick[i]);
		assert_int_equal(quick[i].result, _WORKER_POOL_SUCCESS);
	}
	assert_int_not_equal(quick[0].pid, quick[1].pid);

	/* an end makes room for another */
	worker_task_cancel(task);
	assert_int_equal(mine[0].n, 0);
	wait_for(&f, &mine[0]);
	assert_int_equal(mine[0].result, WORKER_POOL_E_UNAVAILABLE);
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 2);
	mine[0] = (struct seen){};
	submit_overtime(&f, &mine[0], "slower", 0, 20, 1, 60000);
	wait_for(&f, &mine[0]);
	assert_int_equal(mine[0].result, _WORKER_POOL_SUCCESS);
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 2);
	teardown_pool(&f); /* one is in overtime still */
	assert_int_equal(other.result, WORKER_POOL_E_UNAVAILABLE);
}

/* Without time from the start: waits for a worker if it may take overtime; cancelled in the queue.
 */
static void test_overtime_queue(void **state) {
	struct seen busy = {}, refused = {}, waits = {}, unwanted = {};
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 1, false, 0);
	submit(&f, &busy, "slower", 0, 20000);
	submit(&f, &refused, "", 0, 0);
	submit_overtime(&f, &waits, "slow", 0, 0, 1, 20000);
	task = submit_overtime(&f, &unwanted, "hang", 0, 20000, 1, 0);
	wait_for(&f, &refused);
	assert_int_equal(refused.result, WORKER_POOL_E_BUSY);
	assert_int_equal(busy.n, 0);
	worker_task_cancel(task);
	wait_for(&f, &unwanted);
	assert_int_equal(unwanted.result, WORKER_POOL_E_UNAVAILABLE);
	assert_int_equal(waits.n, 0);
	wait_for(&f, &waits);
	assert_int_equal(waits.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(busy.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 0);
	teardown_pool(&f);
}

/* What is late waits for its turn among those that are late, and what is in time does not wait for
 * it. */
static void test_late(void **state) {
	struct seen first = {}, behind[2] = {}, waits = {}, quick;
	struct worker_task *task;
	struct fixture f;

	setup_pool(&f, NULL, 2, false, 0);
	task = submit_overtime(&f, &first, "hang", 0, 0, 1, 60000);
	for (int i = 0; i < 2; i++)
		submit_overtime(&f, &behind[i], "", 0, 0, 1, 60000);
	submit_overtime(&f, &waits, "slower", 0, 20, 2, 60000);
	for (int i = 0; i < 3; i++) {
		quick = once(&f, "", 0, 60000);
		assert_int_equal(quick.result, _WORKER_POOL_SUCCESS);
	}
	wait_for(&f, &waits);
	assert_int_equal(waits.result, _WORKER_POOL_SUCCESS);
	assert_int_equal(first.n + behind[0].n + behind[1].n, 0);
	worker_task_cancel(task);
	for (int i = 0; i < 2; i++) {
		wait_for(&f, &behind[i]);
		assert_int_equal(behind[i].result, _WORKER_POOL_SUCCESS);
	}
	assert_int_equal(worker_pool_counters(f.pool)->timeouts, 0);
	teardown_pool(&f);
}

int main(int argc, char *argv[]) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_crash),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_exit),
		cmocka_unit_test(test_hang),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_cheating_outputs),
		cmocka_unit_test(test_crash_loop),
		cmocka_unit_test(test_crash_loop_of_another),
		cmocka_unit_test(test_single_use),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_never_ready),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_free_busy),
		cmocka_unit_test(test_overtime),
		cmocka_unit_test(test_overtime_ends),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_owner_max),
		cmocka_unit_test(test_extra),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_shared_many),
		cmocka_unit_test(test_shared_extra),
		cmocka_unit_test(test_extra_dies),
		cmocka_unit_test(test_overtime_bounds),
		cmocka_unit_test(test_overtime_queue),
		cmocka_unit_test(test_late),
	};

	if (argc != 2)
		return 2;
	worker_path = realpath(argv[1], NULL); /* workers are started in / */
	if (!worker_path)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
