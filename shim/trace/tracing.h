/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tracing: calls of the application go to the daemon's memory (proto/trace-ring.h). trace.c
 * decides whether there is a trace of this process (a session) and begins it; trace-session.c keeps
 * account of its threads and ends it; trace-call.c is what trace_call in trampoline.S calls;
 * trace-ring.c writes records; trace-name.c names kernels.
 *
 * Of nested calls only the outermost is the application's: the driver may call itself through our
 * exports, and so do our own wrappers with what they cause. Nested are calls of the same thread
 * whose frame lies below that of a call that is not over.
 *
 * No call waits, but those that ask the daemon, once, and for its deadline at most, and those of
 * other threads meanwhile, for a part of a second. The daemon's memory is used between
 * trace_enter() and trace_leave() alone. It is unmapped when no thread is between them, by the
 * last that leaves.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "shim/interest/interest-page.h"
#include "proto/trace-ring.h"
#include "proto/trace.h"
#include "trace-frame.h"

/*
 * The session, as of its begin, and what is recorded in it as of the last trace_follow(): what else
 * the daemon changes later is not looked at.
 */
struct trace_session {
	struct trace_ring *ring;
	uint64_t size; /* of the mapping */
	uint8_t *slots;
	uint32_t flags, clock;
	uint32_t slot_count, slot_bytes, slot_stride;
	uint64_t min_duration, sample;
	uint64_t started; /* CLOCK_MONOTONIC in nanoseconds */
	uint64_t functions[TRACE_FUNCTION_MAX / 64];
	char cupti[TRACE_RING_PATH_MAX];
};

extern struct trace_session trace_session __attribute__((visibility("hidden")));

/*
 * Code outside a session may read flags, clock, sample, min_duration and functions, perhaps at the
 * moment when they become another session's. Then it acts for a call of the earlier session and
 * writes nothing any more.
 */
static inline bool trace_flag(uint32_t flag) {
	return __atomic_load_n(&trace_session.flags, __ATOMIC_RELAXED) & flag;
}

struct trace_user;

/* What this thread has to do with it. */
struct trace_self {
	struct trace_frame *outermost; /* of the call that it is in */
	uint64_t session; /* of what follows */
	struct trace_slot *slot; /* NULL: it got none */
	uint8_t *data;
	uint64_t head, tail; /* of the slot; tail: as last seen */
	uint32_t index; /* of the slot */
	struct trace_user *user; /* the thread's, from its first record to its end */
	uint32_t sequence; /* of the last call */
	uint32_t homeless; /* how often it looked for a slot in vain */
	uint32_t guest; /* how often it is inside without one: by itself, and in signal handlers */
	uint32_t tid; /* 0: not asked yet */
	bool claiming; /* a signal handler keeps out of it */
	bool passes; /* the call that begins: trace_look() did not wait for the answer */
	bool looking; /* in trace_look(): a signal handler does not wait for that */
	uint64_t named; /* bit i: the spare function i was named */
	uint64_t random; /* of sampling; 0: none yet */
};

extern __thread struct trace_self trace_mine
	__attribute__((visibility("hidden"), tls_model("initial-exec")));

/*
 * Whether a thread uses the daemon's memory. One writer, a cache line for each thread. A thread has
 * the same one in all sessions: a thread that is late with an old session does not touch what
 * another has in the new one.
 */
struct trace_user {
	_Alignas(64) bool inside;
	bool taken;
};

#define TRACE_USERS_MAX 1024

extern struct trace_user trace_users[TRACE_USERS_MAX] __attribute__((visibility("hidden")));
extern bool trace_ending
	__attribute__((visibility("hidden"))); /* set until all threads have left the session, whose
						  memory is unmapped then */
extern bool trace_fenced __attribute__((visibility("hidden"))); /* there is no membarrier */

/*
 * The number of the session, or 0. In memory that a forked child finds zeroed, however it came
 * about.
 */
extern const uint64_t *trace_number __attribute__((visibility("hidden")));

static inline uint64_t trace_session_number(void) {
	return __atomic_load_n(__atomic_load_n(&trace_number, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE);
}

/*
 * Called when an interest page has changed: begins a session if a trace applies to this process.
 * Returns its number, or 0. index: the function that is called.
 */
uint64_t trace_look(uint32_t index);

/*
 * A call is made, or has not been recorded, while it is not known whether there will be a session.
 * If there is, it counts as lost.
 */
void trace_pass(uint32_t index);

/* Does the session record calls of this function, but for what sampling leaves out? */
static inline bool trace_wants(uint32_t index) {
	unsigned number =
		index < FUNCTION_COUNT ? function_rows[index].number : TRACE_FUNCTION_DYNAMIC;

	return __atomic_load_n(&trace_session.functions[number / 64], __ATOMIC_RELAXED) >>
		       number % 64 &
	       1;
}

/* Generations of the pages when they were last looked at, in a session. */
extern uint64_t trace_seen[2] __attribute__((visibility("hidden")));

static inline bool trace_page_changed(void) {
	for (unsigned i = 0; i < 2; i++)
		if (interest_trace_generation(i) !=
		    __atomic_load_n(&trace_seen[i], __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Reads again what to record. Call inside a session. */
void trace_follow(void);

/* The session is over; another thread may have ended it. */
void trace_end_session(uint64_t number);

/* Unmaps the memory if trace_ending is set and no thread is inside. */
void trace_reap(void);

/*
 * Around the use of the daemon's memory by a thread without a slot. False: that session is over, or
 * there is none.
 */
bool trace_enter_guest(uint64_t number);
void trace_leave_guest(void);

/* Calls of this thread are ours: they are never recorded. */
void trace_ignore_thread(void);

/*
 * trace-ancestor.c: the CMD of a trace that this process descends from, as the program's
 * environment said when it began; 0: none.
 */
uint32_t trace_ancestor_told(void);

/* trace-ring.c. Call all of these inside a session, in the thread that has the slot. */

static inline void trace_fence(void) {
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&trace_fenced, __ATOMIC_RELAXED), 0))
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void trace_leave(struct trace_self *thread) {
	__atomic_store_n(&thread->user->inside, false, __ATOMIC_RELEASE);
	trace_fence();
	if (__builtin_expect(__atomic_load_n(&trace_ending, __ATOMIC_RELAXED), 0))
		trace_reap();
}

/* False: the session is over, or this is a signal handler that came while the thread is inside. */
static inline bool trace_enter(struct trace_self *thread, uint64_t number) {
	if (__builtin_expect(thread->user->inside, 0))
		return false;
	__atomic_store_n(&thread->user->inside, true, __ATOMIC_RELAXED);
	trace_fence();
	if (__builtin_expect(trace_session_number() == number, 1))
		return true;
	trace_leave(thread);
	return false;
}

/*
 * Gives the thread a slot of this session, if one is free. Returns whether it has one. Call outside
 * a session.
 */
bool trace_claim(struct trace_self *thread, uint64_t number);

/*
 * Both, for a thread that writes a record which is no call's; then trace_leave(). False: there is
 * no slot, or as trace_enter().
 */
static inline bool trace_claim_and_enter(struct trace_self *thread, uint64_t number) {
	return (thread->session == number || trace_claim(thread, number)) && thread->slot &&
	       trace_enter(thread, number);
}

/* Room for a record of `size` bytes, which lies there when trace_write() was called. NULL: lost. */
void *trace_reserve(struct trace_self *thread, uint32_t size);
static inline void trace_write(struct trace_self *thread, uint32_t size) {
	thread->head += size;
	__atomic_store_n(&thread->slot->head, thread->head, __ATOMIC_RELEASE);
	/* the daemon has read where the next ones will be: it takes a while to have that back */
	__builtin_prefetch(thread->data + ((thread->head + 128) & (trace_session.slot_bytes - 1)),
			   1);
	__builtin_prefetch(thread->data + ((thread->head + 192) & (trace_session.slot_bytes - 1)),
			   1);
}

/* A record of this thread is lost. */
void trace_lose(struct trace_self *thread);

/* The same for a thread without a slot. Call outside a session. */
void trace_lose_homeless(uint64_t number);

/* One more launch, or (-1) one less, whose KERNEL is not written yet. */
static inline void trace_count_unread(int64_t by) {
	__atomic_add_fetch(&trace_session.ring->unread, (uint64_t)by, __ATOMIC_RELAXED);
}

/* False: there was no room. */
bool trace_write_note(struct trace_self *thread, const char *text);
bool trace_write_name(struct trace_self *thread, uint32_t kind, uint64_t id, const char *name);

/* The memory that has just been mapped says what it should, and is the session's. */
bool trace_adopt(struct trace_ring *ring, uint64_t size);

/* trace-name.c: a kernel was launched. Call inside a session, before the call is written. */
void trace_name_launched(struct trace_self *thread, const struct trace_frame *frame);
/* Another call that succeeded, recorded or not: perhaps handles have come or gone. */
void trace_name_changed(struct trace_self *thread, const struct trace_frame *frame);
/* In a new session nothing was named. */
void trace_name_forget(void);
/* Has this function to do with names at all? */
extern const uint8_t trace_name_roles[DRIVER_FUNCTION_COUNT] __attribute__((visibility("hidden")));

/* trace-stack.c: return addresses of the call's caller, innermost first; returns how many. */
#define TRACE_STACK_MAX 32
#define TRACE_STACK_ARGUMENT 255 /* of the extra that has them */
void trace_stack_begin(void);
unsigned trace_stack(const struct trace_frame *frame, uint64_t addresses[TRACE_STACK_MAX]);

static inline void trace_pause(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

#if defined(__x86_64__)
static inline uint64_t trace_ticks(void) {
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}
#else
static inline uint64_t trace_ticks(void) {
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
}
#endif

/*
 * Around calls of the driver, and of libc's unwinder, that the application did not make: they may
 * set errno, and be where a cancelled thread ends.
 */
struct trace_hush {
	int error, cancel;
};

void trace_hush(struct trace_hush *hush);
void trace_unhush(const struct trace_hush *hush);

/* This thread's. */
uint32_t trace_tid(void);

static inline uint64_t trace_now(void) {
	uint32_t clock = __atomic_load_n(&trace_session.clock, __ATOMIC_RELAXED);

	return __builtin_expect(clock == TRACE_RING_TSC, 1) ? trace_ticks() : monotonic_now();
}
