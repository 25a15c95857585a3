/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The producer's side of proto/trace-ring.h. A thread writes to its own slot alone and keeps head
 * itself; tail, which the daemon writes, is looked at only when the room that was there before is
 * used up. Nothing that the daemon writes later than the session's begin is used as a size.
 */

#include "tracing.h"
#include "lib/base/clock.h"

#include <string.h>

#define LOST_CHECK 64 /* losses of a thread till it looks whether the daemon still reads */
#define SLOT_BYTES_MAX (UINT32_C(1) << 30)

/* Makes it the session. Others may just be reading the settings of the last one (tracing.h). */
static void publish(const struct trace_session *session) {
	struct trace_session *to = &trace_session;

	for (unsigned i = 0; i < TRACE_FUNCTION_MAX / 64; i++)
		__atomic_store_n(&to->functions[i], session->functions[i], __ATOMIC_RELAXED);
	__atomic_store_n(&to->flags, session->flags, __ATOMIC_RELAXED);
	__atomic_store_n(&to->clock, session->clock, __ATOMIC_RELAXED);
	__atomic_store_n(&to->sample, session->sample, __ATOMIC_RELAXED);
	__atomic_store_n(&to->min_duration, session->min_duration, __ATOMIC_RELAXED);
	to->size = session->size;
	to->slots = session->slots;
	to->slot_count = session->slot_count;
	to->slot_bytes = session->slot_bytes;
	to->slot_stride = session->slot_stride;
	to->started = session->started;
	memcpy(to->cupti, session->cupti, sizeof(to->cupti));
	__atomic_store_n(&to->ring, session->ring, __ATOMIC_SEQ_CST);
}

bool trace_adopt(struct trace_ring *ring, uint64_t size) {
	struct trace_session session = {
		.flags = ring->flags,
		.clock = ring->clock,
		.slot_count = ring->slot_count,
		.slot_bytes = ring->slot_bytes,
		.slot_stride = ring->slot_stride,
		.min_duration = ring->min_duration,
		.sample = ring->sample,
	};
	uint64_t offset = ring->slots_offset;

	if (ring->magic != TRACE_RING_MAGIC || ring->version != TRACE_RING_VERSION ||
	    session.clock > TRACE_RING_MONOTONIC || !session.slot_count ||
	    session.slot_count > TRACE_RING_SLOTS_MAX ||
	    session.slot_bytes < 2 * TRACE_RING_RECORD_MAX || session.slot_bytes > SLOT_BYTES_MAX ||
	    (session.slot_bytes & (session.slot_bytes - 1)) || session.slot_stride % 8 ||
	    session.slot_stride < sizeof(struct trace_slot) + session.slot_bytes || offset % 8 ||
	    offset < sizeof(*ring) || offset > size ||
	    (uint64_t)session.slot_count * session.slot_stride > size - offset)
		return false;
	session.ring = ring;
	session.size = size;
	session.slots = (uint8_t *)ring + offset;
	session.started = monotonic_now();
	memcpy(session.functions, ring->functions, sizeof(session.functions));
	memcpy(session.cupti, ring->cupti, sizeof(session.cupti));
	session.cupti[sizeof(session.cupti) - 1] = '\0';
	publish(&session);
	return true;
}

/* Retries until stable: another thread may be copying an older value. */
static void follow(uint64_t *to, const uint64_t *from) {
	uint64_t value;

	do {
		value = __atomic_load_n(from, __ATOMIC_SEQ_CST);
		__atomic_store_n(to, value, __ATOMIC_SEQ_CST);
	} while (__atomic_load_n(from, __ATOMIC_SEQ_CST) != value);
}

void trace_follow(void) {
	const struct trace_ring *ring = trace_session.ring;
	struct trace_session *to = &trace_session;
	uint32_t flags, begun = to->flags & TRACE_RING_AT_ONCE;

	for (unsigned i = 0; i < TRACE_FUNCTION_MAX / 64; i++)
		follow(&to->functions[i], &ring->functions[i]);
	follow(&to->min_duration, &ring->min_duration);
	follow(&to->sample, &ring->sample);
	do {
		flags = __atomic_load_n(&ring->flags, __ATOMIC_SEQ_CST);
		__atomic_store_n(&to->flags, (flags & ~TRACE_RING_AT_ONCE) | begun,
				 __ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&ring->flags, __ATOMIC_SEQ_CST) != flags);
}

/* The daemon has not read for long: it will not read any more. */
static bool is_stale(void) {
	uint64_t heartbeat = __atomic_load_n(&trace_session.ring->heartbeat, __ATOMIC_RELAXED),
		 now = monotonic_now();

	if (heartbeat < trace_session.started)
		heartbeat = trace_session.started;
	return now > heartbeat && now - heartbeat > TRACE_RING_STALE_NS;
}

void trace_lose(struct trace_self *thread) {
	uint64_t lost = __atomic_add_fetch(&thread->slot->lost, 1, __ATOMIC_RELAXED);

	if (lost % LOST_CHECK == 0 && is_stale())
		trace_end_session(thread->session);
}

void *trace_reserve(struct trace_self *thread, uint32_t size) {
	uint32_t bytes = trace_session.slot_bytes, at = (uint32_t)thread->head & (bytes - 1),
		 to_end = bytes - at, needed = size <= to_end ? size : size + to_end;

	if (__builtin_expect(thread->head + needed - thread->tail > bytes, 0)) {
		uint64_t tail = __atomic_load_n(&thread->slot->tail, __ATOMIC_ACQUIRE);

		if (thread->head - tail > bytes || thread->head + needed - tail > bytes)
			return NULL;
		thread->tail = tail;
	}
	if (__builtin_expect(size > to_end, 0)) {
		*(struct trace_ring_record *)(thread->data + at) = (struct trace_ring_record){
			.size = (uint16_t)to_end,
			.type = TRACE_RING_PAD,
		};
		thread->head += to_end;
		at = 0;
	}
	return thread->data + at;
}

/*
 * Room for a record that begins with `fixed` bytes and ends with a text, which may be cut and is
 * written; *size: of the record. NULL: lost.
 */
static void *reserve_text(struct trace_self *thread, size_t fixed, const char *text,
			  uint32_t *size) {
	size_t length = strnlen(text, TRACE_RING_RECORD_MAX - fixed);
	char *record;

	*size = (uint32_t)(fixed + (length + 7) / 8 * 8);
	record = trace_reserve(thread, *size);
	if (record) {
		memset(record + fixed, 0, *size - fixed);
		memcpy(record + fixed, text, length);
	}
	return record;
}

bool trace_write_name(struct trace_self *thread, uint32_t kind, uint64_t id, const char *name) {
	uint32_t size;
	struct trace_ring_name *record = reserve_text(thread, sizeof(*record), name, &size);

	if (!record)
		return false;
	*record = (struct trace_ring_name){
		.record = { .size = (uint16_t)size, .type = TRACE_RING_NAME },
		.kind = kind,
		.id = id,
	};
	trace_write(thread, size);
	return true;
}

bool trace_write_note(struct trace_self *thread, const char *text) {
	uint32_t size;
	struct trace_ring_note *record = reserve_text(thread, sizeof(*record), text, &size);

	if (!record)
		return false;
	record->record =
		(struct trace_ring_record){ .size = (uint16_t)size, .type = TRACE_RING_NOTE };
	trace_write(thread, size);
	return true;
}
