/* SPDX-License-Identifier: Apache-2.0 */

/* What processes may cost: memory of rings, and the time that reading them takes. */

#include "test-traced.h"

/* Users who have many processes get fewer slots, and in the end none: what is not there is counted. */
static void test_shapes(void **state) {
	enum { N = 600 };
	struct traced *traced = calloc(N, sizeof(*traced));
	struct client client = {};
	struct trace_config config = usual_config(&client);
	uint32_t last = UINT32_MAX;
	uint64_t total = 0;
	unsigned int n = 0;

	config.options.buffer = 1 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	for (; n < N; n++) {
		traced[n] = (struct traced){ .connection = { .state = SHIM_CLOSED, .pidfd = -1 } };
		assert_int_equal(process_facts_read(&traced[n].process.facts, getpid(), -1), 0);
		traced[n].process.number = n + 1;
		traced[n].process.uid = getuid();
		if (!ask(&traced[n]))
			break;
		assert_true(traced[n].ring->slot_count <= last && traced[n].ring->slot_count >= 16);
		last = traced[n].ring->slot_count;
		total += traced[n].size;
	}
	assert_true(n >= 60 && n < N); /* 50 programs at a time are nothing special */
	assert_true(total <= UINT64_C(16) << 30);
	session_flush_lost(client.session);
	client_read(&client);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 1);
	for (unsigned int i = 0; i < n; i++)
		gone(&traced[i]);
	end_client(&client);
	free(traced);
}

/* Numbers that a process chooses lie in no heap: those here differ in their upper bits only, once they are folded, as those of a hash without a secret could. */
static void test_numbers(void **state) {
	struct number_map map = {};
	size_t run = 0, longest = 0;

	for (uint64_t i = 1; i <= RING_NAMES_MAX; i++)
		assert_true(number_map_add(&map, i << 46 | (i << 14 & UINT32_MAX), i));
	assert_int_equal(map.n, RING_NAMES_MAX);
	for (size_t i = 0; i < map.size; i++) {
		run = map.entries[i].key ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	assert_true(longest < RING_NAMES_MAX / 16);
	for (uint64_t i = 1; i <= RING_NAMES_MAX; i++)
		assert_int_equal(*number_map_find(&map, i << 46 | (i << 14 & UINT32_MAX)), i);
	number_map_deinit(&map);
}

int main(void) {
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_shapes),
		cmocka_unit_test(test_numbers),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
