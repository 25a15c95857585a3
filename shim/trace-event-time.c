/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When what events say was. An event is not where the kernel is. The GPU takes as long from an event
 * to the next one as from an event to a kernel that waits behind it, and from a kernel's end to its
 * event (measured: within 0.3 us; it is 1.3 us on an H200), so that is taken off twice. Where the
 * stream had nothing to do, it came to the event before the launch had reached it: the kernel began
 * later by as much as the host took from the one to the other, mostly within 0.2 us. The error of
 * the record is a bound. Of one that is mixed (trace-event.c) it is as long as what lies between its
 * events.
 *
 * Each context has a base: an event whose time is known, from which others are measured. It is made
 * anew each half second, because the driver tells distances as floats, and bracketed by the host's
 * clock, which relates the two (CLOCK_PAIR). The clock of a device starts at the host's
 * CLOCK_MONOTONIC. It is the clock of that context which was the first in a session to read times
 * there: others start at other moments, and differ by what the GPU's clock drifted in between; their
 * times are told as the host had them.
 */

#include "trace-event-private.h"

#define TRY_NS UINT64_C(100000)
#define BASE_NS UINT64_C(500000000)
#define EMPTY_MAX 4000 /* nanoseconds from an event to the next: more is no property of the GPU */
#define SLACK_NS 10000 /* how far the two clocks may be apart for a decision */
#define SLOPE_NS 1000000000 /* of bases so far apart the clocks' slope is taken */
#define DRIFT 1e-4 /* till it is */
#define DEVICES 64

/* Whose clock is that of a device, in which session; with the lock held. */
static struct {
	uint64_t session;
	unsigned generation;
} clocks[DEVICES];

/* DRIVER_ERROR_NOT_READY: it has no time yet. */
static driver_result time_of(struct gpu_context *context, driver_handle event, uint64_t *time)
{
	float milliseconds;
	driver_result result = gpu.elapsed(&milliseconds, context->events[EVENT_TRIES], event);

	if (result)
		context->broken |= result != DRIVER_ERROR_NOT_READY;
	else
		*time = context->base_time + (uint64_t)(int64_t)((double)milliseconds * 1e6);
	return result;
}

/* Has the device this context's clock? The first that asks in a session is the one. */
static bool is_clock(const struct trace_self *thread, const struct gpu_context *context)
{
	if ((unsigned)context->device >= DEVICES)
		return false;
	if (clocks[context->device].session != thread->session) {
		clocks[context->device].session = thread->session;
		clocks[context->device].generation = context->generation;
	}
	return clocks[context->device].generation == context->generation;
}

/* A time of the GPU, as CLOCK_MONOTONIC had it, with an error of host_error(). */
static uint64_t host_of(const struct gpu_context *context, uint64_t time)
{
	int64_t since = (int64_t)(time - context->base_time);
	uint64_t span = context->base_time - context->first_time;

	if (span >= SLOPE_NS)
		since = (int64_t)((double)since * (double)(context->base_host - context->first_host) /
				  (double)span);
	return context->base_host + (uint64_t)since;
}

static uint64_t host_error(const struct gpu_context *context, uint64_t time)
{
	uint64_t span = context->base_time - context->first_time,
		 since = time > context->base_time ? time - context->base_time : context->base_time - time;
	double drift = span >= SLOPE_NS ? (double)(context->first_half + context->base_half) / (double)span : DRIFT;

	return context->base_half + (uint64_t)((double)since * drift) + 1;
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

	for (unsigned i = 0; i < EVENT_TRIES && !context->broken; i++)
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
	driver_handle base = context->events[EVENT_TRIES];
	unsigned best = EVENT_TRIES;

	if (context->base_made && now - context->base_made < BASE_NS)
		return;
	if (!context->base_made)
		measure_empty(context);
	context->base_made = now;
	for (unsigned i = 0; i < EVENT_TRIES && !context->broken; i++) {
		if (!bracket(context, context->events[i], NULL, &moments) ||
		    moments.after - moments.before >= least)
			continue;
		best = i;
		least = moments.after - moments.before;
		good = moments;
	}
	if (best == EVENT_TRIES || (context->base_time && time_of(context, context->events[best], &time)))
		return;
	context->events[EVENT_TRIES] = context->events[best];
	context->events[best] = base;
	context->base_time = pair.gpu = time;
	context->base_half = (good.host_after - good.host_before) / 2;
	context->base_host = good.host_before + context->base_half;
	if (!context->first_time) {
		context->first_time = context->base_time;
		context->first_host = context->base_host;
		context->first_half = context->base_half;
	}
	if (!is_clock(thread, context))
		return;
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
	const struct gpu_context *context = timing->context;
	struct trace_ring_kernel *record = trace_reserve(thread, sizeof(*record));
	bool host = !is_clock(thread, context);

	if (!record) {
		trace_lose(thread);
		return;
	}
	if (host) {
		uint64_t at_start = host_error(context, start), at_end = host_error(context, end);

		error += at_start > at_end ? at_start : at_end;
		start = host_of(context, start);
		end = host_of(context, end);
	}
	*record = (struct trace_ring_kernel){
		.record = {
			.size = sizeof(*record),
			.type = TRACE_RING_KERNEL,
			.flags = host ? TRACE_RING_KERNEL_HOST : 0,
			.sequence = timing->sequence,
		},
		.tid = timing->tid,
		.device = (uint32_t)context->device,
		.start = start,
		.end = end,
		.context = context->handle,
		.stream = timing->handle,
		.function = timing->function,
		.error = error < UINT32_MAX ? (uint32_t)error : UINT32_MAX,
	};
	trace_write(thread, sizeof(*record));
}

/*
 * When a kernel began and ended, from the events: the one before it (that of the kernel before, or its
 * own), and the one behind it. False: that cannot be.
 */
static bool place(const struct trace_timing *timing, uint64_t *start, uint64_t *end, uint64_t *error)
{
	const struct gpu_context *context = timing->context;
	uint64_t reached = host_of(context, *start), empty = context->empty, gap = empty;
	uint64_t least = *start;

	if (least > *end)
		return false;
	*error = empty + (timing->mixed ? *end - least : 0);
	if (timing->has_before && reached < timing->recorded + SLACK_NS) {
		/* the GPU waited for the host, which may have been interrupted behind the doorbell */
		gap = timing->launched - timing->recorded;
		*error += gap;
	} else if (!timing->has_before && timing->launched > reached + empty) {
		gap = timing->launched - reached;
		*error += gap < context->base_half ? gap : context->base_half;
	}
	*start += gap;
	*end -= *end - least > empty ? empty : 0;
	if (*start > *end)
		*start = *end; /* shorter than can be told */
	return true;
}

/* Reads the times of what has ended in a context; with the lock held, for who is inside. */
void event_harvest(struct trace_self *thread, struct gpu_context *context)
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
		if (timing->session == thread->session) {
			if (place(timing, &start, &end, &error))
				write_kernel(thread, timing, start, end, error);
			else
				trace_lose(thread);
		}
		if (!timing->mixed)
			stream->last_end = raw;
		if (stream->last == timing)
			stream->last = NULL;
		stream->timings--;
		*link = timing->next;
		timing->next = context->unused;
		context->unused = timing;
	}
	context->pending_end = &context->pending;
	while (*context->pending_end)
		context->pending_end = &(*context->pending_end)->next;
}
