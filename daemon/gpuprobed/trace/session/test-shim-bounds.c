/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the limits of shim-ring.c: memory of rings, and the time that reading them takes.
 */

#include "test-traced.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Users who have many processes get fewer slots, and in the end none: what is not there is counted.
 */
static void test_shapes(void **state) {
	enum {
		N = 600
	};
	struct traced *traced = calloc(N, sizeof(*traced));
	struct test_client client = {};
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

/* Numbers that a process chooses lie in no heap, as these would, which differ in upper bits only
 * once they are folded, whatever is added to them before. */
static void test_numbers_of_one(void) {
	struct number_map map = {};
	size_t run = 0, longest = 0;

	for (uint64_t i = 1; i <= RING_NAMES_MAX; i++)
		assert_true(number_map_add(&map, i << 46 | (i << 14 & UINT32_MAX), i));
	assert_int_equal(map.table.n, RING_NAMES_MAX);
	for (size_t i = 0; i < 2 * (size_t)map.table.capacity; i++) {
		run = map.table.index[i].number ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	assert_true(longest < RING_NAMES_MAX / 256);
	for (uint64_t i = 1; i <= RING_NAMES_MAX; i++)
		assert_int_equal(*number_map_find(&map, i << 46 | (i << 14 & UINT32_MAX)), i);
	number_map_deinit(&map);
}

/* Each table has secrets of its own. */
static void test_numbers(void **state) {
	for (int i = 0; i < 20; i++)
		test_numbers_of_one();
}

/* ---- time ---- */

/* What of its slots has been read: bytes. */
static uint64_t bytes_read(struct trace_ring *ring) {
	uint64_t n = 0;

	for (uint32_t i = 0; i < ring->slot_count; i++)
		n += producer_slot(ring, i)->tail;
	return n;
}

/* Of a function for which there is no room. */
static void make_dear(struct name_record *name) {
	static const char prefix[] = "cuALongNameThatIsTheSameAtItsBeginningWhateverTheFunctionIs";
	char text[100];

	for (unsigned int i = 0; i <= TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC; i++) {
		snprintf(text, sizeof(text), "%s%u", prefix, i);
		sink_function(&world.table->shared, text);
	}
	make_name(name, TRACE_NAME_FUNCTION, TRACE_FUNCTION_DYNAMIC, prefix);
}

/* Records that are dear: a turn takes few of them, but some, and does not begin with the same slot
 * each time. */
static void test_dear(void **state) {
	enum {
		SLOTS = 16
	};
	struct producer producers[SLOTS];
	struct test_client client = { .lazy = true };
	struct name_record name;
	struct traced traced;
	uint64_t last = 0, read;
	unsigned int n = 0;

	start_usual(&client);
	begin(&traced, 1);
	make_dear(&name);
	for (unsigned int i = 0; i < SLOTS; i++) {
		assert_true(producer_claim(&producers[i], traced.ring, (uint32_t)getpid()));
		while (producer_write(&producers[i], &name.name.record))
			n++;
	}
	shim_rings_drain(world.table);
	last = bytes_read(traced.ring);
	assert_true(last > 0 && last < 256 << 10);
	for (unsigned int i = 0; i < SLOTS - 1; i++) {
		while (producer_write(&producers[0], &name.name.record)) /* full again */
			n++;
		shim_rings_drain(world.table);
		read = bytes_read(traced.ring);
		assert_true(read > last);
		last = read;
	}
	for (unsigned int i = 0; i < SLOTS; i++)
		assert_true(producers[i].slot->tail > 0);
	gone(&traced);
	end_client(&client);
}

/* A call of a thread that is not known, in the next turn of the loop. */
static struct producer call_unknown(struct traced *traced, uint32_t tid) {
	const uint64_t now = ring_now(traced->ring), turn = uv_now(&world.loop);
	struct producer producer;
	struct producer_call call;

	while (uv_now(&world.loop) == turn) {
		usleep(500);
		uv_update_time(&world.loop);
	}
	assert_true(producer_claim(&producer, traced->ring, tid));
	producer_call(&call, 5, 0, now, now, 1);
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	return producer;
}

/* Which number a thread has outside of its namespace is looked for, but not all the time. */
static void test_foreign(void **state) {
	struct test_client client = {};
	const struct trace_call *got;
	struct producer producer;
	struct producer_call call;
	struct shim_ring *ring;
	struct traced traced;
	size_t at = 0;

	start_usual(&client);
	begin(&traced, 1);
	ring = LIST_FIRST(&world.table->rings);
	ring->foreign = true;
	call_unknown(&traced, 1000000001);
	assert_true(ring->n_tids > 0 && ring->tids_next > 0);
	ring->n_tids = 0;
	ring->tids_next = UINT64_MAX;
	call_unknown(&traced, 1000000002);
	assert_int_equal(ring->n_tids, 0);
	ring->tids_next = 0;
	producer = call_unknown(&traced, 1000000003);
	assert_true(ring->n_tids > 0);
	/* once it is known, that counts */
	ring->tids[0] = 1000000003;
	ring->tids[1] = (uint32_t)getpid();
	producer_call(&call, 5, 0, 1, 2, 1);
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	client_read(&client);
	for (uint32_t i = 1; i <= 4; i++) {
		got = next_record(&client, &at, TRACE_CALL);
		assert_non_null(got);
		assert_int_equal(got->tid, i < 4 ? 1000000000 + i : (uint32_t)getpid());
	}
	gone(&traced);
	end_client(&client);
}

/* The last time all is read, but there is an end of taking and of counting: what is behind that is
 * lost, nobody knows how much. */
static void test_last(void **state) {
	enum {
		SLOTS = 128
	};
	const struct trace_ring_record pad = { .size = 8, .type = TRACE_RING_PAD };
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);
	struct producer producer;
	struct traced traced;

	config.options.buffer = 1 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	begin(&traced, 1);
	assert_true(traced.ring->slot_count >= SLOTS && traced.ring->slot_bytes == 1 << 20);
	for (unsigned int i = 0; i < SLOTS; i++) {
		assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
		for (size_t k = 0; k < 1 << 20; k += sizeof(pad))
			memcpy((unsigned char *)(producer.slot + 1) + k, &pad, sizeof(pad));
		__atomic_store_n(&producer.slot->head, 1 << 20, __ATOMIC_RELEASE);
	}
	shim_rings_closed(world.table, &traced.connection);
	assert_int_equal(bytes_read(traced.ring), (uint64_t)SLOTS << 20);
	gone(&traced);
	session_flush_lost(client.session);
	client_read(&client);
	assert_in_range(count_lost(&client, TRACE_SOURCE_SHIM), 1, SLOTS);
	end_client(&client);
}

/* Many processes that have ended at once, whose rings others have: not all are read in one turn,
 * but each in the end. */
static void test_outlived(void **state) {
	enum {
		N = 16,
		SLOTS = 16
	};
	struct test_client client = { .lazy = true };
	struct traced *traced = calloc(N, sizeof(*traced));
	struct producer producer;
	struct name_record name;
	unsigned int left;
	siginfo_t info;
	pid_t child;
	int pidfd;

	start_usual(&client);
	make_dear(&name);
	child = fork();
	if (!child)
		_exit(0);
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(pidfd >= 0);
	for (unsigned int i = 0; i < N; i++) {
		begin(&traced[i], i + 1);
		traced[i].connection.pidfd = pidfd;
		for (unsigned int k = 0; k < SLOTS; k++) {
			assert_true(producer_claim(&producer, traced[i].ring, (uint32_t)getpid()));
			while (producer_write(&producer, &name.name.record))
				;
		}
	}
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED), 0);
	for (unsigned int turn = 0, before = N;; turn++) {
		shim_rings_look_at_processes(world.table);
		left = 0;
		for (unsigned int i = 0; i < N; i++)
			left += traced[i].ring->enabled;
		assert_true(left < before);
		assert_true(left || turn);
		if (!left)
			break;
		before = left;
	}
	for (unsigned int i = 0; i < N; i++)
		gone(&traced[i]);
	close(pidfd);
	end_client(&client);
	free(traced);
}

int main(void) {
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_shapes), cmocka_unit_test(test_numbers),
		TEST(test_dear),   TEST(test_foreign),
		TEST(test_last),   TEST(test_outlived),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
