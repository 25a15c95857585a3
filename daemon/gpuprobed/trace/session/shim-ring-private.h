/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A ring in the daemon. */

#include "session-private.h"
#include "shim-ring.h"
#include "daemon/gpuprobed/wire/shim-wire.h"
#include "proto/trace-ring.h"

#define RING_CONNECTIONS_MAX 8
#define RING_NAMES_MAX 65536
#define RING_NAMES_BYTES_MAX ((size_t)16 << 20)
#define RING_PENDING_MAX 4096

/* What the daemon knows about a slot by itself. */
struct ring_slot {
	uint64_t tail, lost;
	uint32_t raw_tid; /* as the process sees it */
	uint32_t tid;
	bool guessed; /* it is the process's, as no other one is known */
	unsigned int announced; /* sessions that got its THREAD */
};

struct ring_kernel {
	uint32_t sequence, tid;
	struct trace_ring_kernel record;
};

struct shim_ring {
	LIST_ENTRY(shim_ring) link;
	struct trace_table *table;
	pid_t pid;
	uint64_t start_time;
	uint64_t id;
	uint64_t number; /* of its struct process */
	uid_t uid;
	struct shim_connection *connections[RING_CONNECTIONS_MAX];
	unsigned int n_connections;
	int fd;
	uint64_t size;
	struct trace_ring *header;
	uint64_t slots_offset;
	uint32_t slot_count, slot_bytes,
		slot_stride; /* what was written into the header; it is not believed */
	bool tsc;
	bool foreign; /* it is in a pid namespace of its own */
	unsigned int sessions; /* mask; 0: it is over */
	bool retired; /* the process gets another one; what is in this one is still read */
	/* what it records: written into the header, where it gets more with each session that joins
	 */
	uint64_t functions_wanted[TRACE_FUNCTION_MAX / 64];
	uint32_t flags;
	uint64_t min_duration; /* nanoseconds */
	uint64_t sample;
	uint64_t random; /* for sessions with a sampling of their own */
	struct ring_slot *slots;
	uint32_t n_seen; /* slots that were ever used lie below */
	uint32_t next; /* slot to begin with */
	uint64_t homeless;
	uint64_t unread[TRACE_SESSIONS_MAX]; /* launches without times, when the session joined */
	uint64_t last_scan; /* of all slots */
	struct number_map names; /* id -> struct trace_name, as it is sent */
	size_t names_bytes;
	uint16_t functions[TRACE_FUNCTION_MAX -
			   TRACE_FUNCTION_DYNAMIC]; /* its number of a dynamic function -> ours */
	struct gpu_clock *clocks[SHIM_DEVICES_MAX];
	struct ring_kernel *pending; /* kernels of devices without a clock pair yet */
	size_t n_pending;
	uint32_t *tids; /* pairs: as it sees them, as we do; of a foreign one */
	size_t n_tids;
	uint64_t tids_read; /* uv_now() */
	uint64_t tids_next; /* CLOCK_MONOTONIC: when they may be read again */
};

/* The sessions that a ring is for, from number *i on; NULL: there are no more. */
static inline struct trace_session *ring_session(const struct shim_ring *ring, unsigned int *i) {
	while (*i < TRACE_SESSIONS_MAX && !(ring->sessions >> *i & 1))
		++*i;
	return *i < TRACE_SESSIONS_MAX ? ring->table->sessions[*i] : NULL;
}

/* shim-ring.c: a thread as we see it. */
uint32_t ring_tid(struct shim_ring *ring, uint32_t raw);

/* shim-record.c: a record of a slot, copied and of that size. now: of the ring's clock. NULL, or
 * one line: it is a lie. */
const char *ring_take(struct shim_ring *ring, struct ring_slot *slot,
		      const struct trace_ring_record *record, uint64_t now);
/* Tells a session what it must know of the past of a ring that it joins. */
void ring_tell(const struct shim_ring *ring, struct trace_session *session);
/* Kernels that still wait are lost. */
void ring_drop_pending(struct shim_ring *ring);
