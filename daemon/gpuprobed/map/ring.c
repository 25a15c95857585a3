/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Takes records out of the rings of an instance (ring.h).
 *
 * A batch is there if its stamp is that of its position. Stamps differ at every position and in
 * every instance, so bytes of an earlier round, or of a record, are not mistaken for one. While a
 * process lives, a batch without a stamp is one that is being written: the consumer waits there. A
 * batch that has its stamp and makes no sense is no accident: the ring is broken and nothing more
 * is taken from it; its producers soon find no room, and count.
 *
 * Once the process has ended, nothing waits any more: whatever is not a batch is passed over in
 * steps of MAP_BATCH_ALIGN, to the end of what a ring can hold.
 */

#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What passing over something without records counts for in the budget. */
#define RING_STEP_COST 64
#define RING_SETTLE_READS 64
/* More records than there can be of one ring: 10^9 a second, for months. */
#define RING_RECORDS_MAX (UINT64_C(1) << 53)

struct ring {
	uint64_t tail; /* of the next batch to look at */
	uint64_t released; /* the tail that the producers know */
	uint64_t until; /* no batch at or behind it is taken */
	uint64_t taken; /* records */
	bool broken;
};

struct ring_consumer {
	const struct map_ring *data;
	unsigned char *host;
	struct map_layout layout;
	uint64_t cookie;
	bool ended;
	uint32_t next; /* the ring to begin with */
	struct ring rings[];
};

void ring_start(struct map_ring *rings, uint32_t n_rings, uint64_t cookie) {
	for (uint32_t i = 0; i < n_rings; i++)
		rings[i] = (struct map_ring){ .cookie = cookie };
}

int ring_consumer_new(struct ring_consumer **consumerp, const struct map_layout *layout,
		      uint64_t cookie, const void *data, void *host) {
	struct ring_consumer *consumer;

	consumer = calloc(1, sizeof(*consumer) + layout->rings * sizeof(consumer->rings[0]));
	if (!consumer)
		return -ENOMEM;
	consumer->data = data;
	consumer->host = host;
	consumer->layout = *layout;
	consumer->cookie = cookie;
	ring_consumer_limit(consumer, false);
	*consumerp = consumer;
	return 0;
}

struct ring_consumer *ring_consumer_free(struct ring_consumer *consumer) {
	free(consumer);
	return NULL;
}

/* Lets the producers have what was taken. */
static void ring_release(struct ring_consumer *consumer, uint32_t number) {
	struct ring *ring = &consumer->rings[number];
	uint64_t *tail = (void *)(consumer->host + (size_t)number * MAP_RING_TAIL_STRIDE);

	if (ring->released == ring->tail)
		return;
	tail[1] = ring->taken; /* for ring_consumer_resume() */
	__atomic_store_n(tail, ring->tail, __ATOMIC_RELEASE);
	ring->released = ring->tail;
}

/*
 * The batch at `at`, with `room` bytes before the end of the ring: its records are copied to
 * scratch. Returns its bytes in the ring; 0: it makes no sense. Each field is read once: it may
 * change meanwhile.
 */
static uint64_t ring_read(const unsigned char *at, uint64_t room, unsigned char *scratch,
			  struct ring_batch *batch) {
	const struct map_batch *shared = (const void *)at;
	uint64_t lanes, n;

	batch->size = __atomic_load_n(&shared->size, __ATOMIC_RELAXED);
	batch->count = __atomic_load_n(&shared->count, __ATOMIC_RELAXED);
	if (!batch->count && !batch->size)
		return room;
	if (!batch->size || batch->size > MAP_RECORD_SIZE_MAX || !batch->count ||
	    batch->count > RING_LANES)
		return 0;
	n = map_round_up(sizeof(*shared) + (uint64_t)batch->size * batch->count, MAP_BATCH_ALIGN);
	lanes = __atomic_load_n(&shared->lanes, __ATOMIC_RELAXED);
	if (n > room || lanes > UINT32_MAX || __builtin_popcountll(lanes) != (int)batch->count)
		return 0;
	batch->lanes = (uint32_t)lanes;
	batch->sm = __atomic_load_n(&shared->sm, __ATOMIC_RELAXED);
	batch->records = scratch;
	memcpy(scratch, at + sizeof(*shared), (size_t)batch->size * batch->count);
	return n;
}

/*
 * As ring_read(), of a batch whose stamp is there. The stamp and the sizes are two halves of one
 * store: it goes over the bus at once, but PTX does not promise that. So what has no records is
 * looked at for some time more before it is taken for the rest of a ring, or for garbage.
 */
static uint64_t ring_read_settled(const unsigned char *at, uint64_t room, unsigned char *scratch,
				  struct ring_batch *batch) {
	uint64_t n = 0;

	for (int i = 0; i < RING_SETTLE_READS; i++) {
		n = ring_read(at, room, scratch, batch);
		if (n && batch->count)
			break;
	}
	return n;
}

/* Takes from one ring, until it has no more or *budgetp is 0. False: the taker wants no more. */
static bool ring_walk(struct ring_consumer *consumer, uint32_t number, unsigned char *scratch,
		      size_t *budgetp, ring_take take, void *userdata) {
	const uint64_t size = consumer->layout.ring_size;
	const unsigned char *bytes = consumer->host + map_ring_offset(&consumer->layout, number);
	struct ring *ring = &consumer->rings[number];
	bool more = true;

	while (more && *budgetp && ring->tail < ring->until) {
		uint64_t offset = ring->tail & (size - 1), n = 0, cost;
		const uint64_t *stamp = (const void *)(bytes + offset);
		struct ring_batch batch = {};
		bool stamped = __atomic_load_n(stamp, __ATOMIC_ACQUIRE) ==
			       map_ring_stamp(ring->tail, consumer->cookie);

		if (stamped)
			n = ring_read_settled(bytes + offset, size - offset, scratch, &batch);
		if (!n && !consumer->ended) {
			ring->broken = stamped;
			if (stamped)
				ring->until = ring->tail;
			break;
		}
		ring->tail += n ?: MAP_BATCH_ALIGN;
		cost = RING_STEP_COST;
		if (n && batch.count) {
			cost = n;
			ring->taken += batch.count;
			more = take(&batch, userdata);
		}
		*budgetp -= cost < *budgetp ? cost : *budgetp;
		if (ring->tail - ring->released >= size / 8)
			ring_release(consumer, number);
	}
	ring_release(consumer, number);
	return more;
}

int ring_consume_some(struct ring_consumer *consumer, unsigned char *scratch, size_t *budgetp,
		      ring_take take, void *userdata) {
	const uint32_t n_rings = consumer->layout.rings, first = consumer->next;

	for (uint32_t i = 0; i < n_rings; i++) {
		uint32_t number = (first + i) % n_rings;

		if (!ring_walk(consumer, number, scratch, budgetp, take, userdata) || !*budgetp) {
			consumer->next = (number + 1) % n_rings;
			return 0;
		}
	}
	return RING_E_EMPTY;
}

int ring_consume(struct ring_consumer *consumer, unsigned char *scratch, size_t budget,
		 ring_take take, void *userdata) {
	return ring_consume_some(consumer, scratch, &budget, take, userdata);
}

/* Batches that begin before this are in the ring now, or may be written by now. */
static void ring_limit(struct ring_consumer *consumer, struct ring *ring) {
	ring->until = ring->tail + consumer->layout.ring_size;
}

void ring_consumer_limit(struct ring_consumer *consumer, bool limited) {
	for (uint32_t i = 0; !consumer->ended && i < consumer->layout.rings; i++) {
		struct ring *ring = &consumer->rings[i];

		if (ring->broken)
			continue;
		if (limited)
			ring_limit(consumer, ring);
		else
			ring->until = UINT64_MAX;
	}
}

void ring_consumer_resume(struct ring_consumer *consumer) {
	for (uint32_t i = 0; i < consumer->layout.rings; i++) {
		const uint64_t *tail = (void *)(consumer->host + (size_t)i * MAP_RING_TAIL_STRIDE);
		struct ring *ring = &consumer->rings[i];

		ring->tail = ring->released = tail[0] / MAP_BATCH_ALIGN * MAP_BATCH_ALIGN;
		ring->taken = tail[1] <= ring->tail && tail[1] <= RING_RECORDS_MAX ? tail[1] : 0;
	}
}

void ring_consumer_end(struct ring_consumer *consumer) {
	for (uint32_t i = 0; !consumer->ended && i < consumer->layout.rings; i++) {
		ring_limit(consumer, &consumer->rings[i]);
		consumer->rings[i].broken = false;
	}
	consumer->ended = true;
}

bool ring_consumer_skip(struct ring_consumer *consumer, uint64_t *budgetp) {
	const uint64_t mask = consumer->layout.ring_size - 1;

	for (uint32_t i = 0; consumer->ended && i < consumer->layout.rings; i++) {
		const unsigned char *bytes = consumer->host + map_ring_offset(&consumer->layout, i);
		struct ring *ring = &consumer->rings[i];

		while (ring->tail < ring->until &&
		       __atomic_load_n(
			       (const uint64_t *)(const void *)(bytes + (ring->tail & mask)),
			       __ATOMIC_ACQUIRE) != map_ring_stamp(ring->tail, consumer->cookie)) {
			if (*budgetp < MAP_BATCH_ALIGN)
				return false;
			*budgetp -= MAP_BATCH_ALIGN;
			ring->tail += MAP_BATCH_ALIGN;
		}
	}
	return true;
}

void ring_consumer_drop(struct ring_consumer *consumer) {
	for (uint32_t i = 0; consumer->ended && i < consumer->layout.rings; i++)
		consumer->rings[i].tail = consumer->rings[i].until;
}

bool ring_consumer_drained(const struct ring_consumer *consumer) {
	for (uint32_t i = 0; i < consumer->layout.rings; i++)
		if (consumer->rings[i].tail < consumer->rings[i].until)
			return false;
	return consumer->ended;
}

/*
 * What the process has counted is its own memory. There are no more records than were taken and are
 * in the ring.
 */
static uint64_t ring_written(const struct ring_consumer *consumer, uint32_t number) {
	const uint64_t written = __atomic_load_n(&consumer->data[number].written, __ATOMIC_RELAXED);
	const uint64_t taken = consumer->rings[number].taken,
		       room = consumer->layout.ring_size / MAP_BATCH_ALIGN * RING_LANES;

	return written > taken && written - taken > room ? taken : written;
}

static uint64_t ring_lost(const struct ring_consumer *consumer, uint32_t number) {
	const uint64_t lost = __atomic_load_n(&consumer->data[number].lost, __ATOMIC_RELAXED);

	return lost > RING_RECORDS_MAX ? 0 : lost;
}

uint64_t ring_consumer_written(const struct ring_consumer *consumer) {
	uint64_t sum = 0;

	for (uint32_t i = 0; i < consumer->layout.rings; i++)
		sum = ring_add_records(sum, ring_written(consumer, i));
	return sum;
}

uint64_t ring_consumer_lost(const struct ring_consumer *consumer) {
	uint64_t sum = 0;

	for (uint32_t i = 0; i < consumer->layout.rings; i++) {
		const struct ring *ring = &consumer->rings[i];
		uint64_t written = ring_written(consumer, i);

		sum = ring_add_records(sum, ring_lost(consumer, i));
		if ((ring->broken || (consumer->ended && ring->tail >= ring->until)) &&
		    written > ring->taken)
			sum = ring_add_records(sum, written - ring->taken);
	}
	return sum;
}
