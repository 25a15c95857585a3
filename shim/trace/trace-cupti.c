/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Times of kernels and copies by CUPTI, through libgpuprobe-cupti.so (cupti-source.h). A call that
 * CUPTI knows has a number there, which it tells within the call; behind it the number is put into
 * a table, with the record of the call, and what ran on the GPU finds it there. The table is
 * written by all threads, each place by one at a time, and read by the one that flushes.
 *
 * That is a thread of ours, which exists while there is a session with such times. It also loads
 * CUPTI and starts it, because a thread of the application may have too little stack for that. It
 * sees the session's end, and has CUPTI leave the process then. When the process exits, it writes
 * what is known by then. A thread that begins a session, or exits, waits for it for a bounded time:
 * a signal handler may have interrupted what our thread waits for.
 *
 * What CUPTI itself calls of the driver is not the application's.
 */

#include "trace-cupti.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shim/base/beside.h"
#include "cupti-source.h"
#include "shim/base/deadline.h"
#include "shim/base/helper-thread.h"
#include "proto/interest.h"
#include "shim/engine/sass-start.h"

#define LAUNCHES (UINT32_C(1) << 16) /* that have no time yet: the latest */
#define NAMES 4096 /* kernels of graphs whose name was written */
#define STACK_SIZE (1024 * 1024) /* CUPTI is loaded and started there */
#define FLUSH_NS 50000000
#define START_NS UINT64_C(2000000000)
#define EXIT_NS 500000000
#define LOCK_MS 500
#define ERROR_NS 1000 /* CUPTI does not tell how well it knows the GPU's clock */

/* What the thread is to do: a session's number, which is below all of these but the first, or */
#define NOTHING UINT64_C(0) /* there is no thread */
#define ASKED UINT64_MAX /* to start CUPTI, */
#define TAKEN (UINT64_MAX - 1) /* which it is at, */
#define GIVEN_UP (UINT64_MAX - 2) /* and no thread waits for any more; */
#define REFUSED (UINT64_MAX - 3) /* it could not, and says why in `answer`; there is no thread; */
#define STARTED (UINT64_MAX - 4) /* it has, and the session will have its number soon; */
#define FINISHING \
	(UINT64_MAX - 5) /* to write what is known of the session `last`: the process exits */

struct launch {
	uint32_t correlation; /* 0: it is being written */
	uint32_t tid, sequence;
	bool timed; /* or no thread waits for it */
	bool counted; /* in the ring's `unread`, till it is timed */
	uint64_t session;
	uint64_t function, stream, context;
};

static const struct cupti_source *source;
static struct launch *launches;
static uint64_t forgotten; /* launches without a time whose place another took */
static bool telling; /* the thread is inside */
static pid_t owner; /* the process that may use CUPTI; 0: none does yet; -1: not this one */
static bool registered; /* for the end of the process */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* its owner is in CUPTI, or forks */
static __thread bool forking; /* this thread holds it till it has forked */

/* What CUPTI has told of the call that this thread is in. It may have been left by a longjmp: there
 * is no frame then. */
static __thread struct {
	const struct trace_frame *frame; /* to compare with; NULL: the call is not recorded */
	uint32_t correlation; /* 0: none yet */
	driver_handle context;
} mine;

static uint64_t wanted; /* as above */
static uint32_t changes; /* of it */
static uint64_t last;

/* What is wanted of CUPTI: the thread that asks writes it, ours reads it from TAKEN on. */
static uint32_t wished_calls[FUNCTION_COUNT];
static char wished_path[TRACE_RING_PATH_MAX];
static struct cupti_wish wish = { .path = wished_path, .calls = wished_calls };
static char answer[256];

static uint64_t names[NAMES]; /* of the session that follows; the thread's */
static uint64_t names_session;

/* ---- what CUPTI tells
 * ---------------------------------------------------------------------------- */

static void called(uint32_t correlation, driver_handle context) {
	if (!mine.frame || mine.correlation)
		return;
	mine.context = context;
	mine.correlation = correlation;
}

void trace_cupti_before(const struct trace_frame *frame) {
	mine.frame = frame;
	mine.correlation = 0;
}

bool trace_cupti_has(const struct trace_frame *frame) {
	bool has = mine.frame == frame && mine.correlation;

	mine.frame = NULL;
	return has;
}

void trace_cupti_launched(struct trace_self *thread, const struct trace_frame *frame,
			  const struct gpu_launch *launch, uint32_t sequence) {
	struct launch *place = &launches[mine.correlation % LAUNCHES];

	if (place->correlation && !__atomic_load_n(&place->timed, __ATOMIC_RELAXED) &&
	    place->session == frame->session)
		__atomic_add_fetch(&forgotten, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&place->correlation, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	place->tid = trace_tid();
	place->sequence = sequence;
	__atomic_store_n(&place->timed, false, __ATOMIC_RELAXED);
	place->session = frame->session;
	place->function = launch->function;
	place->stream = launch->stream;
	place->context = (uint64_t)mine.context;
	place->counted = trace_claim_and_enter(thread, frame->session);
	if (place->counted) {
		trace_count_unread(1);
		trace_leave(thread);
	}
	__atomic_store_n(&place->correlation, mine.correlation, __ATOMIC_RELEASE);
}

/* The call that caused what ran; false: it is not recorded, or long forgotten. */
static bool find_launch(uint32_t correlation, struct launch *found) {
	struct launch *place = &launches[correlation % LAUNCHES];

	if (!correlation || __atomic_load_n(&place->correlation, __ATOMIC_ACQUIRE) != correlation)
		return false;
	*found = *place;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&place->correlation, __ATOMIC_RELAXED) != correlation)
		return false;
	found->timed = __atomic_exchange_n(&place->timed, true, __ATOMIC_RELAXED);
	return true;
}

/* The number of a kernel that has a name only; the name is written when it is first seen. */
static uint64_t number_of_name(struct trace_self *thread, const char *name) {
	uint64_t number = interest_hash(name) | UINT64_C(1) << 63; /* no address in a process */
	uint64_t *place = &names[number % NAMES];

	if (names_session != thread->session)
		memset(names, 0, sizeof(names));
	names_session = thread->session;
	if (*place != number && trace_write_name(thread, TRACE_NAME_KERNEL, number, name))
		*place = number;
	return number;
}

/* In the thread that flushes, which is inside. */
static void ran(const struct cupti_work *work) {
	struct trace_self *thread = &trace_mine;
	struct trace_ring_kernel *record;
	struct launch launch;
	uint64_t function;

	if (!telling || !find_launch(work->correlation, &launch) ||
	    launch.session != thread->session)
		return;
	if (launch.counted && !launch.timed)
		trace_count_unread(-1);
	function = launch.function;
	if (!function && work->name && work->name[0])
		function = number_of_name(thread, work->name);
	record = trace_reserve(thread, sizeof(*record));
	if (!record) {
		trace_lose(thread);
		return;
	}
	*record = (struct trace_ring_kernel){
		.record = {
			.size = sizeof(*record),
			.type = TRACE_RING_KERNEL,
			.flags = TRACE_RING_KERNEL_HOST,
			.sequence = launch.sequence,
		},
		.tid = launch.tid,
		.device = work->device,
		.start = work->start,
		.end = work->end,
		.context = launch.context,
		.stream = launch.stream,
		.function = function,
		.error = ERROR_NS,
	};
	trace_write(thread, sizeof(*record));
}

static void lost(uint64_t count) {
	if (!telling)
		return;
	__atomic_add_fetch(&trace_mine.slot->lost, count, __ATOMIC_RELAXED);
	trace_count_unread(-(int64_t)count); /* they have no times, but are told as lost */
}

static void trouble(const char *line) {
	if (telling && !trace_write_note(&trace_mine, line))
		trace_lose(&trace_mine);
}

static const struct cupti_events events = {
	.clock = monotonic_now,
	.called = called,
	.ran = ran,
	.lost = lost,
	.trouble = trouble,
};

/* ---- what is wanted
 * ------------------------------------------------------------------------------ */

static uint64_t now_wanted(void) {
	return __atomic_load_n(&wanted, __ATOMIC_ACQUIRE);
}

static bool is_session(uint64_t value) {
	return value != NOTHING && value < FINISHING;
}

/* False: it is not `from` any more. */
static bool change(uint64_t from, uint64_t to) {
	if (!__atomic_compare_exchange_n(&wanted, &from, to, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return false;
	__atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	return true;
}

/* Waits while that is wanted, till then (of CLOCK_MONOTONIC) at most. */
static void wait_while(uint64_t value, uint64_t until) {
	uint32_t seen = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
	uint64_t now = monotonic_now();

	while (now_wanted() == value && now < until) {
		struct timespec left = {
			.tv_sec = (time_t)((until - now) / 1000000000),
			.tv_nsec = (long)((until - now) % 1000000000),
		};

		syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
		seen = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
		now = monotonic_now();
	}
}

/* ---- the thread
 * ---------------------------------------------------------------------------------- */

/* Writes what is known into the memory of the session. False: it is over, or the daemon does not
 * read. */
static bool flush(uint64_t number, bool all) {
	struct trace_self *thread = &trace_mine;
	bool on;

	if ((thread->session != number || !thread->slot) && !trace_claim(thread, number))
		return trace_session_number() == number; /* no slot is free */
	if (!trace_enter(thread, number))
		return false;
	on = __atomic_load_n(&trace_session.ring->enabled, __ATOMIC_RELAXED);
	if (on) {
		telling = true;
		source->flush(all);
		lost(__atomic_exchange_n(&forgotten, 0, __ATOMIC_RELAXED));
		telling = false;
	}
	trace_leave(thread);
	if (!on)
		trace_end_session(number);
	return on;
}

/* Finds libgpuprobe-cupti.so; returns why not, or NULL. */
static const char *load(void) {
	const void *table = NULL;

	if (source)
		return NULL;
	if (!launches) {
		void *memory = mmap(NULL, LAUNCHES * sizeof(*launches), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (memory == MAP_FAILED)
			return "there is no memory";
		launches = memory;
	}
	switch (beside_load(CUPTI_LIBRARY, CUPTI_ENTRY, CUPTI_ABI, &table)) {
	case BESIDE_OK:
		__atomic_store_n(&source, table, __ATOMIC_RELEASE);
		return NULL;
	case BESIDE_NO_PLACE:
		return "the shim does not know where it lies itself";
	case BESIDE_MISSING:
		return "there is no " CUPTI_LIBRARY " beside the shim";
	default:
		return CUPTI_LIBRARY " is of another version";
	}
}

/* Starts CUPTI. Returns whether it is there, and still wanted; else the thread ends. */
static bool start(void) {
	const char *reason = load();
	bool on = false;

	if (!reason && now_wanted() == TAKEN) {
		pthread_mutex_lock(&mutex);
		reason = source->start(&wish, &events);
		on = !reason && change(TAKEN, STARTED);
		if (!reason && !on)
			source->stop();
		pthread_mutex_unlock(&mutex);
	}
	if (on)
		return true;
	snprintf(answer, sizeof(answer), "%s", reason ? reason : "");
	if (!change(TAKEN, REFUSED))
		change(GIVEN_UP, NOTHING);
	return false;
}

/* Returns whether the session goes on, or another is to begin. */
static bool follow(uint64_t number) {
	bool on;

	pthread_mutex_lock(&mutex);
	on = flush(number, false);
	if (!on)
		source->stop();
	pthread_mutex_unlock(&mutex);
	return on || !change(number, NOTHING);
}

/* Always false: the thread ends. */
static bool finish(void) {
	pthread_mutex_lock(&mutex);
	flush(__atomic_load_n(&last, __ATOMIC_RELAXED), true);
	pthread_mutex_unlock(&mutex);
	change(FINISHING, NOTHING);
	return false;
}

static void *run(void *argument) {
	bool on = true;

	trace_ignore_thread();
	prctl(PR_SET_NAME, "gpuprobe");
	while (on) {
		uint64_t now = now_wanted();

		if (now == ASKED && change(ASKED, TAKEN)) {
			on = start();
		} else if (now == GIVEN_UP) {
			on = !change(GIVEN_UP, NOTHING);
		} else if (now == FINISHING) {
			on = finish();
		} else {
			wait_while(now, monotonic_now() + FLUSH_NS);
			if (is_session(now) && now_wanted() == now)
				on = follow(now);
		}
	}
	return NULL;
}

/*
 * The process exits: the thread writes what is known by now, and leaves CUPTI alone, which ends
 * soon, too.
 */
static void at_exit(void) {
	uint64_t number = now_wanted();

	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) != getpid() || !is_session(number))
		return;
	__atomic_store_n(&last, number, __ATOMIC_RELAXED);
	if (change(number, FINISHING))
		wait_while(FINISHING, monotonic_now() + EXIT_NS);
}

/* ---- sessions
 * ------------------------------------------------------------------------------------ */

/* Has the thread start CUPTI; makes it, if there is none. Returns why it does not, or NULL. */
static const char *ask(void) {
	uint64_t until = monotonic_now() + START_NS, before;

	do {
		before = now_wanted();
		if (before == FINISHING)
			return "the process exits";
	} while (!change(before, ASKED));
	if ((before == NOTHING || before == REFUSED) && !helper_thread(run, STACK_SIZE)) {
		change(ASKED, NOTHING);
		return "no thread can be made";
	}
	wait_while(ASKED, until);
	wait_while(TAKEN, until);
	if (change(ASKED, GIVEN_UP) || change(TAKEN, GIVEN_UP))
		return "it takes too long to load and start it";
	if (now_wanted() == STARTED)
		return NULL;
	return now_wanted() == REFUSED
		       ? answer
		       : "this process has just been forked"; /* by a signal handler */
}

static const char *begin(const uint32_t *calls, uint32_t count, bool copies) {
	pid_t used = __atomic_load_n(&owner, __ATOMIC_RELAXED);
	const char *reason;

	if (used && used != getpid())
		return "this process was forked by one that used CUPTI";
	if (sass_claims_process())
		return "the sanitizer engine is in this process, and NVIDIA's tools exclude each "
		       "other";
	if (now_wanted() == GIVEN_UP)
		return "it is still being loaded and started for a trace before";
	memcpy(wished_calls, calls, count * sizeof(*calls));
	memcpy(wished_path, trace_session.cupti, sizeof(wished_path));
	wish.call_count = count;
	wish.copies = copies;
	__atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
	reason = ask();
	if (!reason && !registered)
		registered = atexit(at_exit) == 0;
	return reason;
}

const char *trace_cupti_begin(const uint32_t *calls, uint32_t count, bool copies) {
	static char line[320];
	const char *reason = begin(calls, count, copies);

	if (!reason)
		return NULL;
	snprintf(line, sizeof(line), "kernels are timed by events, not by CUPTI: %.240s", reason);
	return line;
}

void trace_cupti_began(uint64_t number) {
	change(STARTED, number);
}

/* The mutex, for a thread of the application: bounded. */
static bool lock(void) {
	return deadline_lock(&mutex, deadline_now_ms() + LOCK_MS);
}

void trace_cupti_forking(void) {
	if (!forking) /* a signal handler may fork in here */
		forking = __atomic_load_n(&owner, __ATOMIC_RELAXED) == getpid() && lock();
}

void trace_cupti_forked(bool in_child) {
	const struct cupti_source *used = __atomic_load_n(&source, __ATOMIC_ACQUIRE);

	if (forking)
		pthread_mutex_unlock(&mutex);
	forking = false;
	if (!in_child)
		return;
	if (used)
		used->forked();
	pthread_mutex_init(&mutex, NULL);
	wanted = NOTHING;
	if (owner)
		owner = -1; /* it may have the number of its parent, in a namespace of its own */
}
