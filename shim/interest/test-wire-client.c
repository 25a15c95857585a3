/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of wire-client.c: whether a connection is alive is found out right, whatever signals
 * the application gets.
 */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "wire-client.h"

#define ALARMS 1000

static volatile sig_atomic_t alarms;

static void on_alarm(int number) {
	alarms++;
}

static void test_alive(void **state) {
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval storm = { { 0, 20 }, { 0, 20 } }, quiet = { 0 };
	struct wire_client client = WIRE_CLIENT_NONE;
	struct stat status;
	int ends[2];

	assert_false(wire_client_is_alive(&client));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(fstat(ends[0], &status), 0);
	client = (struct wire_client){ .fd = ends[0],
				       .device = status.st_dev,
				       .inode = status.st_ino };
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &storm, NULL);
	while (alarms < ALARMS) {
		errno = EDOM;
		assert_true(wire_client_is_alive(&client));
		assert_int_equal(errno, EDOM);
	}
	setitimer(ITIMER_REAL, &quiet, NULL);
	close(ends[1]);
	assert_false(wire_client_is_alive(&client));
	wire_client_close(&client);
}

static int limit_descriptors(rlim_t count) {
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = count;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

/* Where the program has closed a standard descriptor, none of ours takes its place, and stays. */
static void test_move(void **state) {
	int moved;

	close(STDIN_FILENO);
	assert_int_equal(dup(STDOUT_FILENO), STDIN_FILENO);
	moved = wire_client_move_descriptor(STDIN_FILENO);
	assert_true(moved >= 40);
	close(moved);
	limit_descriptors(20);
	assert_int_equal(dup(STDOUT_FILENO), STDIN_FILENO);
	moved = wire_client_move_descriptor(STDIN_FILENO);
	assert_in_range(moved, 3, 19);
	assert_int_equal(wire_client_move_descriptor(moved), moved);
	close(moved);
	assert_int_equal(dup(STDOUT_FILENO), STDIN_FILENO);
	limit_descriptors(0);
	assert_int_equal(wire_client_move_descriptor(STDIN_FILENO), -1);
	limit_descriptors(1000);
	assert_int_equal(dup(STDOUT_FILENO), STDIN_FILENO);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_alive),
					    cmocka_unit_test(test_move) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
