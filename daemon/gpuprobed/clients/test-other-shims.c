/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of other-shims.c: programs with other shims that connect, and how often all are
 * examined.
 */

#include "other-shims.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/gpuprobed/daemon-private.h"
#include "daemon/gpuprobed/wire/process-facts.h"

#define ENDED 5000 /* processes from here on have ended once they have greeted */

static unsigned int n_reads;
static bool look; /* what is read now is of who has greeted */

int __wrap_process_facts_read(struct process_facts *facts, pid_t pid, int pidfd);

int __wrap_process_facts_read(struct process_facts *facts, pid_t pid, int pidfd) {
	n_reads++;
	if (look && pid >= ENDED)
		return -ESRCH;
	*facts = (struct process_facts){ .pid = pid, .uid = 1001, .start_time = 1 };
	return 0;
}

static void greet(struct other_shims *others, pid_t pid) {
	const struct shim_greeting greeting = { .version = 99, .shim_version = "9.9" };
	const struct shim_connection connection = { .pid = pid, .pidfd = -1, .uid = 1001 };

	other_shims_greeted(others, &connection, &greeting);
}

static void take(const char *line, void *userdata) {
	unsigned int *np = userdata;
	const char *colon = strstr(line, ": ");

	assert_non_null(colon);
	*np = (unsigned int)atoi(colon + 2);
}

static unsigned int told(struct other_shims *others) {
	unsigned int n = 0;

	other_shims_each(others, take, &n);
	return n;
}

static void test_full(void **state) {
	struct config config = {};
	struct daemon daemon = { .config = &config };
	struct other_shims *others;
	unsigned int n;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	daemon.loop = &loop;
	daemon_connect_rooms(&daemon);
	process_table_init(&daemon.processes, NULL, NULL, NULL);
	outcome_log_init(&daemon.outcomes);
	assert_int_equal(other_shims_new(&others, &daemon.client), 0);
	for (pid_t pid = ENDED - 127; pid <= ENDED; pid++)
		greet(others, pid);
	n = told(others);
	assert_int_equal(n, 128);
	n_reads = 0;
	for (pid_t pid = 1; pid <= 200; pid++) /* who has no room */
		greet(others, pid);
	assert_in_range(n_reads, 200, 200 + 128);
	look = true;
	uv_update_time(&loop);
	for (uint64_t start = uv_now(&loop); uv_now(&loop) - start < 600;
	     uv_update_time(&loop)) /* until what is known is old */
		uv_sleep(50);
	greet(others, 1); /* the one that has ended makes room */
	assert_int_equal(told(others), 128);
	others = other_shims_free(others);
	uv_run(&loop, UV_RUN_DEFAULT);
	outcome_log_deinit(&daemon.outcomes);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
