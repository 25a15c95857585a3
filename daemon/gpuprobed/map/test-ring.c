/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of ring.c against producers that follow the protocol, and against producers that do
 * not.
 */

#include "ring.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "test-ring-producer.h"

#define KIB ((uint64_t)1024)
#define PRODUCERS 4
#define BATCHES 40000 /* of each producer */

static struct producer_rings rings;
static struct ring_consumer *consumer;
static unsigned char scratch[RING_SCRATCH_SIZE] __attribute__((aligned(64)));
static size_t n_mapped; /* of the host area with guards around it */

/* Rings of that size in all, between pages that nobody may touch. */
static void make(uint64_t bytes) {
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct map_shape shape = { .type = 1527, .value_size = 64, .ring_bytes = bytes };
	struct map_layout layout;
	unsigned char *area;

	assert_null(map_layout_init(&layout, &shape));
	n_mapped = map_round_up(layout.host_size, page) + 2 * page;
	area = mmap(NULL, n_mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	assert_int_equal(mprotect(area + page, n_mapped - 2 * page, PROT_READ | PROT_WRITE), 0);
	producer_rings_init(&rings, bytes, area + page);
	assert_int_equal(ring_consumer_new(&consumer, &rings.layout, rings.cookie, rings.data,
					   rings.host),
			 0);
}

static int teardown(void **state) {
	consumer = ring_consumer_free(consumer);
	if (rings.host)
		munmap(rings.host - sysconf(_SC_PAGESIZE), n_mapped);
	free(rings.data);
	rings = (struct producer_rings){};
	return 0;
}

struct seen {
	unsigned int n_batches, n_records, stop_after;
	bool ring_1;
	struct ring_batch last;
	unsigned char bytes[64];
};

static bool see(const struct ring_batch *batch, void *userdata) {
	struct seen *seen = userdata;

	seen->last = *batch;
	memcpy(seen->bytes, batch->records, sizeof(seen->bytes));
	seen->n_batches++;
	seen->ring_1 = seen->ring_1 || batch->sm == 101;
	seen->n_records += batch->count;
	return seen->n_batches != seen->stop_after;
}

static uint64_t tail_of(uint32_t ring) {
	return *(uint64_t *)(void *)(rings.host + (size_t)ring * MAP_RING_TAIL_STRIDE);
}

static void test_batches(void **state) {
	uint32_t records[] = { 7, 8, 9 };
	struct seen seen = { .stop_after = 1 };

	make(64 * KIB);
	assert_int_equal(rings.layout.rings, 4);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_true(producer_write(&rings, 2, 4, 0x80000101, records, true));
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), 0);
	assert_int_equal(seen.last.size, 4);
	assert_int_equal(seen.last.count, 3);
	assert_int_equal(seen.last.lanes, 0x80000101);
	assert_int_equal(seen.last.sm, 102);
	assert_memory_equal(seen.bytes, records, sizeof(records));
	assert_int_equal(tail_of(2), 64);
	assert_int_equal(tail_of(0), 0);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_int_equal(seen.n_batches, 1); /* once */
	assert_int_equal(ring_consumer_written(consumer), 3);
	assert_int_equal(ring_consumer_lost(consumer), 0);
}

static void test_unfinished(void **state) {
	uint64_t record = 1;
	struct seen seen = {};

	make(16 * KIB);
	producer_write(&rings, 0, 8, 1, &record, false);
	producer_write(&rings, 0, 8, 1, &record, true);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_int_equal(seen.n_batches, 0); /* the second waits behind the first */
	producer_stamp(&rings, 0, 0);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_int_equal(seen.n_batches, 2);
}

/* A full ring loses, and takes again once it was read; positions go round many times. */
static void test_full(void **state) {
	unsigned char records[3 * 1000] = {};
	unsigned int written = 0, lost = 0;
	struct seen seen = {};

	make(16 * KIB);
	for (int round = 0; round < 100; round++) {
		while (producer_write(&rings, 0, sizeof(records) / 3, 7, records, true))
			written += 3;
		lost += 3;
		assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen),
				 RING_E_EMPTY);
	}
	assert_true(written > 100 * 3 * 3);
	assert_int_equal(seen.n_records, written);
	assert_int_equal(ring_consumer_lost(consumer), lost);
	assert_true(tail_of(0) == rings.data[0].head);
}

/* A ring that is refilled for ever neither starves the others nor keeps a limited reader. */
static bool refill(const struct ring_batch *batch, void *userdata) {
	see(batch, userdata);
	if (batch->sm == 100)
		while (producer_write(&rings, 0, 8, 1, "refilled", true))
			;
	return true;
}

static void test_endless(void **state) {
	struct seen seen = {};
	int calls = 0;

	make(32 * KIB);
	assert_int_equal(rings.layout.rings, 2);
	producer_write(&rings, 0, 8, 1, "refilled", true);
	producer_write(&rings, 1, 8, 1, "only one", true);
	for (; !seen.ring_1; calls++) {
		assert_true(calls < 4);
		assert_int_equal(ring_consume(consumer, scratch, 4096, refill, &seen), 0);
	}
	ring_consumer_limit(consumer, true);
	seen = (struct seen){};
	for (calls = 0; ring_consume(consumer, scratch, 4096, refill, &seen) != RING_E_EMPTY;
	     calls++)
		assert_true(calls < 100);
	assert_in_range(seen.n_batches, 16 * KIB / 64 / 2, 16 * KIB / 64);
	ring_consumer_limit(consumer, false);
	assert_int_equal(ring_consume(consumer, scratch, 4096, refill, &seen), 0);
}

/* What a killed process leaves: a batch that was never finished, others behind it. */
static void test_ended(void **state) {
	uint64_t records[32] = { 1, 2, 3 };
	struct seen seen = {};

	make(16 * KIB);
	producer_write(&rings, 0, 8, 0x7, records, true);
	producer_write(&rings, 0, 8, 0xffff, records, false);
	producer_write(&rings, 0, 8, 0x3, records, true);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_int_equal(seen.n_records, 3);
	assert_false(ring_consumer_drained(consumer));
	ring_consumer_end(consumer);
	assert_false(ring_consumer_drained(consumer));
	assert_int_equal(ring_consumer_lost(consumer), 0); /* not known yet */
	while (ring_consume(consumer, scratch, 1024, see, &seen) != RING_E_EMPTY)
		;
	assert_int_equal(seen.n_records, 5);
	assert_true(ring_consumer_drained(consumer));
	assert_int_equal(ring_consumer_lost(consumer), 16);
}

/* A ring that ended is drained if no batch is in it. */
static void test_skip(void **state) {
	struct seen seen = {};
	uint64_t record = 1, budget = 1000 * KIB;

	make(32 * KIB);
	producer_write(&rings, 0, 8, 1, &record, true);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	ring_consumer_skip(consumer, &budget); /* not before the end */
	assert_int_equal(budget, 1000 * KIB);
	producer_write(&rings, 0, 8, 1, &record, false);
	producer_write(&rings, 0, 8, 1, &record, true);
	ring_consumer_end(consumer);
	assert_true(ring_consumer_skip(consumer, &budget));
	assert_false(ring_consumer_drained(consumer));
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	assert_int_equal(seen.n_records, 2);
	assert_int_equal(ring_consumer_lost(consumer), 1);
	assert_true(ring_consumer_drained(consumer));
	teardown(state);
	make(32 * KIB);
	producer_write(&rings, 1, 8, 1, &record, false);
	ring_consumer_end(consumer);
	assert_false(ring_consumer_drained(consumer));
	budget = 17 * KIB;
	assert_false(ring_consumer_skip(consumer, &budget)); /* a bit at a time */
	assert_int_equal(budget, 0);
	assert_false(ring_consumer_drained(consumer));
	budget = 16 * KIB;
	assert_true(ring_consumer_skip(consumer, &budget));
	assert_int_equal(budget, KIB);
	assert_true(ring_consumer_drained(consumer));
	assert_int_equal(ring_consumer_lost(consumer), 1);
}

/* A stamp, but no batch: nothing more comes out of this ring, its records count as lost. */
static void test_garbage(void **state) {
	static const struct map_batch garbage[] = {
		{ .size = 0, .count = 1, .lanes = 1 },
		{ .size = 8, .count = 0, .lanes = 0 },
		{ .size = 8, .count = 33, .lanes = 0x1ffffffff },
		{ .size = 8, .count = 2, .lanes = 1 },
		{ .size = 8, .count = 1, .lanes = 1ull << 32 },
		{ .size = MAP_RECORD_SIZE_MAX + 1, .count = 1, .lanes = 1 },
		{ .size = UINT32_MAX, .count = UINT32_MAX, .lanes = UINT64_MAX },
		{ .size = MAP_RECORD_SIZE_MAX, .count = 4, .lanes = 0xf }, /* beyond the end */
	};

	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		struct seen seen = {};
		struct map_batch *batch;

		make(32 * KIB);
		producer_write(&rings, 0, 8, 1, "a record", true);
		producer_write(&rings, 0, 8, 1, "a record", true);
		producer_write(&rings, 0, 8, 1, "a record", true);
		batch = (void *)producer_at(&rings, 0, 64);
		memcpy(&batch->size, &garbage[i].size, sizeof(*batch) - sizeof(batch->stamp));
		assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen),
				 RING_E_EMPTY);
		assert_int_equal(seen.n_records, 1);
		assert_int_equal(ring_consumer_lost(consumer), 2);
		assert_int_equal(tail_of(0), 64);
		producer_write(&rings, 1, 8, 1, "a record", true);
		ring_consumer_limit(consumer, true);
		ring_consumer_limit(consumer, false);
		assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen),
				 RING_E_EMPTY);
		assert_int_equal(seen.n_records, 2);
		ring_consumer_end(consumer);
		assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen),
				 RING_E_EMPTY);
		assert_int_equal(seen.n_records, 3); /* that behind the garbage */
		assert_int_equal(ring_consumer_lost(consumer), 1);
		teardown(state);
	}
}

static void test_counters(void **state) {
	static const uint64_t garbage[] = { UINT64_MAX, INT64_MAX, UINT64_C(1) << 54 };
	struct seen seen = {};

	make(32 * KIB);
	producer_write(&rings, 0, 8, 1, "a record", true);
	assert_int_equal(ring_consume(consumer, scratch, SIZE_MAX, see, &seen), RING_E_EMPTY);
	producer_write(&rings, 1, 8, 1, "a record", true);
	rings.data[1].lost = 2;
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		/* what makes no sense is not counted; what was taken is known, and the other ring's
		 * are counted */
		rings.data[0].lost = rings.data[0].written = garbage[i];
		assert_int_equal(ring_consumer_lost(consumer), 2);
		assert_int_equal(ring_consumer_written(consumer), 2);
	}
	ring_consumer_end(consumer);
	ring_consumer_drop(consumer);
	assert_int_equal(ring_consumer_lost(consumer), 3);
}

/* ---- producers and consumer at the same time ---- */

struct record {
	uint32_t producer, size;
	uint64_t sequence;
	unsigned char rest[];
};

struct producer {
	pthread_t thread;
	uint32_t number;
	uint64_t attempted;
};

static unsigned int n_producing;

static void *produce(void *userdata) {
	struct producer *producer = userdata;
	uint64_t sequence = 0, random = producer->number + 1;
	static _Thread_local uint64_t memory[32 * 512 / 8];

	for (int i = 0; i < BATCHES; i++) {
		unsigned char *at = (unsigned char *)memory;
		uint32_t size, lanes, count;

		random = map_hash_mix(random, (uint64_t)i);
		size = 16 + (uint32_t)(random % 62) * 8;
		lanes = (uint32_t)(random >> 32) & (random & 64 ? UINT32_MAX : 0xff) ?: 1;
		count = (uint32_t)__builtin_popcount(lanes);
		for (uint32_t k = 0; k < count; k++, at += size) {
			struct record *record = (void *)at;

			*record = (struct record){ producer->number, size, ++sequence };
			memset(record->rest, (int)(sequence & 0xff), size - sizeof(*record));
		}
		producer->attempted += count;
		producer_write(&rings, (uint32_t)(random >> 40) % rings.layout.rings, size, lanes,
			       memory, true);
	}
	__atomic_fetch_sub(&n_producing, 1, __ATOMIC_RELEASE);
	return NULL;
}

struct judged {
	uint64_t n;
	uint64_t last[PRODUCERS][4]; /* sequence, by producer and ring */
};

static bool judge(const struct ring_batch *batch, void *userdata) {
	struct judged *judged = userdata;

	for (uint32_t i = 0; i < batch->count; i++) {
		const struct record *record = (const void *)(batch->records + i * batch->size);
		uint64_t *last;

		assert_true(record->producer < PRODUCERS && record->size == batch->size);
		last = &judged->last[record->producer][batch->sm - 100];
		assert_true(record->sequence > *last);
		*last = record->sequence;
		for (size_t k = 0; k < batch->size - sizeof(*record); k++)
			assert_int_equal(record->rest[k], record->sequence & 0xff);
		judged->n++;
	}
	return true;
}

static void test_concurrent(void **state) {
	struct producer producers[PRODUCERS] = {};
	struct judged judged = {};
	uint64_t attempted = 0;
	bool last;

	make(128 * KIB); /* 8 rings, of which the first 4 are judged by sm */
	rings.layout.rings = 4;
	n_producing = PRODUCERS;
	for (uint32_t i = 0; i < PRODUCERS; i++) {
		producers[i].number = i;
		assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]),
				 0);
	}
	do {
		last = !__atomic_load_n(&n_producing, __ATOMIC_ACQUIRE);
		ring_consume(consumer, scratch, 8192, judge, &judged);
	} while (!last);
	while (ring_consume(consumer, scratch, SIZE_MAX, judge, &judged) != RING_E_EMPTY)
		;
	for (uint32_t i = 0; i < PRODUCERS; i++) {
		pthread_join(producers[i].thread, NULL);
		attempted += producers[i].attempted;
	}
	assert_true(judged.n > 0);
	assert_int_equal(judged.n, ring_consumer_written(consumer));
	assert_int_equal(judged.n + ring_consumer_lost(consumer), attempted);
}

/* ---- a hostile process ---- */

static bool check_batch(const struct ring_batch *batch, void *userdata) {
	unsigned int *n = userdata;

	assert_in_range(batch->size, 1, MAP_RECORD_SIZE_MAX);
	assert_int_equal(__builtin_popcount(batch->lanes), batch->count);
	assert_ptr_equal(batch->records, scratch);
	++*n;
	return true;
}

/* Stamps that are right, headers that are not, or not for long; at the positions where it will
 * look. */
struct scribbler {
	pthread_t thread;
	uint64_t n;
	bool stop;
};

static void *scribble(void *userdata) {
	struct scribbler *scribbler = userdata;
	uint64_t random = 1;

	for (uint64_t i = 0; !__atomic_load_n(&scribbler->stop, __ATOMIC_RELAXED); i++) {
		uint32_t ring = (uint32_t)i % rings.layout.rings;
		uint64_t tail =
			*(volatile uint64_t *)(void *)(rings.host + ring * MAP_RING_TAIL_STRIDE);
		volatile struct map_batch *batch = (void *)producer_at(&rings, ring, tail);

		random = map_hash_mix(random, i);
		batch->size = random & 1 ? 8 : (uint32_t)random;
		batch->count = random & 2 ? 1 : (uint32_t)(random >> 16) & 63;
		batch->lanes = random & 4 ? 1 : random;
		producer_stamp(&rings, ring, tail);
		__atomic_store_n(&scribbler->n, i, __ATOMIC_RELAXED);
		if (random & 8)
			continue;
		batch->size = (uint32_t)(random >> 32);
		batch->count = 32;
		*(uint64_t *)(void *)(rings.host + ring * MAP_RING_TAIL_STRIDE + 8) = random;
	}
	return NULL;
}

static void test_hostile(void **state) {
	unsigned int n = 0;

	for (int round = 0; round < 50; round++) {
		struct scribbler scribbler = {};

		make(128 * KIB);
		assert_int_equal(pthread_create(&scribbler.thread, NULL, scribble, &scribbler), 0);
		if (round & 1)
			ring_consumer_end(consumer);
		while (__atomic_load_n(&scribbler.n, __ATOMIC_RELAXED) < 5000)
			ring_consume(consumer, scratch, 4096, check_batch, &n);
		for (int i = 0; i < 200; i++)
			ring_consume(consumer, scratch, 4096, check_batch, &n);
		if (round & 1)
			assert_true(ring_consumer_drained(consumer));
		__atomic_store_n(&scribbler.stop, true, __ATOMIC_RELAXED);
		pthread_join(scribbler.thread, NULL);
		teardown(state);
	}
	assert_true(n > 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_batches, teardown),
		cmocka_unit_test_teardown(test_unfinished, teardown),
		cmocka_unit_test_teardown(test_full, teardown),
		cmocka_unit_test_teardown(test_endless, teardown),
		cmocka_unit_test_teardown(test_ended, teardown),
		cmocka_unit_test_teardown(test_skip, teardown),
		cmocka_unit_test_teardown(test_garbage, teardown),
		cmocka_unit_test_teardown(test_counters, teardown),
		cmocka_unit_test_teardown(test_concurrent, teardown),
		cmocka_unit_test_teardown(test_hostile, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
