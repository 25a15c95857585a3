/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Times of kernels and copies by CUPTI, through libgpuprobe-cupti.so (cupti-source.h). A call that CUPTI
 * knows has a number there, which it tells within the call; behind it the number is put into a
 * table, with the record of the call, and what ran on the GPU finds it there. The table is written
 * by all threads, each place by one at a time, and read by the one that flushes.
 *
 * That is a thread of ours, which exists while there is a session with such times. It sees the
 * session's end, too, and has CUPTI leave the process then. When the process exits, what is known
 * by then is written by the thread that exits.
 *
 * What CUPTI itself calls of the driver is not the application's.
 */

#include "trace-cupti.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "beside.h"
#include "cupti-source.h"
#include "helper-thread.h"
#include "interest.h"
#include "sass-start.h"

#define LAUNCHES (UINT32_C(1) << 16) /* that have no time yet: the latest */
#define NAMES 4096 /* kernels of graphs whose name was written */
#define FLUSH_NS 50000000
#define EXIT_NS 500000000
#define ERROR_NS 1000 /* CUPTI does not tell how well it knows the GPU's clock */
#define STARTING UINT64_MAX /* as a session: it will have its number soon */
#define OURS ((struct trace_frame *)UINTPTR_MAX) /* as outermost: calls of this thread are ours */

struct launch {
	uint32_t correlation; /* 0: it is being written */
	uint32_t tid, sequence;
	bool timed; /* or nobody waits for it */
	uint64_t session;
	uint64_t function, stream, context;
};

static const struct cupti_source *source;
static struct launch *launches;
static uint64_t forgotten; /* launches without a time whose place another took */
static bool telling; /* the thread that flushes is inside; with the mutex */
static pid_t owner; /* the process that may use CUPTI; 0: none does yet */
static bool registered; /* for the end of the process */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* around the next two, and flushes */
static uint64_t wanted; /* session; 0: none */
static __thread bool forking; /* this thread holds it till it has forked */
static bool running; /* the thread */

static uint64_t names[NAMES]; /* of the session that follows; both with the mutex */
static uint64_t names_session;

/* ---- what CUPTI tells ---------------------------------------------------------------------------- */

static void called(uint32_t correlation, driver_handle context)
{
	struct trace_frame *frame = trace_mine.outermost;

	if (!frame || frame == OURS || !frame->recorded || frame->correlation)
		return;
	frame->correlation = correlation;
	frame->context = context;
}

void trace_cupti_launched(const struct trace_frame *frame, const struct gpu_launch *launch,
			  uint32_t sequence)
{
	struct launch *place = &launches[frame->correlation % LAUNCHES];

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
	place->context = (uint64_t)frame->context;
	__atomic_store_n(&place->correlation, frame->correlation, __ATOMIC_RELEASE);
}

/* The call that caused what ran; false: it is not recorded, or long forgotten. */
static bool find_launch(uint32_t correlation, struct launch *found)
{
	struct launch *place = &launches[correlation % LAUNCHES];

	if (!correlation || __atomic_load_n(&place->correlation, __ATOMIC_ACQUIRE) != correlation)
		return false;
	*found = *place;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&place->correlation, __ATOMIC_RELAXED) != correlation)
		return false;
	__atomic_store_n(&place->timed, true, __ATOMIC_RELAXED);
	return true;
}

/* The number of a kernel that has a name only; the name is written when it is first seen. */
static uint64_t number_of_name(struct trace_self *thread, const char *name)
{
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
static void ran(const struct cupti_work *work)
{
	struct trace_self *thread = &trace_mine;
	struct trace_ring_kernel *record;
	struct launch launch;
	uint64_t function;

	if (!telling || !find_launch(work->correlation, &launch) || launch.session != thread->session)
		return;
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

static void lost(uint64_t count)
{
	if (telling)
		__atomic_add_fetch(&trace_mine.slot->lost, count, __ATOMIC_RELAXED);
}

static void trouble(const char *line)
{
	if (telling && !trace_write_note(&trace_mine, line))
		trace_lose(&trace_mine);
}

static const struct cupti_events events = {
	.clock = trace_monotonic,
	.called = called,
	.ran = ran,
	.lost = lost,
	.trouble = trouble,
};

/* ---- the thread ---------------------------------------------------------------------------------- */

/* Writes what is known into the memory of the session. False: it is over, or nobody reads. */
static bool flush(uint64_t number, bool all)
{
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

static void *run(void *argument)
{
	const struct timespec pause = { .tv_nsec = FLUSH_NS };
	bool on = true;

	trace_mine.outermost = OURS;
	prctl(PR_SET_NAME, "gpuprobe");
	while (on) {
		uint64_t number;

		nanosleep(&pause, NULL);
		pthread_mutex_lock(&mutex);
		number = wanted;
		if (number && number != STARTING && !flush(number, false)) {
			source->stop();
			number = wanted = 0;
		}
		running = on = number != 0;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

/* The mutex, for a thread of the application: bounded. */
static bool lock(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += EXIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until) == 0;
}

/*
 * The process exits: what is known by now is written, and the thread leaves CUPTI alone, which ends
 * soon, too.
 */
static void at_exit(void)
{
	struct trace_frame *outermost = trace_mine.outermost;

	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) != getpid() || !lock())
		return;
	trace_mine.outermost = OURS;
	if (wanted && wanted != STARTING)
		flush(wanted, true);
	wanted = 0;
	trace_mine.outermost = outermost;
	pthread_mutex_unlock(&mutex);
}

/* ---- sessions ------------------------------------------------------------------------------------ */

/* Finds libgpuprobe-cupti.so; returns why not, or NULL. */
static const char *load(void)
{
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
		source = table;
		return NULL;
	case BESIDE_NO_PLACE:
		return "the shim does not know where it lies itself";
	case BESIDE_MISSING:
		return "there is no " CUPTI_LIBRARY " beside the shim";
	default:
		return CUPTI_LIBRARY " is of another version";
	}
}

static const char *start(const uint32_t *calls, uint32_t count, bool copies)
{
	const struct cupti_wish wish = {
		.path = trace_session.cupti,
		.calls = calls,
		.call_count = count,
		.copies = copies,
	};
	const char *reason;

	if (owner && owner != getpid())
		return "this process was forked by one that used CUPTI";
	if (sass_claims_process())
		return "the SASS engine is in this process, and NVIDIA's tools exclude each other";
	reason = load();
	if (reason)
		return reason;
	if (!lock())
		return "CUPTI is still being detached from the process";
	if (!running)
		running = helper_thread(run);
	reason = running ? source->start(&wish, &events) : "no thread can be made";
	wanted = reason ? 0 : STARTING;
	pthread_mutex_unlock(&mutex);
	if (!reason) {
		__atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
		if (!registered)
			registered = atexit(at_exit) == 0;
	}
	return reason;
}

const char *trace_cupti_begin(const uint32_t *calls, uint32_t count, bool copies)
{
	static char line[320];
	struct trace_frame *outermost = trace_mine.outermost;
	const char *reason;

	trace_mine.outermost = OURS;
	reason = start(calls, count, copies);
	trace_mine.outermost = outermost;
	if (!reason)
		return NULL;
	snprintf(line, sizeof(line), "kernels are timed by events, not by CUPTI: %.240s", reason);
	return line;
}

void trace_cupti_began(uint64_t number)
{
	if (!lock()) /* a thread forks, and waits for what we have: no times then */
		return;
	wanted = number;
	pthread_mutex_unlock(&mutex);
}

void trace_cupti_forking(void)
{
	if (!forking) /* a signal handler may fork in here */
		forking = __atomic_load_n(&owner, __ATOMIC_RELAXED) == getpid() && lock();
}

void trace_cupti_forked(bool in_child)
{
	if (forking)
		pthread_mutex_unlock(&mutex);
	forking = false;
	if (!in_child)
		return;
	if (source)
		source->forked();
	pthread_mutex_init(&mutex, NULL);
	wanted = 0;
	running = false;
}
