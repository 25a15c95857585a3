/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What device code does with a ring, in C: for tests and benchmarks of the consumer. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"

struct producer_rings {
	struct map_layout layout;
	uint64_t cookie;
	struct map_ring *data;
	unsigned char *host;
};

static inline void producer_rings_init(struct producer_rings *rings, uint64_t bytes, void *host) {
	struct map_shape shape = { .type = 1527, .value_size = 64, .ring_bytes = bytes };

	if (map_layout_init(&rings->layout, &shape))
		abort();
	rings->cookie = UINT64_C(0x1234567890abcdef);
	rings->data = calloc(rings->layout.rings, sizeof(struct map_ring));
	rings->host = host ?: calloc(1, rings->layout.host_size);
	if (!rings->data || !rings->host)
		abort();
	ring_start(rings->data, rings->layout.rings, rings->cookie);
}

static inline unsigned char *producer_at(const struct producer_rings *rings, uint32_t ring,
					 uint64_t position) {
	return rings->host + map_ring_offset(&rings->layout, ring) +
	       (position & (rings->layout.ring_size - 1));
}

static inline void producer_stamp(const struct producer_rings *rings, uint32_t ring,
				  uint64_t position) {
	__atomic_store_n((uint64_t *)(void *)producer_at(rings, ring, position),
			 map_ring_stamp(position, rings->cookie), __ATOMIC_RELEASE);
}

/* Room for a batch of n bytes at *positionp, a skip before it if need be. False: no room. */
static inline bool producer_reserve(const struct producer_rings *rings, uint32_t number, uint64_t n,
				    uint64_t *positionp) {
	const uint64_t size = rings->layout.ring_size;
	const uint64_t *consumed = (void *)(rings->host + (size_t)number * MAP_RING_TAIL_STRIDE);
	struct map_ring *ring = &rings->data[number];
	uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED), left, skip;

	do {
		left = size - (head & (size - 1));
		skip = n > left ? left : 0;
		if (head + skip + n - __atomic_load_n(consumed, __ATOMIC_ACQUIRE) > size)
			return false;
	} while (!__atomic_compare_exchange_n(&ring->head, &head, head + skip + n, false,
					      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	if (skip) {
		struct map_batch *batch = (void *)producer_at(rings, number, head);

		batch->size = batch->count = 0;
		producer_stamp(rings, number, head);
	}
	*positionp = head + skip;
	return true;
}

/* Writes one batch, its records one behind the other in `records`. False: they are lost. */
static inline bool producer_write(const struct producer_rings *rings, uint32_t number,
				  uint32_t size, uint32_t lanes, const void *records,
				  bool stamped) {
	uint32_t count = (uint32_t)__builtin_popcount(lanes);
	uint64_t n =
		map_round_up(sizeof(struct map_batch) + (uint64_t)size * count, MAP_BATCH_ALIGN);
	struct map_batch *batch;
	uint64_t position;

	if (!producer_reserve(rings, number, n, &position)) {
		__atomic_fetch_add(&rings->data[number].lost, count, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_fetch_add(&rings->data[number].written, count, __ATOMIC_RELAXED);
	batch = (void *)producer_at(rings, number, position);
	batch->size = size;
	batch->count = count;
	batch->lanes = lanes;
	batch->sm = number + 100;
	memcpy(batch + 1, records, (size_t)size * count);
	if (stamped)
		producer_stamp(rings, number, position);
	return true;
}
