/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How the shim hands recorded calls to the daemon: one memfd for each traced process. The daemon
 * makes and seals it (SHRINK|GROW|SEAL); both map it.
 *
 * While the ring is in use, the daemon may ask for more to be recorded. It then writes the header's
 * flags (but not those of TRACE_RING_AT_ONCE), min_duration, sample and functions, and changes the
 * generation of traces in the interest page (interest.h); the shim then reads the header again.
 *
 * Layout: a header, then slot_count slots at slots_offset, slot_stride bytes apart. A thread claims
 * a slot at its first recorded call. Only that thread writes to it, and only the daemon reads it.
 * No thread waits: a record that finds no room is counted in `lost`. The daemon trusts nothing that
 * it reads here.
 *
 * A slot's data is a ring of slot_bytes (a power of two). head and tail count bytes and never wrap.
 * A record lies at head & (slot_bytes - 1), is a multiple of 8 bytes, and never crosses the end (a
 * PAD fills it). The producer writes the record, then stores head (release). The consumer loads
 * head (acquire), reads, then stores tail (release).
 */

#include <stdbool.h>
#include <stdint.h>

#define TRACE_RING_MAGIC UINT32_C(0x52525447) /* "GTRR" */
#define TRACE_RING_VERSION 2
#define TRACE_RING_RECORD_MAX 1024 /* bytes */
#define TRACE_RING_SLOTS_MAX 256
#define TRACE_RING_PATH_MAX 256
#define TRACE_RING_STALE_NS                                                                      \
	UINT64_C(5000000000) /* if the heartbeat is older than this (5 s), nobody reads any more \
				and the shim stops */

enum trace_ring_flags {
	TRACE_RING_EXTRAS = 1 << 0, /* also record what pointer arguments point to */
	TRACE_RING_GPU = 1 << 1, /* time kernels on the GPU */
	TRACE_RING_ERRORS = 1 << 2, /* record only calls that fail */
	TRACE_RING_STACKS = 1 << 3,
	TRACE_RING_CUPTI = 1 << 4, /* with TRACE_RING_GPU: time by CUPTI where possible; else by
				      events, and a NOTE says why */
	TRACE_RING_REPLACED =
		1 << 5, /* set before `enabled` is cleared: the process will get another ring, and
			   counts there what it does not record until then */
};

/* Flags that can be set only when the ring is made. */
#define TRACE_RING_AT_ONCE (TRACE_RING_GPU | TRACE_RING_CUPTI)

enum trace_ring_clock {
	TRACE_RING_TSC = 0, /* times are raw counts of rdtsc (on aarch64 cntvct_el0); the daemon
			       converts them to nanoseconds */
	TRACE_RING_MONOTONIC =
		1, /* the machine's TSC is not invariant: CLOCK_MONOTONIC in nanoseconds */
};

struct trace_ring {
	uint32_t magic;
	uint32_t version;
	uint32_t enabled; /* 0: the shim stops recording for good and unmaps the ring as soon as it
			     can */
	uint32_t flags; /* enum trace_ring_flags */
	uint32_t clock; /* enum trace_ring_clock */
	uint32_t slot_count;
	uint32_t slot_bytes;
	uint32_t slot_stride;
	uint64_t slots_offset;
	uint64_t min_duration; /* in units of the clock; shorter calls are left out */
	uint64_t sample; /* one in so many calls is recorded, at random (trace_is_sampled()); 0, 1:
			    all */
	uint64_t heartbeat; /* written by the daemon whenever it reads: CLOCK_MONOTONIC in
			       nanoseconds */
	uint64_t homeless; /* written by the shim: calls that were lost because there was no free
			      slot */
	uint64_t unread; /* written by the shim: launches that are timed by events and have no
			    KERNEL record yet; for those that remain, the end is unknown */
	uint64_t taken; /* written by the shim: 1 once the process records here; still 0 at the end:
			   the process did not get the ring in time */
	uint64_t reserved[2];
	uint64_t functions[4096 / 64]; /* bit n: calls of function n (trace.h) are recorded; all
					  dynamic functions share one bit, TRACE_FUNCTION_DYNAMIC */
	char cupti[TRACE_RING_PATH_MAX]; /* path of libcupti.so; empty: search where toolkits and
					    wheels install it */
};

enum trace_slot_state {
	TRACE_SLOT_FREE = 0,
	TRACE_SLOT_USED = 1,
	TRACE_SLOT_LEFT =
		2, /* its thread has ended; the daemon makes it FREE after it has read everything */
};

struct trace_slot {
	uint32_t state; /* enum trace_slot_state; a thread claims by compare and exchange */
	uint32_t tid; /* as the process sees it */
	uint64_t head; /* bytes written */
	uint64_t lost; /* records */
	uint8_t pad0[40];
	uint64_t tail; /* bytes read */
	uint8_t pad1[56];
	/* slot_bytes of data follow */
};

_Static_assert(sizeof(struct trace_ring) == 104 + 512 + TRACE_RING_PATH_MAX, "both sides agree");
_Static_assert(sizeof(struct trace_slot) == 128, "both sides agree");

enum trace_ring_type {
	TRACE_RING_PAD = 0, /* the reader skips `size` bytes */
	TRACE_RING_CALL = 1,
	TRACE_RING_NAME = 2,
	TRACE_RING_KERNEL = 3,
	TRACE_RING_CLOCK_PAIR = 4,
	TRACE_RING_NOTE = 5,
};

struct trace_ring_record {
	uint16_t size; /* multiple of 8, with this header */
	uint8_t type; /* enum trace_ring_type */
	uint8_t flags; /* the flags of the struct in trace.h */
	uint32_t sequence; /* for calls: as in trace.h */
};

struct trace_ring_call {
	struct trace_ring_record record;
	uint64_t start;
	uint64_t end;
	int32_t result;
	uint16_t function;
	uint8_t n_arguments;
	uint8_t n_extras;
	uint64_t words[]; /* as in trace.h, with extras; with TRACE_RING_STACKS the last extra has
			     argument 255: return addresses, 8 bytes each */
};

/* A name of kind FUNCTION or KERNEL (enum trace_name_kind). */
struct trace_ring_name {
	struct trace_ring_record record;
	uint32_t kind;
	uint32_t reserved; /* 0 */
	uint64_t id;
	char name[]; /* NUL-padded to the record's end; long names are cut */
};

enum trace_ring_kernel_flags {
	/* Start and end are nanoseconds of CLOCK_MONOTONIC. Without this flag they are of the GPU's
	 * clock, as in CLOCK_PAIR. */
	TRACE_RING_KERNEL_HOST = 1 << 0,
};

struct trace_ring_kernel {
	struct trace_ring_record record; /* sequence: that of the launching call */
	uint32_t tid; /* the thread that launched it; another thread may read the times */
	uint32_t device;
	uint64_t start;
	uint64_t end;
	uint64_t context;
	uint64_t stream;
	uint64_t function; /* 0: a graph or a copy */
	uint32_t error; /* nanoseconds by which each of start and end may be off, in addition to the
			   error of the clocks */
	uint32_t reserved; /* 0 */
};

/* The GPU's clock was `gpu` at a moment between `before` and `after` of the ring's clock. */
struct trace_ring_clock_pair {
	struct trace_ring_record record;
	uint32_t device;
	uint32_t reserved; /* 0 */
	uint64_t gpu;
	uint64_t before;
	uint64_t after;
};

/* One line for readers of the trace of this process: what cannot be recorded, and why. */
struct trace_ring_note {
	struct trace_ring_record record;
	char text[]; /* NUL-padded to the record's end */
};

/*
 * Whether to record a call if one in `sample` calls is recorded. Each call is chosen at random:
 * taking every Nth call would always hit the same function in a program that calls its functions in
 * turn. *random is state of the caller, with any value at first.
 */
static inline bool trace_is_sampled(uint64_t *random, uint64_t sample) {
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 32) * sample >> 32 == 0;
}
