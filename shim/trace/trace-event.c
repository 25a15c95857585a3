/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When kernels and graphs ran on the GPU, by events of the driver: one behind each launch, and one
 * before it unless the stream is busy with the launch before, for then a kernel begins where that
 * one ends. What lies in the stream between launches (copies, waits) makes one necessary, too, and
 * so does a launch into the legacy stream between others, or one of them between such: they wait
 * for each other.
 *
 * Where several threads launch into one stream at a time, or into two that wait for each other, the
 * kernels of others may lie between the events of a launch: it is mixed. It ran between them, and
 * how far they are apart is its error.
 *
 * What has ended is read by later launches and behind calls that wait themselves, and nothing is
 * waited for. Only when a context or the process ends, kernels that still run are waited for,
 * END_NS at most: the driver would wait for most of them, too. The ring counts launches whose times
 * are not read yet. Those that remain there have an end that is not known: their kernels run for
 * too long, their context has failed, or the process was killed. Launches for which there are no
 * events are lost.
 *
 * Each context has events of its own, and a stream of its own. What their times are is in
 * trace-event-time.c.
 *
 * A launch that is captured is left alone. Our calls are made in the relaxed mode of captures, as a
 * capture of another thread would forbid them. After any error of a call of ours the context is
 * left alone.
 *
 * A thread waits for the lock for a bounded time: a signal handler on a stack of its own may have
 * interrupted the owner. A thread that does not get it leaves its work to the next owner.
 */

#include "trace-event-private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "lib/base/clock.h"
#include "shim/base/deadline.h"
#include "shim/driver/driver.h"

#define CONTEXTS 16
#define TIMINGS 4096
#define LOCK_MS 50 /* its owner may not have been given the processor for a while */
#define END_MS 1000 /* for the end of a context */
#define END_NS UINT64_C(500000000) /* for kernels, then */
#define POLL_NS 2000000 /* between two looks at them, at most */
#define HARVEST_EACH 16 /* launches */

static struct gpu_context contexts[CONTEXTS];
static unsigned generations;
static pthread_mutex_t mutex =
	PTHREAD_MUTEX_INITIALIZER; /* around these; generations are also read without */
static bool overlooked; /* one has ended while the lock could not be had */
static struct trace_timing *left; /* those that were to be given back then; atomic */
static unsigned other_work; /* counts it; atomic */

struct event_driver gpu;
static bool gpu_complete, looked_up;
static bool incomplete_told, registered; /* for the end of the process */
static uint64_t releases_waited; /* nanoseconds, at releases of primary contexts */

bool trace_event_has_contexts(void) {
	return __atomic_load_n(&generations, __ATOMIC_RELAXED) != 0;
}

static void forget_contexts(void);
static void give_back_left(void);

static bool lock_for(uint32_t wait_ms) {
	if (pthread_mutex_trylock(&mutex) != 0 &&
	    !deadline_lock(&mutex, deadline_now_ms() + wait_ms))
		return false;
	if (__atomic_exchange_n(&overlooked, false, __ATOMIC_RELAXED))
		forget_contexts();
	if (__builtin_expect(__atomic_load_n(&left, __ATOMIC_RELAXED) != NULL, 0))
		give_back_left();
	return true;
}

static bool lock(void) {
	return lock_for(LOCK_MS);
}

static void unlock(void) {
	pthread_mutex_unlock(&mutex);
}

/* The lock is not held while functions are looked for: as in driver.c. */
static void look_up(void) {
	struct event_driver found;
	bool complete = true;

#define X(field, name, arguments)                                      \
	found.field = (driver_result(*) arguments)driver_symbol(name); \
	complete &= found.field != NULL;
	EVENT_FUNCTIONS(X)
#undef X
	*(void **)&found.elapsed = driver_symbol("cuEventElapsedTime_v2");
	if (!found.elapsed)
		*(void **)&found.elapsed = driver_symbol("cuEventElapsedTime");
	*(void **)&found.push = driver_symbol("cuCtxPushCurrent_v2");
	*(void **)&found.pop = driver_symbol("cuCtxPopCurrent_v2");
	if (!lock())
		return;
	if (!looked_up) {
		gpu = found;
		gpu_complete = complete && found.elapsed;
		__atomic_store_n(&looked_up, true, __ATOMIC_RELEASE);
	}
	unlock();
}

/* Has the driver all that is needed? Asked when a kernel is launched: the driver is the one that
 * stays then. */
static bool is_complete(void) {
	if (!driver_is_in_use())
		return false;
	if (!__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE))
		look_up();
	return __atomic_load_n(&looked_up, __ATOMIC_ACQUIRE) && gpu_complete;
}

void trace_event_forked(void) {
	memset(contexts, 0, sizeof(contexts));
	for (unsigned i = 0; i < CONTEXTS;
	     i++) /* a signal handler may have forked in the midst of it */
		contexts[i].pending_end = &contexts[i].pending;
	overlooked = false;
	left = NULL;
	pthread_mutex_init(&mutex, NULL);
}

/* ---- contexts ----------------------------------------------------------------------------------
 */

static bool make_timings(struct gpu_context *context) {
	struct trace_timing *timings =
		mmap(NULL, TIMINGS * sizeof(*timings), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (timings == MAP_FAILED)
		return false;
	context->timings = timings;
	for (unsigned i = TIMINGS; i-- > 0;) {
		timings[i].context = context;
		timings[i].next = context->unused;
		context->unused = &timings[i];
	}
	return true;
}

/* Makes what a context needs; it is current. */
static void make_context(struct gpu_context *context) {
	driver_result result = DRIVER_ERROR_OUT_OF_RESOURCES;

	if (context->timings || make_timings(context))
		result = gpu.ctx_get_device(&context->device);
	if (!result)
		result = gpu.stream_create(&context->stream, DRIVER_STREAM_NON_BLOCKING);
	for (unsigned i = 0; !result && i <= EVENT_TRIES; i++)
		result = gpu.event_create(&context->events[i], 0);
	if (result)
		event_failed(context, result);
}

/* The context of this thread, with the lock held; NULL: none, or it is left alone. */
static struct gpu_context *current_context(void) {
	struct gpu_context *unused = NULL;
	driver_handle handle = NULL;

	if (gpu.ctx_get_current(&handle) != 0 || !handle)
		return NULL;
	for (unsigned i = 0; i < CONTEXTS; i++) {
		if (contexts[i].handle == (uint64_t)handle)
			return contexts[i].broken ? NULL : &contexts[i];
		if (!contexts[i].handle && !unused)
			unused = &contexts[i];
	}
	if (!unused)
		return NULL;
	*unused = (struct gpu_context){
		.handle = (uint64_t)handle,
		.generation = __atomic_add_fetch(&generations, 1, __ATOMIC_RELAXED),
		.timings = unused->timings,
		.unused = unused->unused,
	};
	unused->pending_end = &unused->pending;
	make_context(unused);
	return unused->broken ? NULL : unused;
}

static void destroy_events(struct trace_timing *timing) {
	if (timing->before)
		gpu.event_destroy(timing->before);
	if (timing->after)
		gpu.event_destroy(timing->after);
}

/* The events that it has, but for those that launches of other threads are made with, are gone. */
static void forget_context(struct gpu_context *context) {
	for (struct trace_timing *timing = context->unused; timing; timing = timing->next)
		timing->before = timing->after = NULL;
	for (struct trace_timing *timing = context->pending; timing; timing = timing->next)
		timing->before = timing->after = NULL;
	*context->pending_end = context->unused;
	context->unused = context->pending;
	context->pending = NULL;
	context->pending_end = &context->pending;
	context->queued = 0;
	context->handle = 0;
	context->generation = 0;
}

/* Which one has ended is not known: the events of those that have not are left to them. */
static void forget_contexts(void) {
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (contexts[i].handle)
			forget_context(&contexts[i]);
}

/* Which contexts end. */
struct ending {
	driver_handle context; /* NULL: not this one alone, */
	int device; /* and those of this device; -1: of any */
};

static bool is_ending(const struct gpu_context *context, const struct ending *ending) {
	return context->handle &&
	       (!ending->context || context->handle == (uint64_t)ending->context) &&
	       (ending->device < 0 || context->device == ending->device);
}

/* Is there a launch of the session whose time may still be had? */
static bool is_pending(const struct gpu_context *context, uint64_t session) {
	const struct trace_timing *timing = context->broken ? NULL : context->pending;

	while (timing && timing->session != session)
		timing = timing->next;
	return timing != NULL;
}

/* Reads what has ended, with the context current meanwhile. */
static void harvest_from_elsewhere(struct trace_self *thread, struct gpu_context *context) {
	driver_handle current = NULL, popped;
	bool pushed = false;

	if (gpu.ctx_get_current(&current) != 0 || (uint64_t)current != context->handle)
		pushed = gpu.push && gpu.pop && gpu.push((driver_handle)context->handle) == 0;
	event_harvest(thread, context, true);
	if (pushed)
		gpu.pop(&popped);
}

/* Reads what has ended in contexts that end. Returns whether something is still on its way. */
static bool settle(const struct ending *ending) {
	struct trace_self *thread = &trace_mine;
	uint64_t session = trace_session_number();
	bool any = false, more = false;

	for (unsigned i = 0; i < CONTEXTS && session; i++)
		any |= is_ending(&contexts[i], ending) && is_pending(&contexts[i], session);
	if (!any || !trace_claim_and_enter(thread, session))
		return false;
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (is_ending(&contexts[i], ending) && is_pending(&contexts[i], session)) {
			harvest_from_elsewhere(thread, &contexts[i]);
			more |= is_pending(&contexts[i], session);
		}
	trace_leave(thread);
	return more;
}

/* The same until nothing is on its way, with the lock held but for pauses. Is it held then? */
static bool await(const struct ending *ending, uint64_t wait_ns) {
	uint64_t until = monotonic_now() + wait_ns;
	struct timespec pause = { .tv_nsec = 50000 };

	while (settle(ending) && monotonic_now() < until) {
		unlock();
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < POLL_NS)
			pause.tv_nsec *= 2;
		if (!lock_for(END_MS))
			return false;
	}
	return true;
}

/* Events that a launch of another thread has are left to the context. */
static void end_context(struct gpu_context *context) {
	for (struct trace_timing *timing = context->unused; timing; timing = timing->next)
		destroy_events(timing);
	for (struct trace_timing *timing = context->pending; timing; timing = timing->next)
		destroy_events(timing);
	for (unsigned i = 0; i <= EVENT_TRIES; i++)
		if (context->events[i])
			gpu.event_destroy(context->events[i]);
	if (context->stream)
		gpu.stream_destroy(context->stream);
	forget_context(context);
}

static void end_contexts(const struct ending *ending, uint64_t wait_ns) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct trace_hush hush;

	trace_hush(&hush);
	gpu.exchange_mode(&mode);
	if (await(ending, wait_ns)) {
		for (unsigned i = 0; i < CONTEXTS; i++)
			if (is_ending(&contexts[i], ending))
				end_context(&contexts[i]);
		unlock();
	} else {
		__atomic_store_n(&overlooked, true, __ATOMIC_RELAXED);
	}
	gpu.exchange_mode(&mode);
	trace_unhush(&hush);
}

/* True: contexts have events, and the lock is held. Else its next owner forgets all of them. */
static bool lock_for_end(void) {
	if (!trace_event_has_contexts())
		return false;
	if (lock_for(END_MS))
		return true;
	__atomic_store_n(&overlooked, true, __ATOMIC_RELAXED);
	return false;
}

void trace_event_context_ending(driver_handle handle) {
	const struct ending ending = { .context = handle, .device = -1 };

	if (lock_for_end())
		end_contexts(&ending, handle ? END_NS : 0);
}

/*
 * The caller may not be the last one that releases it, and does not expect to wait: all releases
 * together wait for END_NS at most.
 */
void trace_event_primary_ending(int device, bool surely) {
	const struct ending ending = { .device = device };
	uint64_t before, waited = __atomic_load_n(&releases_waited, __ATOMIC_RELAXED);

	if (!lock_for_end())
		return;
	before = monotonic_now();
	end_contexts(&ending, surely ? END_NS : waited < END_NS ? END_NS - waited : 0);
	if (!surely)
		__atomic_add_fetch(&releases_waited, monotonic_now() - before, __ATOMIC_RELAXED);
}

/* The process exits. Another thread that exits at the same time waits for the lock only. */
static void at_exit(void) {
	const struct ending all = { .device = -1 };
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	if (!trace_session_number() || !lock())
		return;
	gpu.exchange_mode(&mode);
	if (await(&all, END_NS))
		unlock();
	gpu.exchange_mode(&mode);
}

/* ---- launches ----------------------------------------------------------------------------------
 */

static struct gpu_stream *find_stream(struct gpu_context *context, uint64_t handle, uint32_t tid) {
	unsigned hash =
		(unsigned)((handle ^ (uint64_t)tid << 32) * UINT64_C(0x9e3779b97f4a7c15) >> 48);
	struct gpu_stream *unused = NULL;

	/* places are filled from where the stream belongs on, and never empty again */
	for (unsigned i = 0; i < EVENT_STREAMS; i++) {
		struct gpu_stream *stream = &context->streams[(hash + i) % EVENT_STREAMS];

		if (stream->used && stream->handle == handle && stream->tid == tid)
			return stream;
		if (!unused && !stream->timings)
			unused = stream;
		if (!stream->used)
			break;
	}
	if (unused)
		*unused = (struct gpu_stream){ .used = true, .handle = handle, .tid = tid };
	return unused;
}

static bool record_event(const struct trace_timing *timing, driver_handle event) {
	return (timing->per_thread ? gpu.event_record_own
				   : gpu.event_record)(event, (driver_handle)timing->handle) == 0;
}

/* What the stream is found by. */
static uint64_t name_of_stream(const struct gpu_launch *launch) {
	if (launch->stream)
		return launch->stream;
	return launch->per_thread ? EVENT_STREAM_OWN : EVENT_STREAM_LEGACY;
}

static bool is_legacy(const struct gpu_stream *stream) {
	return stream && stream->handle == EVENT_STREAM_LEGACY;
}

/* A timing for a launch on this stream, with its events; with the lock held. */
static struct trace_timing *take_timing(uint64_t stream, uint32_t tid) {
	struct gpu_context *context = current_context();
	struct trace_timing *timing = context ? context->unused : NULL;
	struct gpu_stream *found = timing ? find_stream(context, stream, tid) : NULL;
	bool legacy = is_legacy(found);
	unsigned others;

	if (!found)
		return NULL;
	if (!timing->after) {
		driver_result result = gpu.event_create(&timing->before, 0);

		if (!result)
			result = gpu.event_create(&timing->after, 0);
		if (result) {
			event_failed(context, result);
			return NULL;
		}
	}
	if (context->legacy != legacy) {
		trace_event_other_work();
		context->changes++;
	}
	context->legacy = legacy;
	others = __atomic_load_n(&other_work, __ATOMIC_RELAXED);
	context->unused = timing->next;
	timing->next = NULL;
	timing->stream = found;
	found->timings++;
	timing->generation = context->generation;
	timing->counted = false;
	timing->mixed = found->launching || context->launching[!legacy];
	timing->turn = ++found->turn;
	timing->changes = context->changes;
	found->launching++;
	context->launching[legacy]++;
	/* is it busy with nothing but the launch before? */
	timing->has_before = timing->mixed || !found->last || found->last->mixed ||
			     found->other_work != others ||
			     gpu.event_query(found->last->after) != DRIVER_ERROR_NOT_READY;
	found->other_work = others;
	return timing;
}

/* What the driver answers; *capturing is as it says. */
static driver_result ask_capturing(const struct gpu_launch *launch, int *capturing) {
	return (launch->per_thread ? gpu.is_capturing_own
				   : gpu.is_capturing)((driver_handle)launch->stream, capturing);
}

bool trace_event_is_captured(const struct gpu_launch *launch) {
	int capturing = 0;

	return is_complete() && ask_capturing(launch, &capturing) == 0 && capturing;
}

void trace_event_before(struct trace_frame *frame, const struct gpu_launch *launch) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED, capturing = 1;
	struct trace_timing *timing = NULL;
	uint64_t name = name_of_stream(launch);

	if (!is_complete() || gpu.exchange_mode(&mode) != 0) {
		frame->untimed = true;
		return;
	}
	if (ask_capturing(launch, &capturing) != 0)
		capturing = 0; /* the launch will fail, or is counted */
	else if (!capturing && lock()) {
		timing = take_timing(name, name == EVENT_STREAM_OWN ? trace_tid() : 0);
		unlock();
	}
	frame->untimed = !capturing && !timing;
	if (timing) {
		timing->handle = launch->stream;
		timing->function = launch->function;
		timing->per_thread = launch->per_thread;
		timing->session = frame->session;
		timing->tid = trace_tid();
		if (timing->has_before && !record_event(timing, timing->before)) {
			trace_event_abandon(timing);
			timing = NULL;
			frame->untimed = true;
		} else {
			timing->recorded = monotonic_now();
		}
	}
	gpu.exchange_mode(&mode);
	frame->timing = timing;
}

/* Its launch is no longer on its way; with the lock held. False: the context has ended. */
static bool end_launch(struct trace_timing *timing) {
	struct gpu_context *context = timing->context;
	struct gpu_stream *stream = timing->stream;

	if (timing->generation != context->generation)
		return false;
	timing->mixed |= timing->turn != stream->turn || timing->changes != context->changes;
	stream->launching--;
	context->launching[is_legacy(stream)]--;
	return true;
}

/* With the lock held. The events of a context that has ended are gone. */
static void give_back(struct trace_timing *timing) {
	struct gpu_context *context = timing->context;

	if (end_launch(timing))
		timing->stream->timings--;
	else
		timing->before = timing->after = NULL;
	timing->next = context->unused;
	context->unused = timing;
}

/* They are taken all at once, so that none comes again while another thread puts one before it. */
static void leave(struct trace_timing *timing) {
	timing->next = __atomic_load_n(&left, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&left, &timing->next, timing, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

static void give_back_left(void) {
	struct trace_timing *timing = __atomic_exchange_n(&left, NULL, __ATOMIC_ACQUIRE), *next;

	for (; timing; timing = next) {
		next = timing->next;
		give_back(timing);
	}
}

void trace_event_abandon(struct trace_timing *timing) {
	if (!lock()) {
		leave(timing);
		return;
	}
	give_back(timing);
	unlock();
}

/* The launch has succeeded: it is waited for. False: it cannot be. */
static bool enqueue(struct trace_timing *timing) {
	struct gpu_context *context = timing->context;
	bool lives;

	if (!lock()) {
		leave(timing);
		return false;
	}
	lives = end_launch(timing);
	if (lives) {
		timing->next = NULL;
		*context->pending_end = timing;
		context->pending_end = &timing->next;
		timing->stream->last = timing;
		timing->stream->queued++;
		context->queued++;
	} else {
		give_back(timing);
	}
	unlock();
	return lives;
}

void trace_event_other_work(void) {
	__atomic_add_fetch(&other_work, 1, __ATOMIC_RELAXED);
}

/* Behind the launch: records its second event. Returns whether its time will be read. */
static bool finish_launch(struct trace_self *thread, const struct trace_frame *frame,
			  struct trace_timing *timing, uint32_t sequence) {
	bool inside, enqueued;

	timing->sequence = sequence;
	timing->session = frame->session;
	if ((int32_t)frame->result[0] || !record_event(timing, timing->after)) {
		trace_event_abandon(timing);
		return false;
	}
	inside = trace_claim_and_enter(thread, frame->session);
	if (inside)
		trace_count_unread(1);
	timing->counted = inside;
	enqueued = enqueue(timing);
	if (inside && !enqueued)
		trace_count_unread(-1);
	if (inside)
		trace_leave(thread);
	return enqueued;
}

/* Says once why there are no times; inside a session. */
static void tell_failures(struct trace_self *thread) {
	char text[128];

	if (__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE) && !gpu_complete &&
	    !__atomic_exchange_n(&incomplete_told, true, __ATOMIC_RELAXED))
		trace_write_note(thread,
				 "kernels are not timed: this driver lacks functions for that");
	for (unsigned i = 0; i < CONTEXTS; i++) {
		if (!__atomic_load_n(&contexts[i].broken, __ATOMIC_RELAXED) ||
		    __atomic_exchange_n(&contexts[i].told, true, __ATOMIC_RELAXED))
			continue;
		snprintf(text, sizeof(text),
			 "kernels of a context are not timed any more: the driver says error %d",
			 contexts[i].failed);
		trace_write_note(thread, text);
	}
}

/* Reads what has ended in the current context: behind each call that waits, and some launches. */
static void read_times(struct trace_self *thread, uint64_t session, bool launched) {
	struct gpu_context *context;

	if (!lock())
		return;
	context = current_context();
	if (context && (!launched || ++context->launches % HARVEST_EACH == 0) &&
	    trace_claim_and_enter(thread, session)) {
		event_harvest(thread, context, false);
		if (context->broken)
			tell_failures(thread);
		trace_leave(thread);
	}
	unlock();
}

/* The launch has no events. */
static void lose_launch(struct trace_self *thread, uint64_t session) {
	if (!trace_claim_and_enter(thread, session)) {
		if (!thread->slot)
			trace_lose_homeless(session);
		return;
	}
	trace_lose(thread);
	tell_failures(thread);
	trace_leave(thread);
}

void trace_event_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence) {
	struct trace_timing *timing = frame->timing;
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	frame->timing = NULL;
	if (timing)
		timing->launched = monotonic_now();
	if (is_complete() && gpu.exchange_mode(&mode) == 0) {
		if (!registered &&
		    timing) /* behind what the driver itself has registered: it runs before that */
			__atomic_store_n(&registered, atexit(at_exit) == 0, __ATOMIC_RELAXED);
		if (timing) {
			frame->untimed = !finish_launch(thread, frame, timing, sequence);
			if (frame->untimed)
				trace_event_other_work();
		}
		read_times(thread, frame->session, timing != NULL);
		gpu.exchange_mode(&mode);
	} else if (timing) {
		trace_event_abandon(timing);
		frame->untimed = true;
	}
	if (frame->untimed && !(int32_t)frame->result[0])
		lose_launch(thread, frame->session);
}
