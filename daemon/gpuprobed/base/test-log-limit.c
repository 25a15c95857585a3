/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of log-limit.c: how many lines users may cause, and what the line about the rest says.
 */

#include "log-limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define PERIOD_MS 10

static uv_loop_t loop;
static struct log_limit *limit;

/* What the log has said meanwhile. */
static char text[65536];

static void run(void (*fn)(void)) {
	const int fd = memfd_create("log", 0), before = dup(STDERR_FILENO);

	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	fn();
	dup2(before, STDERR_FILENO);
	memset(text, 0, sizeof(text));
	assert_true(pread(fd, text, sizeof(text) - 1, 0) >= 0);
	close(fd);
	close(before);
}

static unsigned int ask(uid_t uid, unsigned int times) {
	unsigned int n = 0;

	while (times--)
		n += log_limit_may(limit, uid);
	return n;
}

static void minute(void) {
	uv_run(&loop, UV_RUN_DEFAULT);
}

static void end(void) {
	limit = log_limit_free(limit);
	uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_users(void **state) {
	assert_int_equal(log_limit_new(&limit, &loop, PERIOD_MS, "began, by"), 0);
	assert_int_equal(ask(7, 1000), LOG_LIMIT_LINES);
	assert_int_equal(ask(8, LOG_LIMIT_LINES), LOG_LIMIT_LINES); /* not for others */
	run(minute);
	assert_non_null(strstr(text, "began, by uid 7: 990 more such lines were left out\n"));
	assert_null(strstr(text, "uid 8"));
	assert_int_equal(ask(7, LOG_LIMIT_LINES + 2),
			 LOG_LIMIT_LINES); /* in the next minute some more */
	run(end);
	assert_non_null(strstr(text, "began, by uid 7: 2 more "));
}

/* Who has many user ids has no more than so many users. */
static void test_many_users(void **state) {
	unsigned int n = 0;

	assert_int_equal(log_limit_new(&limit, &loop, PERIOD_MS, "began, by"), 0);
	for (uid_t uid = 1000; uid < 11000; uid++)
		n += ask(uid, 2);
	assert_int_equal(n, 2 * LOG_LIMIT_USERS + LOG_LIMIT_LINES);
	run(end);
	assert_non_null(strstr(text, "began, by other users: "));
}

static int setup(void **state) {
	return uv_loop_init(&loop);
}

static int teardown(void **state) {
	return uv_loop_close(&loop);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_users),
					    cmocka_unit_test(test_many_users) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
