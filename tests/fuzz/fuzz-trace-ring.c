/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The shim's writer of a trace on memory in which the daemon writes anything
 * (proto/trace-ring.h). The input is bytes that are laid over a right header, then commands: what
 * head, tail or lost are said to be, and records of some size. All that is written lies in the
 * slot, and what is read is in order.
 */

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "shim/trace/tracing.h"

#define SIZE 16384
#define OFFSET 4096
#define SLOT_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint64_t number = 1;
const uint64_t *trace_number = &number;
struct trace_session trace_session;
bool trace_ending, trace_fenced;
static bool ended;

void trace_end_session(uint64_t which) {
	ended = true;
}

/* One command: what it is, and a number. */
static void run(struct trace_self *self, uint8_t what, uint16_t value) {
	struct trace_ring_record *record;
	uint32_t size = 8 + value % (TRACE_RING_RECORD_MAX / 8) * 8;
	char name[2048];

	switch (what % 8) {
	case 0:
		self->slot->tail = self->slot->head; /* it has read all */
		return;
	case 1:
		self->slot->tail = value * UINT64_C(0x10001) * (what >> 3);
		return;
	case 2:
		self->slot->head = value;
		return;
	case 3:
		trace_lose(self);
		return;
	case 4:
		memset(name, 'n', sizeof(name));
		name[value % sizeof(name)] = 0;
		trace_write_name(self, TRACE_NAME_KERNEL, value, name);
		return;
	default:
		record = trace_reserve(self, size);
		if (!record) {
			trace_lose(self);
			return;
		}
		memset(record, what, size);
		trace_write(self, size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct trace_ring *ring = calloc(1, SIZE); /* its end is seen by a sanitizer */
	struct trace_self self = { 0 };
	size_t over;

	if (!ring || size < 1) {
		free(ring);
		return 0;
	}
	*ring = (struct trace_ring){
		.magic = TRACE_RING_MAGIC,
		.version = TRACE_RING_VERSION,
		.enabled = 1,
		.slot_count = 2,
		.slot_bytes = SLOT_BYTES,
		.slot_stride = sizeof(struct trace_slot) + SLOT_BYTES,
		.slots_offset = OFFSET,
	};
	over = data[0] % 128 < size - 1 ? data[0] % 128 : size - 1;
	memcpy(ring, data + 1, over);
	data += 1 + over;
	size -= 1 + over;
	if (trace_adopt(ring, SIZE)) {
		const struct trace_session *session = &trace_session;
		uint8_t *last =
			session->slots + (uint64_t)(session->slot_count - 1) * session->slot_stride;

		if (last + session->slot_stride > (uint8_t *)ring + SIZE)
			abort();
		self.slot = (struct trace_slot *)last;
		self.data = (uint8_t *)(self.slot + 1);
		for (; size >= 3; data += 3, size -= 3)
			run(&self, data[0], (uint16_t)(data[1] | data[2] << 8));
	}
	free(ring);
	return 0;
}
