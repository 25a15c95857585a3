/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When kernels and graphs ran on the GPU, by events of the driver: one behind each launch, and one
 * before it unless the stream is busy with the launch before, for then a kernel begins where that
 * one ends. What lies in the stream between launches (copies, waits) makes one necessary, too.
 * Nothing is waited for: what has ended is read by later launches, and behind calls that wait
 * themselves.
 *
 * An event is not where the kernel is. The GPU takes as long from an event to the next one as from an
 * event to a kernel that waits behind it, and from a kernel's end to its event (measured: within
 * 0.3 us; it is 1.3 us on an H200), so that is taken off twice. Where the stream had nothing to do, it
 * came to the event before the launch had reached it: the kernel began later by as much as the host
 * took from the one to the other, mostly within 0.2 us. The error of the record is a bound.
 *
 * Each context has events of its own, a stream of its own, and a base: an event whose time is known,
 * from which others are measured. It is made anew each half second, because the driver tells
 * distances as floats, and bracketed by the host's clock, which relates the two (CLOCK_PAIR). The
 * clock of a device starts at the host's CLOCK_MONOTONIC.
 *
 * A launch that is captured is left alone, and so is one while the events of its context are used
 * up. Our calls are made in the relaxed mode of captures, as a capture of another thread would
 * forbid them. After any error of a call of ours the context is left alone.
 *
 * The lock is waited for as long as that may take, and not endlessly: a signal handler on a stack of
 * its own may have interrupted its owner.
 */

#include "trace-event.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "driver.h"

#define CONTEXTS 8
#define STREAMS 32
#define TIMINGS 1024
#define TRIES 4
#define TRY_NS UINT64_C(100000)
#define BASE_NS UINT64_C(500000000)
#define LOCK_NS 10000000
#define HARVEST_EACH 16 /* launches */
#define EMPTY_MAX 4000 /* nanoseconds from an event to the next: more is no property of the GPU */
#define SLACK_NS 10000 /* how far the two clocks may be apart for a decision */
#define SLOPE_NS 1000000000 /* of bases so far apart the clocks' slope is taken */

#define STREAM_PER_THREAD 2

/* A stream, or a thread's own default one. last: its latest timing that is not read yet. */
struct gpu_stream {
	bool used;
	uint64_t handle;
	uint32_t tid;
	struct trace_timing *last;
	uint64_t last_end;
	unsigned other_work;
};

struct trace_timing {
	struct trace_timing *next;
	struct gpu_context *context;
	struct gpu_stream *stream;
	driver_handle before, after;
	uint64_t recorded, launched; /* CLOCK_MONOTONIC: the event before it, and the launch, returned */
	uint64_t function, handle;
	uint64_t session;
	unsigned generation; /* of the context */
	uint32_t tid, sequence;
	bool has_before, per_thread;
};

struct gpu_context {
	uint64_t handle; /* 0: free */
	unsigned generation;
	int device;
	bool broken;
	driver_handle stream;
	driver_handle events[TRIES + 1]; /* the last one is the base, */
	uint64_t base_time; /* of this time, 0: not known yet, */
	uint64_t base_host, base_half; /* which is this one of the host, give or take, */
	uint64_t base_made; /* and tried at this one */
	uint64_t first_time, first_host; /* of the first base */
	uint64_t empty; /* nanoseconds from an event to the next */
	struct trace_timing *timings; /* all: they stay for the next context that has this place */
	struct trace_timing *unused, *pending, **pending_end;
	struct gpu_stream streams[STREAMS];
	unsigned launches;
};

static struct gpu_context contexts[CONTEXTS];
static unsigned generations;
static unsigned other_work; /* counts it */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* around all that */

#define FUNCTIONS(X)                                                            \
	X(event_create, "cuEventCreate", (driver_handle *, unsigned))           \
	X(event_destroy, "cuEventDestroy_v2", (driver_handle))                  \
	X(event_record, "cuEventRecord", (driver_handle, driver_handle))        \
	X(event_record_own, "cuEventRecord_ptsz", (driver_handle, driver_handle)) \
	X(event_query, "cuEventQuery", (driver_handle))                         \
	X(stream_create, "cuStreamCreate", (driver_handle *, unsigned))         \
	X(stream_destroy, "cuStreamDestroy_v2", (driver_handle))                \
	X(is_capturing, "cuStreamIsCapturing", (driver_handle, int *))          \
	X(is_capturing_own, "cuStreamIsCapturing_ptsz", (driver_handle, int *)) \
	X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *))          \
	X(ctx_get_current, "cuCtxGetCurrent", (driver_handle *))                \
	X(ctx_get_device, "cuCtxGetDevice", (int *))

static struct {
#define X(field, name, arguments) driver_result(*field) arguments;
	FUNCTIONS(X)
#undef X
	driver_result (*elapsed)(float *, driver_handle, driver_handle);
} gpu;
static bool gpu_complete;

static bool lock(void)
{
	struct timespec until;

	if (pthread_mutex_trylock(&mutex) == 0)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LOCK_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until) == 0;
}

static void unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/* ---- a session begins ------------------------------------------------------------------------ */

void trace_event_begin(void)
{
	bool complete = true;

	if (gpu_complete)
		return;
#define X(field, name, arguments)                                    \
	gpu.field = (driver_result(*) arguments)driver_symbol(name); \
	complete &= gpu.field != NULL;
	FUNCTIONS(X)
#undef X
	*(void **)&gpu.elapsed = driver_symbol("cuEventElapsedTime_v2");
	if (!gpu.elapsed)
		*(void **)&gpu.elapsed = driver_symbol("cuEventElapsedTime");
	gpu_complete = complete && gpu.elapsed;
}

void trace_event_forked(void)
{
	memset(contexts, 0, sizeof(contexts));
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
	for (unsigned i = 0; i <= TRIES; i++)
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
		.generation = ++generations,
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
	timing->before = timing->after = NULL;
}

/* Events that a launch of another thread has are left to the context. */
static void end_context(struct gpu_context *context)
{
	for (struct trace_timing *timing = context->unused; timing; timing = timing->next)
		destroy_events(timing);
	for (struct trace_timing *timing = context->pending; timing; timing = timing->next)
		destroy_events(timing);
	for (unsigned i = 0; i <= TRIES; i++)
		if (context->events[i])
			gpu.event_destroy(context->events[i]);
	if (context->stream)
		gpu.stream_destroy(context->stream);
	*context->pending_end = context->unused;
	context->unused = context->pending;
	context->pending = NULL;
	context->pending_end = &context->pending;
	context->handle = 0;
	context->generation = 0;
}

void trace_event_context_ending(driver_handle handle)
{
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct trace_hush hush;

	if (!generations || !lock())
		return;
	trace_hush(&hush);
	gpu.exchange_mode(&mode);
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (contexts[i].handle && (!handle || contexts[i].handle == (uint64_t)handle))
			end_context(&contexts[i]);
	gpu.exchange_mode(&mode);
	unlock();
	trace_unhush(&hush);
}

/* ---- times ------------------------------------------------------------------------------------- */

/* DRIVER_ERROR_NOT_READY: it has no time yet. */
static driver_result time_of(struct gpu_context *context, driver_handle event, uint64_t *time)
{
	float milliseconds;
	driver_result result = gpu.elapsed(&milliseconds, context->events[TRIES], event);

	if (result)
		context->broken |= result != DRIVER_ERROR_NOT_READY;
	else
		*time = context->base_time + (uint64_t)(int64_t)((double)milliseconds * 1e6);
	return result;
}

/* A time of the GPU, as CLOCK_MONOTONIC had it, with an error of base_half. */
static uint64_t host_of(const struct gpu_context *context, uint64_t time)
{
	int64_t since = (int64_t)(time - context->base_time);
	uint64_t span = context->base_time - context->first_time;

	if (span >= SLOPE_NS)
		since = (int64_t)((double)since * (double)(context->base_host - context->first_host) /
				  (double)span);
	return context->base_host + (uint64_t)since;
}

/* Moments around an event, of the ring's clock and of CLOCK_MONOTONIC. */
struct moments {
	uint64_t before, after;
	uint64_t host_before, host_after;
};

/* Records an event, or two, and sees the last one complete. False: not in time. */
static bool bracket(struct gpu_context *context, driver_handle event, driver_handle second,
		    struct moments *moments)
{
	driver_result result;

	moments->host_before = trace_monotonic();
	moments->before = trace_now();
	if (gpu.event_record(event, context->stream) != 0 ||
	    (second && gpu.event_record(second, context->stream) != 0)) {
		context->broken = true;
		return false;
	}
	do {
		result = gpu.event_query(second ? second : event);
		moments->after = trace_now();
		moments->host_after = trace_monotonic();
	} while (result == DRIVER_ERROR_NOT_READY &&
		 moments->host_after - moments->host_before < TRY_NS);
	context->broken |= result && result != DRIVER_ERROR_NOT_READY;
	return !result;
}

/* Once: how long the GPU takes from an event to the next. */
static void measure_empty(struct gpu_context *context)
{
	uint64_t least = EMPTY_MAX + 1;
	struct moments moments;
	float milliseconds;

	for (unsigned i = 0; i < TRIES && !context->broken; i++)
		if (bracket(context, context->events[0], context->events[1], &moments) &&
		    gpu.elapsed(&milliseconds, context->events[0], context->events[1]) == 0 &&
		    (double)milliseconds * 1e6 < (double)least)
			least = (uint64_t)((double)milliseconds * 1e6);
	context->empty = least <= EMPTY_MAX ? least : 0;
}

/* Makes the base anew, if it is old: the event of the tightest of several tries. */
static void make_base(struct trace_self *thread, struct gpu_context *context)
{
	uint64_t now = trace_monotonic(), least = UINT64_MAX, time = now;
	struct moments moments, good = { 0 };
	struct trace_ring_clock_pair pair = {
		.record = { .size = sizeof(pair), .type = TRACE_RING_CLOCK_PAIR },
		.device = (uint32_t)context->device,
	}, *record;
	driver_handle base = context->events[TRIES];
	unsigned best = TRIES;

	if (context->base_made && now - context->base_made < BASE_NS)
		return;
	if (!context->base_made)
		measure_empty(context);
	context->base_made = now;
	for (unsigned i = 0; i < TRIES && !context->broken; i++) {
		if (!bracket(context, context->events[i], NULL, &moments) ||
		    moments.after - moments.before >= least)
			continue;
		best = i;
		least = moments.after - moments.before;
		good = moments;
	}
	if (best == TRIES || (context->base_time && time_of(context, context->events[best], &time)))
		return;
	context->events[TRIES] = context->events[best];
	context->events[best] = base;
	context->base_time = pair.gpu = time;
	context->base_half = (good.host_after - good.host_before) / 2;
	context->base_host = good.host_before + context->base_half;
	if (!context->first_time) {
		context->first_time = context->base_time;
		context->first_host = context->base_host;
	}
	pair.before = good.before;
	pair.after = good.after;
	record = trace_reserve(thread, sizeof(pair));
	if (!record) {
		trace_lose(thread);
		return;
	}
	*record = pair;
	trace_write(thread, sizeof(pair));
}

static void write_kernel(struct trace_self *thread, const struct trace_timing *timing,
			 uint64_t start, uint64_t end, uint64_t error)
{
	struct trace_ring_kernel *record = trace_reserve(thread, sizeof(*record));

	if (!record) {
		trace_lose(thread);
		return;
	}
	*record = (struct trace_ring_kernel){
		.record = {
			.size = sizeof(*record),
			.type = TRACE_RING_KERNEL,
			.sequence = timing->sequence,
		},
		.tid = timing->tid,
		.device = (uint32_t)timing->context->device,
		.start = start,
		.end = end,
		.context = timing->context->handle,
		.stream = timing->handle,
		.function = timing->function,
		.error = (uint32_t)error,
	};
	trace_write(thread, sizeof(*record));
}

/*
 * When a kernel began and ended, from the events: the one before it (that of the kernel before, or its
 * own), and the one behind it. Returns the error.
 */
static uint64_t place(const struct trace_timing *timing, uint64_t *start, uint64_t *end)
{
	const struct gpu_context *context = timing->context;
	uint64_t reached = host_of(context, *start), empty = context->empty, gap = empty;
	uint64_t error = empty, least = *start;

	if (timing->has_before && reached < timing->recorded + SLACK_NS) {
		/* the GPU waited for the host, which may have been interrupted behind the doorbell */
		gap = timing->launched - timing->recorded;
		error += gap;
	} else if (!timing->has_before && timing->launched > reached + empty) {
		gap = timing->launched - reached;
		error += gap < context->base_half ? gap : context->base_half;
	}
	*start += gap;
	*end -= *end - least > empty ? empty : 0;
	if (*start > *end)
		*start = *end; /* shorter than can be told */
	return error;
}

/* Reads the times of what has ended in a context; with the lock held, for who is inside. */
static void harvest(struct trace_self *thread, struct gpu_context *context)
{
	struct trace_timing **link = &context->pending;
	uint32_t busy = 0; /* streams */

	make_base(thread, context);
	while (*link && context->base_time && !context->broken) {
		struct trace_timing *timing = *link;
		struct gpu_stream *stream = timing->stream;
		uint32_t bit = UINT32_C(1) << (stream - context->streams);
		uint64_t start = stream->last_end, end, raw, error;

		if ((busy & bit) || time_of(context, timing->after, &end) ||
		    (timing->has_before && time_of(context, timing->before, &start))) {
			busy |= bit;
			link = &timing->next;
			continue;
		}
		raw = end;
		error = place(timing, &start, &end);
		if (timing->session == thread->session)
			write_kernel(thread, timing, start, end, error);
		stream->last_end = raw;
		if (stream->last == timing)
			stream->last = NULL;
		*link = timing->next;
		timing->next = context->unused;
		context->unused = timing;
	}
	context->pending_end = &context->pending;
	while (*context->pending_end)
		context->pending_end = &(*context->pending_end)->next;
}

/* ---- launches ---------------------------------------------------------------------------------- */

static struct gpu_stream *find_stream(struct gpu_context *context, uint64_t handle, uint32_t tid)
{
	struct gpu_stream *unused = NULL;

	for (unsigned i = 0; i < STREAMS; i++) {
		struct gpu_stream *stream = &context->streams[i];

		if (stream->used && stream->handle == handle && stream->tid == tid)
			return stream;
		if (!unused && (!stream->used || !stream->last))
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

/* A timing for a launch on this stream, with its events; with the lock held. */
static struct trace_timing *take_timing(uint64_t stream, uint32_t tid)
{
	struct gpu_context *context = current_context();
	struct trace_timing *timing = context ? context->unused : NULL;
	struct gpu_stream *found = timing ? find_stream(context, stream, tid) : NULL;

	if (!found)
		return NULL;
	if (!timing->after && (gpu.event_create(&timing->before, 0) != 0 ||
			       gpu.event_create(&timing->after, 0) != 0)) {
		context->broken = true;
		return NULL;
	}
	context->unused = timing->next;
	timing->next = NULL;
	timing->stream = found;
	timing->generation = context->generation;
	/* is it busy with nothing but the launch before? */
	timing->has_before = !found->last || found->other_work != other_work ||
			     gpu.event_query(found->last->after) != DRIVER_ERROR_NOT_READY;
	found->other_work = other_work;
	return timing;
}

void trace_event_before(struct trace_frame *frame, const struct gpu_launch *launch)
{
	driver_handle stream = (driver_handle)launch->stream;
	int mode = DRIVER_CAPTURE_MODE_RELAXED, capturing = 1;
	struct trace_timing *timing = NULL;
	bool own;

	if (!gpu_complete || gpu.exchange_mode(&mode) != 0)
		return;
	own = (launch->per_thread && !stream) || launch->stream == STREAM_PER_THREAD;
	if ((launch->per_thread ? gpu.is_capturing_own : gpu.is_capturing)(stream, &capturing) == 0 &&
	    !capturing && lock()) {
		timing = take_timing(launch->stream, own ? trace_tid() : 0);
		unlock();
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
		} else {
			timing->recorded = trace_monotonic();
		}
	}
	gpu.exchange_mode(&mode);
	frame->timing = timing;
}

/* With the lock held. The events of a context that has ended are gone. */
static void give_back(struct trace_timing *timing)
{
	struct gpu_context *context = timing->context;

	if (timing->generation != context->generation)
		timing->before = timing->after = NULL;
	timing->next = context->unused;
	context->unused = timing;
}

void trace_event_abandon(struct trace_timing *timing)
{
	if (!lock())
		return;
	give_back(timing);
	unlock();
}

/* The launch has succeeded: it is waited for. */
static void enqueue(struct trace_timing *timing)
{
	struct gpu_context *context = timing->context;

	if (!lock())
		return;
	if (timing->generation == context->generation) {
		timing->next = NULL;
		*context->pending_end = timing;
		context->pending_end = &timing->next;
		timing->stream->last = timing;
	} else {
		give_back(timing);
	}
	unlock();
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
	if (!gpu_complete || gpu.exchange_mode(&mode) != 0)
		return;
	if (timing) {
		timing->sequence = sequence;
		if ((int32_t)frame->result[0] || !record_event(timing, timing->after))
			trace_event_abandon(timing);
		else
			enqueue(timing);
	}
	if (lock()) {
		context = current_context();
		if (context && (!timing || ++context->launches % HARVEST_EACH == 0) &&
		    (thread->session == frame->session || trace_claim(thread, frame->session)) &&
		    thread->slot && trace_enter(thread, frame->session)) {
			harvest(thread, context);
			trace_leave(thread);
		}
		unlock();
	}
	gpu.exchange_mode(&mode);
}
