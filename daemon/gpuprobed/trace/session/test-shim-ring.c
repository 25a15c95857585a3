/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of shim-ring.c against a producer that is honest, fast, or lies. The traced processes
 * are this one, under several numbers of struct process.
 */

#include "test-traced.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/function.h"

/* A connection that asks again, because its ring is retired, leaves that one: it would be closed
 * with it, or outlive it. */
static void test_same_connection(void **state) {
	struct test_client clients[2] = {};
	struct trace_config config;
	struct producer producer;
	struct producer_call call;
	struct traced traced;
	struct trace_ring *old;
	uint64_t old_size, now;

	start_usual(&clients[0]);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	now = ring_now(traced.ring);
	producer_call(&call, 5, 0, now, now, 1);
	assert_true(producer_write(&producer, &call.call.record));
	config = usual_config(&clients[1]);
	config.options.gpu = true;
	assert_int_equal(start_session(&clients[1], &config), 0);
	assert_int_equal(traced.ring->enabled, 0);
	old = traced.ring;
	old_size = traced.size;
	traced.ring = NULL;
	assert_true(ask(&traced));
	assert_int_equal(world.table->n_rings, 1);
	assert_true(trace_session_has_shim(clients[0].session, getpid()));
	client_read(&clients[0]);
	assert_int_equal(count_records(&clients[0], TRACE_CALL), 1); /* of the old one */
	assert_int_equal(traced.ring->enabled, 1);
	gone(&traced);
	assert_int_equal(world.table->n_rings, 0);
	munmap(old, old_size);
	for (size_t i = 0; i < 2; i++)
		end_client(&clients[i]);
}

/* A process ends, and one that was forked from it goes on with its ring and its connection: that is
 * not told as the ended one's, whose number may be anybody's. */
static void test_outlived(void **state) {
	struct producer producer;
	struct producer_call call;
	struct test_client client = {};
	struct traced traced;
	siginfo_t info;
	uint64_t now;
	pid_t child;

	start_usual(&client);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	child = fork();
	if (!child)
		_exit(0);
	traced.connection.pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(traced.connection.pidfd >= 0);
	now = ring_now(traced.ring);
	producer_call(&call, 5, 0, now, now, 1);
	assert_true(producer_write(&producer, &call.call.record));
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	shim_rings_look_at_processes(world.table);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_CALL), 1); /* before it had ended */
	assert_int_equal(traced.ring->enabled, 0);
	assert_false(trace_session_has_shim(client.session, getpid()));
	producer_write(&producer, &call.call.record);
	drain();
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_CALL), 1);
	assert_false(ask(&traced));
	close(traced.connection.pidfd);
	traced.connection.pidfd = -1;
	gone(&traced);
	assert_int_equal(world.table->n_rings, 0);
	end_client(&client);
	waitpid(child, NULL, 0);
}

/* ---- honest ---- */

static pid_t start_sleeper(void) {
	pid_t pid = fork();

	if (pid == 0) {
		alarm(60);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

/* A process whose parents are not those of the trace is traced if it says of which of them it
 * descends, and the trace follows them. */
static void test_descendants(void **state) {
	const pid_t root = start_sleeper(), other = start_sleeper();
	uint32_t pids[] = { (uint32_t)root };
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	struct traced traced = { .connection = { .state = SHIM_CLOSED, .pidfd = -1 },
				 .process = { .number = 1, .uid = getuid() } };

	config.options.filter = (struct filter){};
	config.options.pids = pids;
	config.options.n_pids = 1;
	assert_int_equal(process_facts_read(&traced.process.facts, other, -1), 0);
	traced.ancestor = (uint32_t)root;
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(ask(&traced)); /* it is not followed */
	end_client(&client);
	config.options.follow = true;
	assert_int_equal(start_session(&client, &config), 0);
	traced.ancestor = 0;
	assert_false(ask(&traced));
	traced.ancestor = (uint32_t)other;
	assert_false(ask(&traced));
	traced.ancestor = (uint32_t)getppid(); /* of no trace */
	assert_false(ask(&traced));
	traced.ancestor = UINT32_MAX;
	assert_false(ask(&traced));
	traced.ancestor = (uint32_t)root;
	assert_true(ask(&traced));
	traced.ancestor = 0;
	assert_true(ask(&traced)); /* it is known now */
	gone(&traced);
	kill(root, SIGKILL); /* it may be gone */
	assert_int_equal(waitpid(root, NULL, 0), root);
	end_client(&client);
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, NULL, 0), other);
}

/* How many launches the client was told of whose end is not known. */
static uint64_t count_unknown_ends(const struct test_client *client) {
	const struct trace_lost *lost;
	uint64_t count = 0;
	size_t at = 0;

	while ((lost = next_record(client, &at, TRACE_LOST)))
		count += lost->record.flags & TRACE_LOST_ENDS ? lost->count : 0;
	return count;
}

/* Launches that have no times when a process, or the trace, ends: who asked for times is told how
 * many there were in its trace. */
static void test_unknown_ends(void **state) {
	struct test_client a = {}, b = {}, c = {};
	struct trace_config config = usual_config(&a);
	struct traced traced;

	config.options.gpu = true;
	assert_int_equal(start_session(&a, &config), 0);
	start_usual(&c); /* it did not ask */
	begin(&traced, 1);
	traced.ring->unread = 3;
	config = usual_config(&b);
	config.options.gpu = true;
	assert_int_equal(start_session(&b, &config), 0);
	traced.ring->unread = 7;
	trace_session_finish(b.session);
	gone(&traced);
	turn_for(20);
	assert_int_equal(count_unknown_ends(&a), 7);
	assert_int_equal(count_unknown_ends(&b), 4);
	assert_int_equal(count_unknown_ends(&c), 0);
	/* what makes no sense, as of one that joined where more were on their way, is not told */
	begin(&traced, 2);
	traced.ring->unread = UINT64_MAX - 1;
	gone(&traced);
	turn_for(20);
	assert_int_equal(count_unknown_ends(&a), 7);
	assert_int_equal(count_lost(&a, TRACE_SOURCE_GPU), 0);
	end_client(&a);
	end_client(&b);
	end_client(&c);
}

/* A process that hangs up without having taken its ring has gone on without: that is a loss, of
 * which nobody knows how many calls. */
static void test_too_late(void **state) {
	struct test_client client = {};
	struct traced traced;

	start_usual(&client);
	begin(&traced, 1);
	gone(&traced);
	session_flush_lost(client.session);
	turn_for(20);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 0);
	begin(&traced, 2);
	traced.ring->taken = 0;
	gone(&traced);
	session_flush_lost(client.session);
	turn_for(20);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 1);
	end_client(&client);
}

/* A session that wants sums has no records of calls, but of those that say more than a sum; nothing
 * is lost when its client does not read. */
static void test_counts(void **state) {
	const uint16_t alloc = function_by_name("cuMemAlloc_v2")->number,
		       copy = function_by_name("cuMemcpy2D_v2")->number;
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);
	const struct trace_counts *counts;
	uint64_t calls = 0, errors = 0, bytes = 0, done = 0, in_buckets = 0, time = 0;
	struct producer producer;
	struct producer_call call;
	struct traced traced;
	size_t at = 0, n = 0;

	config.buffer = 1;
	config.options.aggregate = true;
	assert_int_equal(start_session(&client, &config), 0);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	for (uint32_t i = 0; i < 300; i++) {
		uint64_t now = ring_now(traced.ring);

		producer_call(&call, i % 3 == 2 ? copy : alloc, i, now - 100, now, 2);
		call.call.words[1] = 10;
		call.call.result = i % 3 == 1 ? 2 : 0;
		assert_true(producer_write(&producer, &call.call.record));
		if (i % 100 == 99)
			drain();
	}
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_COUNTS), 0); /* not yet */
	trace_session_finish(client.session);
	client_read(&client);
	while ((counts = next_record(&client, &at, TRACE_COUNTS))) {
		assert_true(counts->record.source == TRACE_SOURCE_SHIM &&
			    counts->pid == (uint32_t)getpid() && counts->function == alloc);
		assert_int_equal(counts->record.size,
				 sizeof(*counts) + counts->n_buckets * sizeof(counts->buckets[0]));
		calls += counts->calls;
		errors += counts->errors;
		bytes += counts->bytes;
		done += counts->bytes_done;
		time += counts->time;
		for (size_t i = 0; i < counts->n_buckets; i++)
			in_buckets += counts->buckets[i].calls;
		assert_true(counts->min <= counts->max && counts->max > 0);
		n++;
	}
	assert_true(n >= 1 && calls == 200 && errors == 100 && bytes == 2000 && done == 1000 &&
		    in_buckets == 200 && time > 0);
	assert_int_equal(count_records(&client, TRACE_CALL) +
				 count_lost(&client, TRACE_SOURCE_SHIM),
			 100); /* its struct says how much */
	gone(&traced);
	end_client(&client);
}

/* Each duration has a bucket, which it lies in. */
static void test_buckets(void **state) {
	uint64_t value = 0;

	for (uint32_t i = 0; i < TRACE_BUCKETS; i++) {
		assert_int_equal(trace_bucket_of(trace_bucket_start(i)), i);
		assert_true(i == 0 || trace_bucket_of(trace_bucket_start(i) - 1) == i - 1);
	}
	for (unsigned int i = 0; i < 100000; i++) {
		uint32_t bucket;

		value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		bucket = trace_bucket_of(value >> (i % 64));
		assert_true(bucket < TRACE_BUCKETS &&
			    trace_bucket_start(bucket) <= value >> (i % 64));
		assert_true(bucket == TRACE_BUCKETS - 1 ||
			    value >> (i % 64) < trace_bucket_start(bucket + 1));
	}
	assert_int_equal(trace_bucket_of(UINT64_MAX), TRACE_BUCKETS - 1);
}

/* Many records of all sizes, around the ring again and again: each comes, in order, with what is in
 * it. */
static void test_order(void **state) {
	struct test_client client = {};
	struct producer producer;
	struct producer_call call;
	const struct trace_call *got;
	struct traced traced;
	uint32_t written = 0, sequence = 0;
	uint64_t last = 0, began = monotonic_now();
	size_t at = 0;

	start_usual(&client);
	begin(&traced, 1);
	assert_int_equal(traced.ring->slot_bytes, 65536);
	assert_int_equal(traced.ring->slot_count, TRACE_RING_SLOTS_MAX);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	while (written < 100000) {
		uint64_t now = ring_now(traced.ring);

		producer_call(&call, (uint16_t)(written % 700), written, now - 100, now,
			      (uint8_t)(written * 7 % 33));
		call.call.result = (int32_t)written % 3;
		call.call.record.flags = written % 2 ? TRACE_CALL_CUT : 0;
		if (producer_write(&producer, &call.call.record)) {
			written++;
			continue;
		}
		drain();
		client_read(&client);
	}
	drain();
	client_read(&client);
	assert_true(producer.head > 20 * 65536);
	assert_int_equal(producer.slot->tail, producer.head);
	while ((got = next_record(&client, &at, TRACE_CALL))) {
		assert_int_equal(got->sequence, sequence);
		assert_int_equal(got->pid, getpid());
		assert_int_equal(got->tid, getpid());
		assert_int_equal(got->record.source, TRACE_SOURCE_SHIM);
		assert_int_equal(got->record.flags, sequence % 2 ? TRACE_CALL_CUT : 0);
		assert_int_equal(got->function, sequence % 700);
		assert_int_equal(got->result, sequence % 3);
		assert_int_equal(got->n_arguments, sequence * 7 % 33);
		assert_int_equal(got->n_extras, 0);
		assert_int_equal(got->stack, 0);
		for (uint64_t i = 0; i < got->n_arguments; i++)
			assert_int_equal(got->words[i], i + 1);
		assert_true(got->end >= got->start && got->start >= last &&
			    got->start + 1000000 > began && got->end < monotonic_now() + 1000000);
		last = got->start;
		sequence++;
	}
	assert_int_equal(sequence, 100000);
	/* what is needed came before */
	at = 0;
	assert_non_null(next_record(&client, &at, TRACE_PROCESS));
	assert_non_null(next_record(&client, &at, TRACE_THREAD));
	assert_non_null(next_record(&client, &at, TRACE_CALL));
	assert_int_equal(count_records(&client, TRACE_THREAD), 1);
	assert_int_equal(count_records(&client, TRACE_LOST), 0);
	gone(&traced);
	assert_int_equal(world.table->n_rings, 0);
	end_client(&client);
}

static void test_extras(void **state) {
	struct {
		struct producer_call call;
		unsigned char room[256];
	} call;
	static const uint64_t frames[2] = { 0x1000, 0x2000 };
	struct test_client client = {}, bare = {};
	struct trace_config config = usual_config(&client);
	unsigned char *extra;
	const struct trace_call *got;
	const struct trace_extra *first;
	struct producer producer;
	struct traced traced;

	config.options.stacks = true;
	assert_int_equal(start_session(&client, &config), 0);
	config = usual_config(&bare);
	config.options.extras = false;
	assert_int_equal(start_session(&bare, &config), 0);
	begin(&traced, 1);
	assert_int_equal(traced.ring->flags, TRACE_RING_EXTRAS | TRACE_RING_STACKS);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	memset(&call, 0, sizeof(call));
	producer_call(&call.call, 1, 0, 1, 2, 2);
	extra = (unsigned char *)&call.call.words[2];
	memcpy(extra, &(struct trace_extra){ .argument = 1, .when = TRACE_EXTRA_RETURN, .size = 5 },
	       8);
	memcpy(extra + 8, "abcde", 5);
	memcpy(extra + 16, &(struct trace_extra){ .argument = 255, .size = sizeof(frames) }, 8);
	memcpy(extra + 24, frames, sizeof(frames));
	call.call.call.n_extras = 2;
	call.call.call.record.size += 40;
	assert_true(producer_write(&producer, &call.call.call.record));
	drain();
	client_read(&client);
	client_read(&bare);
	got = first_record(&client, TRACE_CALL);
	assert_int_equal(got->n_extras, 1);
	assert_int_equal(got->record.size, sizeof(*got) + 16 + 16);
	first = (const void *)&got->words[2];
	assert_int_equal(first->argument, 1);
	assert_int_equal(first->when, TRACE_EXTRA_RETURN);
	assert_int_equal(first->size, 5);
	assert_memory_equal(first + 1, "abcde\0\0", 8);
	assert_int_equal(got->stack, 1);
	assert_int_equal(
		((const struct trace_stack *)first_record(&client, TRACE_STACK))->addresses[1],
		0x2000);
	got = first_record(&bare, TRACE_CALL);
	assert_int_equal(got->n_extras, 0);
	assert_int_equal(got->stack, 0);
	assert_int_equal(got->record.size, sizeof(*got) + 16);
	gone(&traced);
	end_client(&client);
	end_client(&bare);
}

/* A slot is free again when all of it has been read, and its next thread goes on where it stopped.
 */
static void test_slots(void **state) {
	struct test_client client = {};
	struct producer producer, other;
	struct producer_call call;
	const struct trace_call *got;
	struct traced traced;
	size_t at = 0;

	start_usual(&client);
	begin(&traced, 1);
	for (uint32_t i = 0; i < 300; i++) {
		assert_true(producer_claim(&producer, traced.ring, 1000 + i));
		assert_ptr_equal(producer.slot, producer_slot(traced.ring, 0));
		producer_call(&call, 1, i, 1, 2, 3);
		assert_true(producer_write(&producer, &call.call.record));
		assert_true(producer_claim(&other, traced.ring, 5000 + i));
		assert_ptr_equal(other.slot, producer_slot(traced.ring, 1));
		producer_leave(&other);
		producer_leave(&producer);
		drain();
		assert_int_equal(producer.slot->state, TRACE_SLOT_FREE);
		assert_int_equal(other.slot->state, TRACE_SLOT_FREE);
	}
	/* all are taken, and calls that find none are counted; so are those of a slot that is full
	 */
	for (uint32_t i = 0; i < TRACE_RING_SLOTS_MAX; i++)
		assert_true(producer_claim(&producer, traced.ring, 9000 + i));
	assert_false(producer_claim(&other, traced.ring, 1));
	traced.ring->homeless = 17;
	for (int i = 0; i < 5; i++)
		producer_count_lost(&producer);
	world.table->rings.lh_first->last_scan = 0; /* all slots are looked at now and then */
	drain();
	drain();
	session_flush_lost(client.session);
	client_read(&client);
	for (uint32_t i = 0; i < 300; i++) {
		got = next_record(&client, &at, TRACE_CALL);
		assert_int_equal(got->sequence, i);
		assert_int_equal(got->tid, 1000 + i);
	}
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 22);
	for (at = 0; (got = next_record(&client, &at, TRACE_LOST));) {
		const struct trace_lost *lost = (const void *)got;

		assert_int_equal(lost->pid, getpid());
		assert_int_equal(lost->count, lost->tid ? 5 : 17);
		assert_true(!lost->tid || lost->tid == 9000 + TRACE_RING_SLOTS_MAX - 1);
	}
	gone(&traced);
	end_client(&client);
}

/* What is in the rings when the trace or the process ends is not forgotten. */
static void test_ends(void **state) {
	struct test_client client = {};
	struct producer producer;
	struct producer_call call;
	struct traced traced;

	start_usual(&client);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, 1));
	producer_call(&call, 1, 0, 1, 2, 3);
	assert_true(producer_write(&producer, &call.call.record));
	gone(&traced); /* killed, for example */
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_CALL), 1);
	begin(&traced, 2);
	assert_true(producer_claim(&producer, traced.ring, 1));
	assert_true(producer_write(&producer, &call.call.record));
	producer_count_lost(&producer);
	trace_session_finish(client.session);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_CALL), 2);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 1);
	assert_int_equal(traced.ring->enabled, 0);
	assert_false(ask(&traced)); /* nobody any more */
	gone(&traced);
	end_client(&client);
}

/* ---- options ---- */

/* A session that wants little: each tenth call of one function, if it fails and takes 5 us. Returns
 * a microsecond of the ring. */
static uint64_t begin_narrow(struct test_client *client, struct traced *traced) {
	struct trace_config config = usual_config(client);

	memset(config.options.functions, 0, sizeof(config.options.functions));
	config.options.functions[0] = 1 << 5;
	config.options.errors = true;
	config.options.extras = false;
	config.options.sample = 10;
	config.options.min_duration = 5000;
	assert_int_equal(start_session(client, &config), 0);
	begin(traced, 1);
	return traced->ring->clock == TRACE_RING_TSC ? tsc_clock_steps(&world.table->tsc, 1000)
						     : 1000;
}

static void test_two_sessions(void **state) {
	struct test_client a = {}, b = {};
	struct trace_config config = usual_config(&b);
	struct producer producer;
	struct producer_call call;
	const struct trace_call *got;
	struct traced traced, renewed;
	unsigned int places = 0; /* of calls in tens: mask */
	uint64_t unit;
	size_t at = 0;

	unit = begin_narrow(&a, &traced);
	assert_int_equal(traced.ring->functions[0], 1 << 5);
	assert_int_equal(traced.ring->flags, TRACE_RING_ERRORS);
	assert_int_equal(traced.ring->sample, 10);
	assert_in_range(traced.ring->min_duration, 5 * unit - 5, 5 * unit + 5);
	/* a second one that wants more: the process sees the end of its ring and gets one with the
	 * union, each session gets its own */
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	producer_call(&call, 5, 0, ring_ago(traced.ring, 6 * unit), ring_now(traced.ring), 1);
	call.call.result = 1;
	assert_true(producer_write(&producer, &call.call.record));
	memset(config.options.functions, 0, sizeof(config.options.functions));
	config.options.functions[0] = 1 << 6;
	config.options.functions[TRACE_FUNCTION_DYNAMIC / 64] = 1;
	config.options.min_duration = 1000;
	config.options.gpu = true;
	assert_int_equal(start_session(&b, &config), 0);
	assert_int_equal(traced.ring->enabled, 0);
	assert_true(traced.ring->flags & TRACE_RING_REPLACED);
	begin(&renewed, 1);
	assert_int_equal(world.table->n_rings, 2);
	gone(&traced);
	traced = renewed;
	turn_for(20);
	assert_int_equal(count_records(&a, TRACE_CALL), 1); /* of the old one */
	assert_int_equal(count_lost(&a, TRACE_SOURCE_SHIM),
			 0); /* what there is until then, the process counts in the new one */
	assert_true(trace_session_has_shim(a.session, getpid()));
	assert_int_equal(traced.ring->enabled, 1);
	assert_int_equal(traced.ring->functions[0], 1 << 5 | 1 << 6);
	assert_int_equal(traced.ring->functions[TRACE_FUNCTION_DYNAMIC / 64], 1);
	assert_int_equal(traced.ring->flags, TRACE_RING_EXTRAS | TRACE_RING_GPU);
	assert_int_equal(traced.ring->sample, 1);
	assert_in_range(traced.ring->min_duration, unit - 5, unit + 5);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	for (uint32_t i = 0; i < 1000; i++) {
		uint64_t now = ring_now(traced.ring);

		producer_call(&call, 5, i, now - 6 * unit, now, 1);
		call.call.result = 1;
		assert_true(producer_write(&producer, &call.call.record));
		call.call.result = 0; /* no failure */
		assert_true(producer_write(&producer, &call.call.record));
		producer_call(&call, 5, i, now - 3 * unit, now, 1); /* too short for one */
		call.call.result = 1;
		assert_true(producer_write(&producer, &call.call.record));
		producer_call(&call, 6, i, now - 3 * unit, now, 1);
		assert_true(producer_write(&producer, &call.call.record));
		if (i % 100 == 99)
			drain();
	}
	client_read(&a);
	client_read(&b);
	assert_in_range(count_records(&a, TRACE_CALL), 40, 160);
	for (unsigned int i = 0; (got = next_record(&a, &at, TRACE_CALL)); i++) {
		assert_int_equal(got->function, 5);
		assert_int_equal(got->result, 1);
		assert_true(got->end - got->start >= 5000);
		places |= i ? 1U << got->sequence % 10 : 0;
	}
	assert_true(places & (places - 1)); /* not each tenth */
	assert_int_equal(count_records(&b, TRACE_CALL), 1000);
	for (at = 0; (got = next_record(&b, &at, TRACE_CALL));)
		assert_int_equal(got->function, 6);
	/* one leaves: the ring is the other's alone */
	trace_session_finish(a.session);
	assert_int_equal(traced.ring->enabled, 1);
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	client_read(&b);
	assert_int_equal(count_records(&b, TRACE_CALL), 1001);
	assert_true(trace_session_has_shim(b.session, getpid()));
	assert_false(trace_session_has_shim(a.session, getpid()));
	/* a third one that wants less takes part in what there is */
	end_client(&a);
	config = usual_config(&a);
	memset(config.options.functions, 0, sizeof(config.options.functions));
	config.options.functions[0] = 1 << 6;
	config.options.errors = true;
	config.options.min_duration = 2000;
	assert_int_equal(start_session(&a, &config), 0);
	assert_int_equal(traced.ring->enabled, 1);
	call.call.result = 600; /* not ready: no failure */
	assert_true(producer_write(&producer, &call.call.record));
	call.call.result = 2;
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	client_read(&a);
	assert_int_equal(count_records(&a, TRACE_CALL), 1);
	trace_session_finish(a.session);
	trace_session_finish(b.session);
	assert_int_equal(traced.ring->enabled, 0);
	gone(&renewed);
	end_client(&a);
	end_client(&b);
}

/* What a second session asks for beside is added to the ring that there is: the first one misses
 * nothing meanwhile. */
static void test_widened(void **state) {
	struct test_client a = {}, b = {};
	struct trace_config config = usual_config(&b);
	struct producer producer;
	struct producer_call call;
	struct traced traced;
	uint64_t unit, now;

	unit = begin_narrow(&a, &traced);
	config.options.functions[0] = 1 << 6;
	config.options.min_duration = 1000;
	config.options.stacks = true;
	assert_int_equal(start_session(&b, &config), 0);
	assert_int_equal(world.table->n_rings, 1);
	assert_int_equal(traced.ring->enabled, 1);
	assert_int_equal(traced.ring->functions[0], 1 << 5 | 1 << 6);
	assert_int_equal(traced.ring->functions[1], UINT64_MAX);
	assert_int_equal(traced.ring->flags, TRACE_RING_EXTRAS | TRACE_RING_STACKS);
	assert_int_equal(traced.ring->sample, 1);
	assert_in_range(traced.ring->min_duration, unit - 5, unit + 5);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	now = ring_now(traced.ring);
	for (uint32_t i = 0; i < 600; i++) {
		producer_call(&call, 5, 2 * i, now - 6 * unit, now, 1);
		call.call.result = 1;
		assert_true(producer_write(&producer, &call.call.record));
		producer_call(&call, 6, 2 * i + 1, now - 3 * unit, now, 1);
		assert_true(producer_write(&producer, &call.call.record));
	}
	drain();
	client_read(&a);
	client_read(&b);
	assert_in_range(count_records(&a, TRACE_CALL), 15, 105); /* one of ten */
	assert_int_equal(count_records(&b, TRACE_CALL), 600);
	assert_int_equal(count_records(&a, TRACE_LOST), 0);
	trace_session_finish(a.session);
	trace_session_finish(b.session);
	gone(&traced);
	end_client(&a);
	end_client(&b);
}

/* ---- names, kernels ---- */

static void test_names(void **state) {
	struct test_client a = {}, b = {};
	struct producer producer;
	struct producer_call call;
	struct name_record name;
	const struct trace_name *got;
	struct traced traced, other;
	size_t at = 0;

	start_usual(&a);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_KERNEL, 0x100, "_Z3onev")));
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_KERNEL, 0x200, "_Z3twov")));
	assert_true(producer_write(&producer, make_name(&name, TRACE_NAME_KERNEL, 0x200,
							"_Z3twov"))); /* said once more */
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_KERNEL, 0x100, "_Z5threev")));
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_FUNCTION, 3100, "cuFresh")));
	producer_call(&call, 3100, 0, 1, 2, 1);
	assert_true(producer_write(&producer, &call.call.record));
	producer_call(&call, 3101, 1, 1, 2, 1); /* it has not said what that is */
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	/* no handle: told, not kept */
	assert_true(producer_write(&producer, make_name(&name, TRACE_NAME_KERNEL, 0, "_Z4nonev")));
	drain();
	/* another process numbers otherwise */
	begin(&other, 2);
	assert_true(producer_claim(&producer, other.ring, (uint32_t)getpid()));
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_FUNCTION, 3100, "cuOther")));
	assert_true(
		producer_write(&producer, make_name(&name, TRACE_NAME_FUNCTION, 3105, "cuFresh")));
	producer_call(&call, 3105, 0, 1, 2, 1);
	assert_true(producer_write(&producer, &call.call.record));
	drain();
	start_usual(&b); /* who comes late is told what is so now */
	client_read(&a);
	client_read(&b);
	for (int i = 0; i < 3; i++) {
		got = next_record(&a, &at, TRACE_NAME);
		assert_string_equal(got->name, i == 0   ? "_Z3onev"
					       : i == 1 ? "_Z3twov"
							: "_Z5threev");
		assert_int_equal(got->pid, getpid());
		assert_int_equal(got->kind, TRACE_NAME_KERNEL);
		assert_int_equal(got->id, i == 1 ? 0x200 : 0x100);
	}
	got = next_record(&a, &at, TRACE_NAME);
	assert_string_equal(got->name, "cuFresh");
	assert_int_equal(got->id, TRACE_FUNCTION_DYNAMIC);
	assert_int_equal(got->pid, 0);
	assert_int_equal(((const struct trace_call *)next_record(&a, &at, TRACE_CALL))->function,
			 TRACE_FUNCTION_DYNAMIC);
	assert_int_equal(((const struct trace_call *)next_record(&a, &at, TRACE_CALL))->function,
			 0);
	assert_string_equal(((const struct trace_name *)next_record(&a, &at, TRACE_NAME))->name,
			    "_Z4nonev");
	assert_string_equal(((const struct trace_name *)next_record(&a, &at, TRACE_NAME))->name,
			    "cuOther");
	assert_int_equal(((const struct trace_call *)next_record(&a, &at, TRACE_CALL))->function,
			 TRACE_FUNCTION_DYNAMIC);
	assert_null(next_record(&a, &at, TRACE_NAME));
	assert_int_equal(count_records(&b, TRACE_NAME), 4);
	for (at = 0; (got = next_record(&b, &at, TRACE_NAME));)
		assert_string_not_equal(got->name, "_Z3onev");
	gone(&traced);
	gone(&other);
	end_client(&a);
	end_client(&b);
}

static void test_kernels(void **state) {
	const uint64_t last = UINT64_C(1) << 63, wrong[4][2] = {
		{ last - 1, last }, { 1000100, last }, { last - 1, last }, { 1, UINT64_MAX }
	};
	struct test_client a = {}, b = {};
	struct trace_config config = usual_config(&a);
	struct trace_ring_kernel kernel = {
		.record = { .size = sizeof(kernel), .type = TRACE_RING_KERNEL, .sequence = 9 },
		.tid = (uint32_t)getpid(),
		.device = 3,
		.start = 1000100,
		.end = 1000400,
		.context = 5,
		.stream = 6,
		.function = 7
	};
	struct trace_ring_clock_pair pair = { .record = { .size = sizeof(pair),
							  .type = TRACE_RING_CLOCK_PAIR },
					      .device = 3,
					      .gpu = 1000000 };
	const struct trace_kernel *got;
	const struct trace_clock *clock;
	struct producer producer;
	struct traced traced;
	uint64_t host, unit, error;
	size_t at = 0;

	config.options.gpu = true;
	assert_int_equal(start_session(&a, &config), 0);
	start_usual(&b); /* without */
	begin(&traced, 1);
	unit = traced.ring->clock == TRACE_RING_TSC ? tsc_clock_steps(&world.table->tsc, 1000)
						    : 1000;
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	assert_true(
		producer_write(&producer, &kernel.record)); /* before there is a pair: it waits */
	drain();
	client_read(&a);
	assert_int_equal(count_records(&a, TRACE_KERNEL), 0);
	pair.after = ring_now(traced.ring);
	pair.before = pair.after - 2 * unit;
	host = traced.ring->clock == TRACE_RING_TSC
		       ? tsc_clock_nanoseconds(&world.table->tsc, pair.after - unit)
		       : pair.after - unit;
	assert_true(producer_write(&producer, &pair.record));
	drain();
	client_read(&a);
	client_read(&b);
	clock = first_record(&a, TRACE_CLOCK);
	assert_int_equal(clock->device, 3);
	assert_int_equal(clock->gpu_time, 1000000);
	assert_in_range(clock->host_time, host - 5, host + 5);
	assert_int_equal(clock->drift, 0);
	assert_in_range(clock->error, 990, 1010);
	got = first_record(&a, TRACE_KERNEL);
	assert_in_range(got->start, host + 95, host + 105);
	assert_int_equal(got->end - got->start, 300);
	assert_int_equal(got->record.source, TRACE_SOURCE_GPU);
	assert_true(got->sequence == 9 && got->tid == (uint32_t)getpid() && got->device == 3 &&
		    got->context == 5 && got->stream == 6 && got->function == 7);
	assert_in_range(got->error, 990, 1010);
	assert_int_equal(count_records(&b, TRACE_KERNEL) + count_records(&b, TRACE_CLOCK), 0);
	assert_int_equal(got->error, clock->error);
	error = clock->error;
	/* one that the host's clock has stamped needs no pair; what its source does not know adds
	 * to the error */
	kernel = (struct trace_ring_kernel){ .record = { .size = sizeof(kernel),
							 .type = TRACE_RING_KERNEL,
							 .flags = TRACE_RING_KERNEL_HOST,
							 .sequence = 10 },
					     .tid = (uint32_t)getpid(),
					     .device = 5,
					     .start = host - 7,
					     .end = host,
					     .function = 8,
					     .error = 77 };
	assert_true(producer_write(&producer, &kernel.record));
	drain();
	client_read(&a);
	next_record(&a, &at, TRACE_KERNEL);
	got = next_record(&a, &at, TRACE_KERNEL);
	assert_true(got->start == host - 7 && got->end == host && got->device == 5 &&
		    got->sequence == 10 && got->error == 77);
	kernel = (struct trace_ring_kernel){
		.record = { .size = sizeof(kernel), .type = TRACE_RING_KERNEL, .sequence = 9 },
		.start = 2000000,
		.end = 3000000,
		.device = 3,
		.error = 77
	};
	assert_true(producer_write(&producer, &kernel.record));
	drain();
	client_read(&a);
	got = next_record(&a, &at, TRACE_KERNEL);
	assert_int_equal(got->error, error + 77 + 200); /* it is not known how the clock drifts */
	/* of the future, or so long that its end is before its beginning: they would disturb the
	 * order of others */
	for (size_t i = 0; i < 4; i++) {
		kernel.record.flags = i == 0 ? TRACE_RING_KERNEL_HOST : 0;
		kernel.start = wrong[i][0];
		kernel.end = wrong[i][1];
		assert_true(producer_write(&producer, &kernel.record));
	}
	drain();
	session_flush_lost(a.session);
	client_read(&a);
	assert_int_equal(count_lost(&a, TRACE_SOURCE_GPU), 4);
	assert_int_equal(traced.ring->enabled, 1);
	/* one whose device's clock is never told is lost */
	kernel.device = 4;
	assert_true(producer_write(&producer, &kernel.record));
	gone(&traced);
	session_flush_lost(a.session);
	client_read(&a);
	assert_int_equal(count_lost(&a, TRACE_SOURCE_GPU), 5);
	assert_int_equal(count_records(&a, TRACE_KERNEL), 3);
	end_client(&a);
	end_client(&b);
}

static void test_notes(void **state) {
	struct {
		struct trace_ring_note note;
		char text[16];
	} note = { .note.record = { .size = sizeof(note), .type = TRACE_RING_NOTE },
		   .text = "no such thing" };
	struct test_client a = {}, b = {};
	struct producer producer;
	struct traced traced;

	start_usual(&a);
	start_usual(&b);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	assert_true(producer_write(&producer, &note.note.record));
	drain();
	for (struct test_client *client = &a; client; client = client == &a ? &b : NULL) {
		const struct trace_note *got;

		client_read(client);
		got = first_record(client, TRACE_NOTE);
		assert_int_equal(got->pid, getpid());
		assert_string_equal(got->text, "no such thing");
		assert_true(got->time <= monotonic_now() &&
			    monotonic_now() - got->time < UINT64_C(60000000000));
		assert_int_equal(count_records(client, TRACE_NOTE), 1);
	}
	gone(&traced);
	end_client(&a);
	end_client(&b);
}

/* ---- liars ---- */

enum {
	LIES = 42
};

/* Writes that many bytes, whatever the record says; there is room. */
static void put(struct producer *producer, const struct trace_ring_record *record, size_t n) {
	memcpy((unsigned char *)(producer->slot + 1) + producer->head, record, n);
	producer->head += n;
	producer->slot->head = producer->head;
}

/* Tells lie number n. False: there is none of that number. */
static bool lie(unsigned int n, struct trace_ring *ring, struct producer *producer) {
	const uint64_t now = ring_now(ring);
	struct producer_call call;
	struct name_record name;
	struct trace_ring_kernel kernel = { .record = { .size = sizeof(kernel),
							.type = TRACE_RING_KERNEL } };
	struct trace_ring_clock_pair pair = { .record = { .size = sizeof(pair),
							  .type = TRACE_RING_CLOCK_PAIR },
					      .before = now - 10,
					      .after = now };
	struct trace_ring_record *record = &call.call.record;
	struct trace_extra *extra = (struct trace_extra *)&call.words[2];
	unsigned int at = 0;

	producer_call(&call, 5, 1, now - 10, now, 4);
	/* a call with an extra of 8 bytes, on top of its words 2 and 3 */
	*extra = (struct trace_extra){ .argument = 1, .size = 8 };
#define LIE(CHANGE)                          \
	if (n == at++) {                     \
		size_t room = record->size;  \
		CHANGE;                      \
		put(producer, record, room); \
		return true;                 \
	}
#define MOVE(CHANGE)         \
	if (n == at++) {     \
		CHANGE;      \
		return true; \
	}
	LIE(record->type = 6)
	LIE(record->type = 255)
	LIE(record->size = 0)
	LIE(record->size = 4)
	LIE(record->size = 12)
	LIE(record->size = 16)
	LIE(record->size = 24)
	LIE(call.call.function = TRACE_FUNCTION_MAX)
	LIE(call.call.function = UINT16_MAX)
	LIE(call.call.n_arguments = 5)
	LIE(call.call.n_arguments = 33)
	LIE(call.call.n_arguments = 255)
	LIE(call.call.start = call.call.end + 1)
	LIE((call.call.start = now, call.call.end = UINT64_MAX))
	LIE(call.call.end = now + UINT64_C(100000000000))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 2))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 255))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->size = 9))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->size = UINT16_MAX))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->when = 2))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->argument = 2))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->reserved = 1))
	LIE((call.call.n_arguments = 2, call.call.n_extras = 1, extra->argument = 255,
	     extra->size = 7))
	record = &name.name.record;
	make_name(&name, TRACE_NAME_KERNEL, 1, "f");
	LIE(name.name.kind = 0)
	LIE(name.name.kind = TRACE_NAME_HOOK)
	LIE(name.name.reserved = 1)
	LIE(record->size = 24)
	LIE((name.name.kind = TRACE_NAME_FUNCTION, name.name.id = TRACE_FUNCTION_DYNAMIC - 1))
	LIE((name.name.kind = TRACE_NAME_FUNCTION, name.name.id = TRACE_FUNCTION_MAX))
	record = &kernel.record;
	LIE(kernel.device = SHIM_DEVICES_MAX)
	LIE(kernel.start = 1)
	LIE(kernel.reserved = 1)
	LIE(record->size = 48)
	record->type = TRACE_RING_NOTE;
	LIE(record->size = sizeof(*record))
	record = &pair.record;
	LIE(pair.device = UINT32_MAX)
	LIE(pair.before = now + 1)
	LIE((pair.before = UINT64_MAX - 1, pair.after = UINT64_MAX))
	LIE(pair.reserved = 1)
	MOVE(producer->slot->head += ring->slot_bytes + 8)
	MOVE(producer->slot->head -= 8)
	MOVE(producer->slot->head += 4)
	MOVE(producer->slot->head = UINT64_MAX - 7)
	MOVE(producer->slot->state = 3)
	MOVE(producer->slot->lost = UINT64_MAX)
	MOVE(ring->homeless = UINT64_MAX)
#undef LIE
#undef MOVE
	return false;
}

static void test_liars(void **state) {
	struct producer honest_producer, producer;
	struct test_client client = {};
	struct producer_call call;
	struct traced honest, liar;
	unsigned int n = 0;

	start_usual(&client);
	begin(&honest, 1000);
	assert_true(producer_claim(&honest_producer, honest.ring, (uint32_t)getpid()));
	for (bool more = true; more; n++) {
		size_t calls = count_records(&client, TRACE_CALL);
		uint64_t lost;

		begin(&liar, 2000 + n);
		assert_true(producer_claim(&producer, liar.ring, (uint32_t)getpid()));
		producer_call(&call, 5, 0, 1, 2, 3);
		assert_true(producer_write(&producer, &call.call.record));
		drain();
		assert_true(producer_write(&producer, &call.call.record));
		more = lie(n, liar.ring, &producer);
		assert_true(producer_write(&honest_producer, &call.call.record));
		drain();
		session_flush_lost(client.session);
		lost = count_lost(&client, TRACE_SOURCE_SHIM);
		client_read(&client);
		if (more && (liar.ring->enabled || ask(&liar) ||
			     count_lost(&client, TRACE_SOURCE_SHIM) <= lost))
			fail_msg("lie %u is believed", n);
		if (!more)
			assert_int_equal(liar.ring->enabled, 1);
		/* what it said before counts, and others are unhurt */
		assert_in_range(count_records(&client, TRACE_CALL) - calls, 2, 3);
		assert_int_equal(honest.ring->enabled, 1);
		/* its own memory is all that it can still write to */
		if (more) {
			memset(liar.ring, 0xff, liar.ring->slots_offset < liar.size ? 4096 : 0);
			drain();
		}
		gone(&liar);
	}
	assert_true(n > LIES);
	gone(&honest);
	end_client(&client);
}

/* A header that its process overwrites is not read again. */
static void test_header(void **state) {
	struct test_client client = {};
	struct producer producer;
	struct producer_call call;
	struct traced traced;
	struct trace_ring saved;

	start_usual(&client);
	begin(&traced, 1);
	assert_true(producer_claim(&producer, traced.ring, (uint32_t)getpid()));
	producer_call(&call, 5, 0, 1, 2, 3);
	assert_true(producer_write(&producer, &call.call.record));
	saved = *traced.ring;
	memset(traced.ring, 0xff, sizeof(*traced.ring));
	traced.ring->homeless = 0;
	drain();
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_CALL), 1);
	assert_true(traced.ring->heartbeat != UINT64_MAX); /* that is written again */
	*traced.ring = saved;
	gone(&traced);
	end_client(&client);
}

/* ---- fast ---- */

struct fast {
	struct trace_ring *ring;
	uint64_t n, lost;
	bool over;
};

static void *run_fast(void *userdata) {
	struct fast *fast = userdata;
	struct producer producer;
	struct producer_call call;

	if (!producer_claim(&producer, fast->ring, (uint32_t)getpid()))
		return NULL;
	for (uint32_t i = 0; i < fast->n; i++) {
		uint64_t now = ring_now(fast->ring);

		producer_call(&call, 307, i, now, now + 1, 5);
		if (!producer_write(&producer, &call.call.record)) {
			producer_count_lost(&producer);
			fast->lost++;
		}
	}
	producer_leave(&producer);
	__atomic_store_n(&fast->over, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Without a pause, and a client that reads too little: each of a million calls is there or counted.
 */
static void test_fast(void **state) {
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);
	struct fast fast = { .n = 1000000 };
	uint64_t n = 0, counted = 0, next = 0, gaps = 0;
	const struct trace_call *call;
	const struct trace_lost *lost;
	struct traced traced;
	pthread_t thread;
	bool over = false;

	config.buffer = 2 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	client.lazy = true;
	begin(&traced, 1);
	fast.ring = traced.ring;
	pthread_create(&thread, NULL, run_fast, &fast);
	for (unsigned int turn = 0; !over; turn++) {
		size_t at = 0;

		over = __atomic_load_n(&fast.over, __ATOMIC_ACQUIRE);
		shim_rings_drain(world.table);
		if (over)
			trace_session_finish(client.session);
		else if (turn % 3)
			continue;
		session_flush_lost(client.session);
		client.n = 0;
		client_read(&client);
		while ((call = next_record(&client, &at, TRACE_CALL))) {
			assert_true(call->sequence >= next);
			gaps += call->sequence - next;
			next = call->sequence + 1ull;
			n++;
		}
		for (at = 0; (lost = next_record(&client, &at, TRACE_LOST));)
			counted += lost->count;
	}
	pthread_join(thread, NULL);
	assert_int_equal(n + counted, fast.n);
	assert_int_equal(counted, gaps + fast.n - next);
	assert_true(counted >= fast.lost);
	gone(&traced);
	end_client(&client);
}

/* Who asks and is not meant gets nothing; rights are those of the connection, too. */
static void test_not_meant(void **state) {
	struct traced traced = { .connection = { .state = SHIM_CLOSED, .pidfd = -1 } };
	struct test_client client = {};
	struct trace_config config = usual_config(&client);

	assert_int_equal(process_facts_read(&traced.process.facts, getpid(), -1), 0);
	traced.process.number = 1;
	assert_false(ask(&traced)); /* there is no trace */
	config.options.filter.pid = 1;
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(ask(&traced));
	end_client(&client);
	config = usual_config(&client);
	config.options.shim = false;
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(ask(&traced));
	end_client(&client);
	config = usual_config(&client);
	config.options.all_users = false;
	traced.process.uid = getuid() + 1; /* it had other rights when it connected */
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(ask(&traced));
	traced.process.uid = getuid();
	assert_true(ask(&traced));
	assert_true(ask(&traced)); /* again: the same */
	assert_int_equal(world.table->n_rings, 1);
	gone(&traced);
	end_client(&client);
}

int main(void) {
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_outlived),  TEST(test_descendants),     TEST(test_unknown_ends),
		TEST(test_too_late),  TEST(test_counts),          cmocka_unit_test(test_buckets),
		TEST(test_order),     TEST(test_extras),          TEST(test_slots),
		TEST(test_ends),      TEST(test_two_sessions),    TEST(test_widened),
		TEST(test_names),     TEST(test_kernels),         TEST(test_notes),
		TEST(test_liars),     TEST(test_header),          TEST(test_fast),
		TEST(test_not_meant), TEST(test_same_connection),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
