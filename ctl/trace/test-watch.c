/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the thread that asks the driver during a trace (watch.h). What finds no room is
 * counted, and the thread ends even if the driver does not answer.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "watch.h"
#include "ctl/rm/fake-driver.h"
#include "proto/trace.h"

#define N 1000 /* spans: more than BYTES_MAX, which is 16 KiB here */
#define MISSED 100 /* events that the driver did not tell, before the last span */

static struct fake_driver fake;
static struct rm_driver driver;
static unsigned char records[2 * N][32];

static void put(unsigned char *record, uint16_t sequence, uint8_t tag, uint64_t time) {
	memset(record, 0, 32);
	record[0] = 2;
	record[8] = tag;
	memcpy(record + 10, &sequence, sizeof(sequence));
	record[16] = 77; /* pid */
	memcpy(record + 24, &time, sizeof(time));
}

/* Until the thread has given back all that it had of the driver: it ends behind its last call, and
 * nobody joins it. */
static void wait_free(void) {
	while (__atomic_load_n(&fake.n_fds, __ATOMIC_SEQ_CST) ||
	       __atomic_load_n(&fake.n_objects, __ATOMIC_SEQ_CST))
		usleep(1000);
	usleep(10000);
}

static void test_slow_reader(void **state) {
	struct trace_watch *watch;
	size_t n, n_spans = 0, n_lost = 0;
	char *lines, *bytes;

	fake_driver_init(&fake, &driver);
	for (uint32_t i = 0; i < 2 * N; i++)
		put(records[i], (uint16_t)(i < 2 * N - 2 ? i : i + MISSED), i % 2 ? 7 : 6,
		    (i + 1) * UINT64_C(1000));
	fake.records = records;
	fake.n_records = 2 * N;
	assert_int_equal(trace_watch_new(&watch, &driver, true), 0);
	trace_watch_wait(watch, 60000);
	trace_watch_stop(watch, 60000);
	assert_int_equal(trace_watch_take(watch, (void **)&bytes, &n, &lines), 0);
	assert_null(lines);
	assert_true(n > 0 && n < (size_t)32 << 10);
	for (size_t at = 0; at < n;
	     at += ((const struct trace_record *)(const void *)(bytes + at))->size) {
		const struct trace_record *record = (const void *)(bytes + at);

		n_spans += record->type == TRACE_CTXSW;
		n_lost +=
			record->type == TRACE_LOST ? ((const struct trace_lost *)record)->count : 0;
	}
	assert_int_equal(n_spans + n_lost, N + MISSED);
	assert_true(n_lost > 0);
	free(bytes);
	/* it is said once */
	assert_int_equal(trace_watch_take(watch, (void **)&bytes, &n, &lines), 0);
	assert_null(bytes);
	assert_int_equal(n, 0);
	trace_watch_free(watch);
	wait_free();
}

static int release[2];

/* Answers the version, then nothing until somebody closes the pipe. */
static int hanging_ioctl(void *userdata, int fd, unsigned long command, void *argument) {
	char byte;

	if (fake.n_ioctls > 1)
		(void)!read(release[0], &byte, 1);
	return fake_driver_ioctl(userdata, fd, command, argument);
}

static void test_no_answer(void **state) {
	struct trace_watch *watch;
	void *bytes;
	char *lines;
	size_t n;

	assert_int_equal(pipe(release), 0);
	fake_driver_init(&fake, &driver);
	driver.ioctl = hanging_ioctl;
	assert_int_equal(trace_watch_new(&watch, &driver, true), 0);
	trace_watch_wait(watch, 100);
	trace_watch_stop(watch, 100);
	assert_int_equal(trace_watch_take(watch, &bytes, &n, &lines), 0);
	assert_null(bytes);
	trace_watch_free(watch);
	/* the thread ends then, and frees what it has */
	close(release[1]);
	wait_free();
	close(release[0]);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_slow_reader),
					    cmocka_unit_test(test_no_answer) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
