/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The process's side of a ring (proto/trace-ring.h), for tests: what the shim does, without the
 * shim. */

#include <stdbool.h>
#include <string.h>

#include "proto/trace-ring.h"
#include "proto/trace.h"

struct producer {
	struct trace_ring *ring;
	struct trace_slot *slot;
	uint64_t head;
};

static inline struct trace_slot *producer_slot(struct trace_ring *ring, uint32_t i) {
	return (struct trace_slot *)((unsigned char *)ring + ring->slots_offset +
				     (uint64_t)i * ring->slot_stride);
}

/* Claims the first free slot. False: there is none. */
static inline bool producer_claim(struct producer *producer, struct trace_ring *ring,
				  uint32_t tid) {
	*producer = (struct producer){};
	for (uint32_t i = 0; i < ring->slot_count; i++) {
		struct trace_slot *slot = producer_slot(ring, i);
		uint32_t expected = TRACE_SLOT_FREE;

		if (!__atomic_compare_exchange_n(&slot->state, &expected, TRACE_SLOT_USED, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		slot->tid = tid;
		*producer = (struct producer){ ring, slot, slot->head };
		return true;
	}
	return false;
}

static inline void producer_leave(struct producer *producer) {
	__atomic_store_n(&producer->slot->state, TRACE_SLOT_LEFT, __ATOMIC_RELEASE);
}

/* Copies a record in. False: there is no room; nothing is counted. */
static inline bool producer_write(struct producer *producer,
				  const struct trace_ring_record *record) {
	const uint64_t bytes = producer->ring->slot_bytes;
	unsigned char *data = (unsigned char *)(producer->slot + 1);
	uint64_t place = producer->head & (bytes - 1),
		 pad = bytes - place < record->size ? bytes - place : 0;

	if (producer->head + pad + record->size -
		    __atomic_load_n(&producer->slot->tail, __ATOMIC_ACQUIRE) >
	    bytes)
		return false;
	if (pad) {
		*(struct trace_ring_record *)(data + place) =
			(struct trace_ring_record){ .size = (uint16_t)pad, .type = TRACE_RING_PAD };
		producer->head += pad;
		place = 0;
	}
	memcpy(data + place, record, record->size);
	producer->head += record->size;
	__atomic_store_n(&producer->slot->head, producer->head, __ATOMIC_RELEASE);
	return true;
}

static inline void producer_count_lost(struct producer *producer) {
	__atomic_store_n(&producer->slot->lost, producer->slot->lost + 1, __ATOMIC_RELAXED);
}

/* A call with that many words: 1, 2, 3, ... */
struct producer_call {
	struct trace_ring_call call;
	uint64_t words[TRACE_WORDS_MAX];
};

static inline const struct trace_ring_record *producer_call(struct producer_call *call,
							    uint16_t function, uint32_t sequence,
							    uint64_t start, uint64_t end,
							    uint8_t n_words) {
	*call = (struct producer_call){
		.call = { .record = { .size = (uint16_t)(sizeof(call->call) + 8u * n_words),
				      .type = TRACE_RING_CALL,
				      .sequence = sequence },
			  .start = start,
			  .end = end,
			  .function = function,
			  .n_arguments = n_words },
	};
	for (uint64_t i = 0; i < n_words; i++)
		call->words[i] = i + 1;
	return &call->call.record;
}
