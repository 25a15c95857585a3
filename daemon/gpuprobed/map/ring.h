/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The consumer's side of the rings of one instance of a map (map-layout.h). What it reads may be
 * written by a hostile process at the same time. Positions, cookie and sizes are the consumer's
 * own: of the memory it believes nothing but a batch whose stamp is right, and of that only what it
 * has copied and checked.
 *
 *     ring_consumer_new(&consumer, &layout, cookie, bytes + MAP_DATA_OFFSET, host_area);
 *     while (ring_consume(consumer, scratch, budget, take, userdata) != RING_E_EMPTY) ...
 *
 * When the process has ended: ring_consumer_end(), and the instance may go once it is drained.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/map-layout.h"

enum ring_result {
	_RING_E_SUCCESS, /* stopped by the budget or by the taker: there may be more */
	RING_E_EMPTY, /* nothing more now */
};

#define RING_LANES 32
#define RING_SCRATCH_SIZE (RING_LANES * MAP_RECORD_SIZE_MAX)

/* Records of one warp, in order of lanes. */
struct ring_batch {
	uint32_t size; /* bytes of one record: 1..MAP_RECORD_SIZE_MAX */
	uint32_t count; /* 1..RING_LANES */
	uint32_t lanes; /* bit i: lane i wrote one; `count` of them are set */
	uint32_t sm;
	const unsigned char *records; /* count * size bytes, the taker's until it returns */
};

/* Takes a batch. False: no more for now, the batch is taken all the same. */
typedef bool (*ring_take)(const struct ring_batch *batch, void *userdata);

struct ring_consumer;

/* The sum of two numbers of records, INT64_MAX at most. */
static inline uint64_t ring_add_records(uint64_t a, uint64_t b) {
	return a > INT64_MAX || b > INT64_MAX - a ? INT64_MAX : a + b;
}

/* What the data of a new instance is before the process gets it: rings that are empty. */
void ring_start(struct map_ring *rings, uint32_t n_rings, uint64_t cookie);

/*
 * data: the mirrored copy, only read; host: the host area, written to. Both are borrowed and as
 * large as the layout says. 0 or -ENOMEM.
 */
int ring_consumer_new(struct ring_consumer **consumerp, const struct map_layout *layout,
		      uint64_t cookie, const void *data, void *host);
struct ring_consumer *ring_consumer_free(struct ring_consumer *consumer);

/*
 * Takes batches, and gives their room back to the producers. scratch: RING_SCRATCH_SIZE bytes.
 * budget: bytes of the rings to go over at most, about. No ring waits for ever behind another.
 */
int ring_consume(struct ring_consumer *consumer, unsigned char *scratch, size_t budget,
		 ring_take take, void *userdata);

/* The same, with a budget for several. */
int ring_consume_some(struct ring_consumer *consumer, unsigned char *scratch, size_t *budgetp,
		      ring_take take, void *userdata);

/*
 * From now on no more than what the rings can hold at this moment is taken, so that a reader comes
 * to an end however fast the producers are; or again without an end.
 */
void ring_consumer_limit(struct ring_consumer *consumer, bool limited);

/* Goes on where the consumer was that an earlier daemon had: it is written in the host area, where
 * a process can write, too, to its own rings' harm. */
void ring_consumer_resume(struct ring_consumer *consumer);

/*
 * Nobody writes any more (who still does is not waited for): batches behind one that was never
 * finished, which a killed process leaves, are found by their stamps.
 */
void ring_consumer_end(struct ring_consumer *consumer);
/*
 * After the end: goes over what holds no batches, so that a ring without any is drained: *budgetp
 * bytes at most, which are taken off. Whether that is all.
 */
bool ring_consumer_skip(struct ring_consumer *consumer, uint64_t *budgetp);
/* After the end: nothing more is taken, and what was not counts as lost, as far as it is known to
 * be there. */
void ring_consumer_drop(struct ring_consumer *consumer);
bool ring_consumer_drained(const struct ring_consumer *consumer); /* only after the end */

/*
 * Records written and lost so far, as of the last copy; at most INT64_MAX. Lost are those that
 * found no room, and those of rings that were broken or ended whose batches never were readable.
 */
uint64_t ring_consumer_written(const struct ring_consumer *consumer);
uint64_t ring_consumer_lost(const struct ring_consumer *consumer);
