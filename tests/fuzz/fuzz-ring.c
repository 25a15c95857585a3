/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The consumer of rings on whatever a process writes. The input is commands: bytes at
 * a place near the tail, with or without the stamp that belongs there; reading; the end. No more
 * comes out than went in, and it comes to an end.
 */

#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/map/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct command {
	uint8_t what; /* 0-3 write, 4-5 read, 6 limit, 7 end */
	uint8_t ring;
	uint8_t offset; /* from the tail, in steps of 32 bytes */
	uint8_t n; /* bytes that follow, to be written behind the stamp */
};

struct area {
	struct map_layout layout;
	unsigned char *host;
	uint64_t limit, taken; /* bytes of records */
};

static bool take(const struct ring_batch *batch, void *userdata) {
	struct area *area = userdata;
	volatile unsigned char sum = 0;

	if (!batch->size || batch->size > MAP_RECORD_SIZE_MAX || !batch->count ||
	    __builtin_popcount(batch->lanes) != (int)batch->count)
		abort();
	for (size_t i = 0; i < (size_t)batch->size * batch->count; i++)
		sum ^= batch->records[i];
	area->taken += (uint64_t)batch->size * batch->count;
	return batch->sm & 1;
}

static uint64_t tail_of(const struct area *area, uint32_t ring) {
	uint64_t tail;

	memcpy(&tail, area->host + (size_t)ring * MAP_RING_TAIL_STRIDE, sizeof(tail));
	if (tail % MAP_BATCH_ALIGN)
		abort();
	return tail;
}

static void write_bytes(const struct area *area, const struct command *command,
			const uint8_t *bytes, size_t n_bytes, uint64_t cookie) {
	uint32_t ring = command->ring % area->layout.rings;
	uint64_t position = tail_of(area, ring) + (uint64_t)command->offset * MAP_BATCH_ALIGN;
	uint64_t offset = position & (area->layout.ring_size - 1), stamp;
	unsigned char *at = area->host + map_ring_offset(&area->layout, ring) + offset;

	if (n_bytes > area->layout.ring_size - offset - sizeof(stamp))
		n_bytes = (size_t)(area->layout.ring_size - offset - sizeof(stamp));
	if (n_bytes)
		memcpy(at + sizeof(stamp), bytes, n_bytes);
	stamp = map_ring_stamp(position, cookie);
	if (command->what & 1)
		memcpy(at, &stamp, sizeof(stamp));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static unsigned char scratch[RING_SCRATCH_SIZE] __attribute__((aligned(64)));
	struct map_shape shape = { .type = 1527, .value_size = 8, .ring_bytes = 64 << 10 };
	struct map_ring rings[4];
	struct ring_consumer *consumer;
	struct area area = {};
	struct command command;

	if (map_layout_init(&area.layout, &shape) || area.layout.rings != 4)
		abort();
	area.host = calloc(1, area.layout.host_size);
	ring_start(rings, area.layout.rings, 0);
	if (!area.host ||
	    ring_consumer_new(&consumer, &area.layout, rings[0].cookie, rings, area.host))
		abort();
	while (size >= sizeof(command)) {
		size_t n;

		memcpy(&command, data, sizeof(command));
		data += sizeof(command);
		size -= sizeof(command);
		n = command.n < size ? command.n : size;
		command.what %= 8;
		if (command.what < 4)
			write_bytes(&area, &command, data, n, rings[0].cookie);
		else if (command.what < 6)
			ring_consume(consumer, scratch, command.n * 64u, take, &area);
		else if (command.what == 6)
			ring_consumer_limit(consumer, command.n & 1);
		else
			ring_consumer_end(consumer);
		if (command.what < 4) {
			data += n;
			size -= n;
		}
		rings[command.ring % 4].written += command.n;
		rings[command.ring % 4].lost += command.offset;
	}
	if (ring_consumer_lost(consumer) > INT64_MAX || ring_consumer_written(consumer) > INT64_MAX)
		abort();
	ring_consumer_end(consumer);
	area.taken = 0;
	for (size_t steps = 0; ring_consume(consumer, scratch, 4096, take, &area) != RING_E_EMPTY;
	     steps++)
		if (steps > 4 * 16384 / 32)
			abort(); /* no end */
	if (!ring_consumer_drained(consumer) || area.taken > 5 * 65536)
		abort();
	ring_consumer_free(consumer);
	free(area.host);
	return 0;
}
