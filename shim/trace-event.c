/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When kernels and graphs ran on the GPU, by events of the driver: one behind each launch, and one
 * before it unless the stream is busy with the launch before, for then a kernel begins where that
 * one ends. What lies in the stream between launches (copies, waits) makes one necessary, too, and
 * so does a launch into the legacy stream between others, or one of them between such: they wait for
 * each other.
 *
 * Where several threads launch into one stream at a time, or into two that wait for each other, the
 * kernels of others may lie between the events of a launch: it is mixed. It ran between them, and how
 * far they are apart is its error.
 *
 * Nothing is waited for: what has ended is read by later launches, behind calls that wait
 * themselves, and before the end of the context. What has not is lost, as are launches for which
 * there are no events.
 *
 * Each context has events of its own, and a stream of its own. What their times are is in
 * trace-event-time.c.
 *
 * A launch that is captured is left alone. Our calls are made in the relaxed mode of captures, as a capture of another thread would
 * forbid them. After any error of a call of ours the context is left alone.
 *
 * The lock is waited for as long as that may take, and not endlessly: a signal handler on a stack of
 * its own may have interrupted its owner. Who does not get it leaves what he has for the next who does.
 */

#include "trace-event-private.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "deadline.h"
#include "driver.h"

#define CONTEXTS 8
#define TIMINGS 1024
#define LOCK_MS 10
#define END_MS 1000 /* for the end of a context */
#define HARVEST_EACH 16 /* launches */

static struct gpu_context contexts[CONTEXTS];
static unsigned generations;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* around these; generations are also read without */
static bool overlooked; /* one has ended while the lock could not be had */
static struct trace_timing *left; /* those that were to be given back then; atomic */
static unsigned other_work; /* counts it; atomic */

struct event_driver gpu;
static bool gpu_complete, looked_up;

static void forget_contexts(void);
static void give_back_left(void);

static bool lock_for(uint32_t wait_ms)
{
	if (pthread_mutex_trylock(&mutex) != 0 && !deadline_lock(&mutex, deadline_now_ms() + wait_ms))
		return false;
	if (__atomic_exchange_n(&overlooked, false, __ATOMIC_RELAXED))
		forget_contexts();
	if (__builtin_expect(__atomic_load_n(&left, __ATOMIC_RELAXED) != NULL, 0))
		give_back_left();
	return true;
}

static bool lock(void)
{
	return lock_for(LOCK_MS);
}

static void unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/* The lock is not held while functions are looked for: as in driver.c. */
static void look_up(void)
{
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
	if (!lock())
		return;
	if (!looked_up) {
		gpu = found;
		gpu_complete = complete && found.elapsed;
		__atomic_store_n(&looked_up, true, __ATOMIC_RELEASE);
	}
	unlock();
}

/* Has the driver all that is needed? Asked when a kernel is launched: the driver is the one that stays then. */
static bool is_complete(void)
{
	if (!driver_is_in_use())
		return false;
	if (!__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE))
		look_up();
	return __atomic_load_n(&looked_up, __ATOMIC_ACQUIRE) && gpu_complete;
}

void trace_event_forked(void)
{
	memset(contexts, 0, sizeof(contexts));
	for (unsigned i = 0; i < CONTEXTS; i++) /* a signal handler may have forked in the midst of it */
		contexts[i].pending_end = &contexts[i].pending;
	overlooked = false;
	left = NULL;
	pthread_mutex_init(&mutex, NULL);
}

/* ---- contexts ---------------------------------------------------------------------------------- */

static bool make_timings(struct gpu_context *context)
{
	struct trace_timing *timings = mmap(NULL, TIMINGS * sizeof(*timings),
					    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
					    -1, 0);

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
static bool make_context(struct gpu_context *context)
{
	if (!context->timings && !make_timings(context))
		return false;
	if (gpu.ctx_get_device(&context->device) != 0 ||
	    gpu.stream_create(&context->stream, DRIVER_STREAM_NON_BLOCKING) != 0)
		return false;
	for (unsigned i = 0; i <= EVENT_TRIES; i++)
		if (gpu.event_create(&context->events[i], 0) != 0)
			return false;
	return true;
}

/* The context of this thread, with the lock held; NULL: none, or it is left alone. */
static struct gpu_context *current_context(void)
{
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
	unused->broken = !make_context(unused);
	return unused->broken ? NULL : unused;
}

static void destroy_events(struct trace_timing *timing)
{
	if (timing->before)
		gpu.event_destroy(timing->before);
	if (timing->after)
		gpu.event_destroy(timing->after);
}

/* The events that it has, but for those that launches of other threads are made with, are gone. */
static void forget_context(struct gpu_context *context)
{
	for (struct trace_timing *timing = context->unused; timing; timing = timing->next)
		timing->before = timing->after = NULL;
	for (struct trace_timing *timing = context->pending; timing; timing = timing->next)
		timing->before = timing->after = NULL;
	*context->pending_end = context->unused;
	context->unused = context->pending;
	context->pending = NULL;
	context->pending_end = &context->pending;
	context->handle = 0;
	context->generation = 0;
}

/* Which one has ended is not known: the events of those that have not are left to them. */
static void forget_contexts(void)
{
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (contexts[i].handle)
			forget_context(&contexts[i]);
}

/* Before a context ends: what has ended in it is read, and what has not will not be known. */
static void settle_context(struct gpu_context *context)
{
	struct trace_self *thread = &trace_mine;
	uint64_t session = trace_session_number();

	if (!context->pending || !session || !trace_claim_and_enter(thread, session))
		return;
	if (!context->broken)
		event_harvest(thread, context);
	for (struct trace_timing *timing = context->pending; timing; timing = timing->next)
		if (timing->session == session)
			trace_lose(thread);
	trace_leave(thread);
}

/* Events that a launch of another thread has are left to the context. */
static void end_context(struct gpu_context *context)
{
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

void trace_event_context_ending(driver_handle handle)
{
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct trace_hush hush;

	if (!__atomic_load_n(&generations, __ATOMIC_RELAXED))
		return;
	if (!lock_for(END_MS)) {
		__atomic_store_n(&overlooked, true, __ATOMIC_RELAXED);
		return;
	}
	trace_hush(&hush);
	gpu.exchange_mode(&mode);
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (contexts[i].handle && (!handle || contexts[i].handle == (uint64_t)handle)) {
			settle_context(&contexts[i]);
			end_context(&contexts[i]);
		}
	gpu.exchange_mode(&mode);
	unlock();
	trace_unhush(&hush);
}

/* ---- launches ---------------------------------------------------------------------------------- */

static struct gpu_stream *find_stream(struct gpu_context *context, uint64_t handle, uint32_t tid)
{
	struct gpu_stream *unused = NULL;

	for (unsigned i = 0; i < EVENT_STREAMS; i++) {
		struct gpu_stream *stream = &context->streams[i];

		if (stream->used && stream->handle == handle && stream->tid == tid)
			return stream;
		if (!unused && !stream->timings)
			unused = stream;
	}
	if (unused)
		*unused = (struct gpu_stream){ .used = true, .handle = handle, .tid = tid };
	return unused;
}

static bool record_event(const struct trace_timing *timing, driver_handle event)
{
	return (timing->per_thread ? gpu.event_record_own : gpu.event_record)(
		       event, (driver_handle)timing->handle) == 0;
}

/* What the stream is found by. */
static uint64_t name_of_stream(const struct gpu_launch *launch)
{
	if (launch->stream)
		return launch->stream;
	return launch->per_thread ? EVENT_STREAM_OWN : EVENT_STREAM_LEGACY;
}

static bool is_legacy(const struct gpu_stream *stream)
{
	return stream && stream->handle == EVENT_STREAM_LEGACY;
}

/* A timing for a launch on this stream, with its events; with the lock held. */
static struct trace_timing *take_timing(uint64_t stream, uint32_t tid)
{
	struct gpu_context *context = current_context();
	struct trace_timing *timing = context ? context->unused : NULL;
	struct gpu_stream *found = timing ? find_stream(context, stream, tid) : NULL;
	bool legacy = is_legacy(found);
	unsigned others;

	if (!found)
		return NULL;
	if (!timing->after && (gpu.event_create(&timing->before, 0) != 0 ||
			       gpu.event_create(&timing->after, 0) != 0)) {
		context->broken = true;
		return NULL;
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
	timing->mixed = found->launching || context->launching[!legacy];
	timing->turn = ++found->turn;
	timing->changes = context->changes;
	found->launching++;
	context->launching[legacy]++;
	/* is it busy with nothing but the launch before? */
	timing->has_before = timing->mixed || !found->last || found->last->mixed || found->other_work != others ||
			     gpu.event_query(found->last->after) != DRIVER_ERROR_NOT_READY;
	found->other_work = others;
	return timing;
}

void trace_event_before(struct trace_frame *frame, const struct gpu_launch *launch)
{
	driver_handle stream = (driver_handle)launch->stream;
	int mode = DRIVER_CAPTURE_MODE_RELAXED, capturing = 1;
	struct trace_timing *timing = NULL;
	uint64_t name = name_of_stream(launch);

	if (!is_complete() || gpu.exchange_mode(&mode) != 0)
		return;
	if ((launch->per_thread ? gpu.is_capturing_own : gpu.is_capturing)(stream, &capturing) == 0 &&
	    !capturing) {
		if (lock()) {
			timing = take_timing(name, name == EVENT_STREAM_OWN ? trace_tid() : 0);
			unlock();
		}
		frame->untimed = !timing;
	}
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
			timing->recorded = trace_monotonic();
		}
	}
	gpu.exchange_mode(&mode);
	frame->timing = timing;
}

/* Its launch is no longer on its way; with the lock held. False: the context has ended. */
static bool end_launch(struct trace_timing *timing)
{
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
static void give_back(struct trace_timing *timing)
{
	struct gpu_context *context = timing->context;

	if (end_launch(timing))
		timing->stream->timings--;
	else
		timing->before = timing->after = NULL;
	timing->next = context->unused;
	context->unused = timing;
}

/* They are taken all at once, so that none comes again while another thread puts one before it. */
static void leave(struct trace_timing *timing)
{
	timing->next = __atomic_load_n(&left, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&left, &timing->next, timing, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

static void give_back_left(void)
{
	struct trace_timing *timing = __atomic_exchange_n(&left, NULL, __ATOMIC_ACQUIRE), *next;

	for (; timing; timing = next) {
		next = timing->next;
		give_back(timing);
	}
}

void trace_event_abandon(struct trace_timing *timing)
{
	if (!lock()) {
		leave(timing);
		return;
	}
	give_back(timing);
	unlock();
}

/* The launch has succeeded: it is waited for. False: it cannot be. */
static bool enqueue(struct trace_timing *timing)
{
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
	} else {
		give_back(timing);
	}
	unlock();
	return lives;
}

void trace_event_other_work(void)
{
	__atomic_add_fetch(&other_work, 1, __ATOMIC_RELAXED);
}

void trace_event_after(struct trace_self *thread, struct trace_frame *frame, uint32_t sequence)
{
	struct trace_timing *timing = frame->timing;
	struct gpu_context *context;
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	frame->timing = NULL;
	if (timing)
		timing->launched = trace_monotonic();
	if (!is_complete() || gpu.exchange_mode(&mode) != 0) {
		if (timing)
			trace_event_abandon(timing);
		return;
	}
	if (timing) {
		timing->sequence = sequence;
		if ((int32_t)frame->result[0] || !record_event(timing, timing->after)) {
			trace_event_abandon(timing);
			frame->untimed = true;
		} else {
			frame->untimed = !enqueue(timing);
		}
		if (frame->untimed)
			trace_event_other_work();
	}
	if (lock()) {
		context = current_context();
		if (context && (!timing || ++context->launches % HARVEST_EACH == 0) &&
		    trace_claim_and_enter(thread, frame->session)) {
			event_harvest(thread, context);
			trace_leave(thread);
		}
		unlock();
	}
	if (frame->untimed && !(int32_t)frame->result[0] && trace_claim_and_enter(thread, frame->session)) {
		trace_lose(thread);
		trace_leave(thread);
	}
	gpu.exchange_mode(&mode);
}
