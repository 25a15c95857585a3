/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of what sessions report: counted calls, each of them once, and lines about what cannot
 * be recorded, as they come.
 */

#include "test-session.h"

#include "daemon/gpuprobed/trace/bpf/tally.h"

static uint64_t count_calls(const struct test_client *client) {
	const struct trace_counts *counts;
	uint64_t calls = 0;
	size_t at = 0;

	while ((counts = next_record(client, &at, TRACE_COUNTS)))
		calls += counts->calls;
	return calls;
}

/* Counts of a source that begins again, as of another process with the same pid: no calls come from
 * nowhere. */
static void test_counts_anew(void **state) {
	struct test_client client = {};
	const struct trace_counts *counts;
	struct trace_tally tally = {
		.time = 500, .max = 100, .least = ~UINT64_C(100), .buckets = { [4] = 5 }
	};
	uint64_t calls = 0, time = 0;
	size_t at = 0;

	start_usual(&client);
	assert_true(trace_session_counts(client.session, TRACE_SOURCE_BPF, 7, 12, &tally));
	assert_true(trace_session_counts(client.session, TRACE_SOURCE_BPF, 7, 12,
					 &tally)); /* nothing new */
	trace_session_counts_anew(client.session, TRACE_SOURCE_BPF, 7, 12);
	trace_session_counts_anew(client.session, TRACE_SOURCE_BPF, 8, 12); /* nobody knows it */
	tally.time = 20;
	tally.buckets[4] = 2;
	assert_true(trace_session_counts(client.session, TRACE_SOURCE_BPF, 7, 12, &tally));
	trace_session_finish(client.session);
	turn_for(20);
	while ((counts = next_record(&client, &at, TRACE_COUNTS))) {
		calls += counts->calls;
		time += counts->time;
	}
	assert_int_equal(calls, 7);
	assert_int_equal(time, 520);
	end_client(&client);
}

/* One call of each of some functions of some processes that are gone; false: there is no room for
 * all. */
static bool put_counts(struct test_client *client, uint32_t pid, uint32_t n) {
	const struct trace_tally one = {
		.time = 4, .max = 4, .least = ~UINT64_C(4), .buckets = { [4] = 1 }
	};
	bool all = true;

	for (uint32_t i = 0; i < n; i++)
		for (uint16_t function = 1; function <= 32; function++)
			all = trace_session_counts(client->session, TRACE_SOURCE_BPF, pid + i,
						   function, &one) &&
			      all;
	return all;
}

static void call_by_shim(struct test_client *client, uint32_t pid, uint32_t n) {
	struct trace_call call = {
		.record = { .size = sizeof(call), .type = TRACE_CALL, .source = TRACE_SOURCE_SHIM },
		.start = 1,
		.end = 5
	};

	for (uint32_t i = 0; i < n; i++)
		for (uint16_t function = 1; function <= 32; function++) {
			call.pid = pid + i;
			call.function = function;
			assert_true(session_count_call(client->session, &call));
		}
}

#define GONE 5000000 /* pids from here on have no processes */

/* A table that becomes full of processes that are gone: what programs of the kernel have counted of
 * them comes again, and is no new call. */
static void test_counts_of_gone(void **state) {
	struct trace_config config;
	struct test_client client = {};

	config = usual_config(&client);
	config.buffer = (size_t)64 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(put_counts(&client, GONE, 256)); /* as many as the kernel's map has room for */
	call_by_shim(&client, GONE + 1000, 256); /* it is full */
	call_by_shim(&client, GONE + 2000, 1); /* has room by those that the shim brought */
	assert_true(put_counts(&client, GONE, 256)); /* the next pass */
	for (uint16_t function = 1; function <= 32;
	     function++) /* one leaves the map, and comes again */
		trace_session_counts_anew(client.session, TRACE_SOURCE_BPF, GONE, function);
	assert_int_equal(client.session->tallies.table.n, 255 * 32 + 32);
	assert_true(put_counts(&client, GONE, 1));
	assert_true(put_counts(&client, GONE, 256));
	trace_session_finish(client.session);
	turn_for(20);
	assert_int_equal(count_calls(&client), (256 + 256 + 1 + 1) * 32);
	assert_int_equal(count_records(&client, TRACE_LOST), 0);
	end_client(&client);
}

/* What turns out while the trace runs wakes its client, and is said once. */
static void test_missing_later(void **state) {
	struct test_client client = {};
	const char *const *lines;
	unsigned int wakes;

	start_usual(&client);
	turn_for(20);
	trace_session_trouble(client.session, &lines);
	assert_int_equal(trace_session_trouble(client.session, &lines), 0);
	assert_false(trace_session_waiting(client.session));
	wakes = client.wakes;
	trace_session_missing(client.session, "bpf: %s", "one");
	trace_session_missing(client.session, "bpf: %s", "two");
	assert_true(trace_session_waiting(client.session));
	turn_for(50);
	assert_true(client.wakes > wakes);
	assert_int_equal(trace_session_trouble(client.session, &lines), 2);
	assert_string_equal(lines[0], "bpf: one");
	assert_string_equal(lines[1], "bpf: two");
	assert_false(trace_session_waiting(client.session));
	trace_session_missing(client.session, "bpf: three");
	assert_int_equal(trace_session_trouble(client.session, &lines), 1);
	assert_string_equal(lines[0], "bpf: three");
	end_client(&client);
}

int main(void) {
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, world_setup, world_teardown)
	const struct CMUnitTest tests[] = { TEST(test_counts_anew), TEST(test_counts_of_gone),
					    TEST(test_missing_later) };
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
