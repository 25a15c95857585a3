/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Computes when kernels ran from the times of the driver's events (trace-event.h).
 *
 * When what events say was. An event is not where the kernel is. The GPU takes as long from an
 * event to the next one as from an event to a kernel that waits behind it, and from a kernel's end
 * to its event (measured: within 0.3 us; it is 1.3 us on an H200), so that is taken off twice.
 * Where the stream had nothing to do, it came to the event before the launch had reached it: the
 * kernel began later by as much as the host took from the one to the other, mostly within 0.2 us.
 * The error of the record is a bound. Of one that is mixed (trace-event.c) it is as long as what
 * lies between its events.
 *
 * Each context has a base: an event whose time is known, from which others are measured. It is made
 * anew each half second, because the driver tells distances as floats, and bracketed by the host's
 * clock, which relates the two (CLOCK_PAIR). Where the GPU is busy with other work that may fail.
 * As long as there is none, it is tried again soon, and an event that takes long will do. The clock
 * of a device starts at the host's CLOCK_MONOTONIC. It is the clock of that context which was the
 * first in a session to read times there: others start at other moments, and differ by what the
 * GPU's clock drifted in between; their times are told as the host had them.
 */

#include "trace-event-private.h"
#include "lib/base/clock.h"

#define TRY_NS UINT64_C(100000)
#define LATE_TRIES 2 /* that fail: then the GPU is busy */
#define TRY_PAUSE 9 /* times as long as tries took that have failed, there are none */
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
static driver_result time_of(struct gpu_context *context, driver_handle event, uint64_t *time) {
	float milliseconds;
	driver_result result = gpu.elapsed(&milliseconds, context->events[EVENT_TRIES], event);

	if (!result)
		*time = context->base_time + (uint64_t)(int64_t)((double)milliseconds * 1e6);
	else if (result != DRIVER_ERROR_NOT_READY)
		event_failed(context, result);
	return result;
}

/* The driver tells distances as floats: by how much one from the base may be off. */
static uint64_t distance_error(const struct gpu_context *context, uint64_t time) {
	return (time > context->base_time ? time - context->base_time
					  : context->base_time - time) >>
	       23;
}

/* Has the device this context's clock? The first that asks in a session is the one. */
static bool is_clock(const struct trace_self *thread, const struct gpu_context *context) {
	if ((unsigned)context->device >= DEVICES)
		return false;
	if (clocks[context->device].session != thread->session) {
		clocks[context->device].session = thread->session;
		clocks[context->device].generation = context->generation;
	}
	return clocks[context->device].generation == context->generation;
}

/* A time of the GPU, as CLOCK_MONOTONIC had it, with an error of host_error(). */
static uint64_t host_of(const struct gpu_context *context, uint64_t time) {
	int64_t since = (int64_t)(time - context->base_time);
	uint64_t span = context->base_time - context->first_time;

	if (span >= SLOPE_NS)
		since = (int64_t)((double)since *
				  (double)(context->base_host - context->first_host) /
				  (double)span);
	return context->base_host + (uint64_t)since;
}

static uint64_t host_error(const struct gpu_context *context, uint64_t time) {
	uint64_t span = context->base_time - context->first_time,
		 since = time > context->base_time ? time - context->base_time
						   : context->base_time - time;
	double drift = span >= SLOPE_NS
			       ? (double)(context->first_half + context->base_half) / (double)span
			       : DRIFT;

	return context->base_half + (uint64_t)((double)since * drift) + 1;
}

/* Moments around an event, of the ring's clock and of CLOCK_MONOTONIC. */
struct moments {
	uint64_t before, after;
	uint64_t host_before, host_after;
};

/* Records an event, or two, and sees the last one complete. False: not in time. */
static bool bracket(struct gpu_context *context, driver_handle event, driver_handle second,
		    struct moments *moments) {
	driver_result result;
	uint64_t recorded;

	moments->host_before = monotonic_now();
	moments->before = trace_now();
	result = gpu.event_record(event, context->stream);
	if (!result && second)
		result = gpu.event_record(second, context->stream);
	recorded = monotonic_now(); /* the first time that takes long itself */
	if (!result)
		do {
			result = gpu.event_query(second ? second : event);
			moments->after = trace_now();
			moments->host_after = monotonic_now();
		} while (result == DRIVER_ERROR_NOT_READY &&
			 moments->host_after - recorded < TRY_NS);
	if (result && result != DRIVER_ERROR_NOT_READY)
		event_failed(context, result);
	return !result;
}

/* Once: how long the GPU takes from an event to the next. */
static void measure_empty(struct gpu_context *context) {
	uint64_t least = EMPTY_MAX + 1;
	struct moments moments;
	float milliseconds;

	for (unsigned i = 0; i < EVENT_TRIES && !context->broken; i++)
		if (bracket(context, context->events[0], context->events[1], &moments) &&
		    gpu.elapsed(&milliseconds, context->events[0], context->events[1]) == 0 &&
		    (double)milliseconds * 1e6 < (double)least)
			least = (uint64_t)((double)milliseconds * 1e6);
	context->empty = least <= EMPTY_MAX ? least : 0;
	context->measured = true;
}

/* The event becomes the base. False: its time cannot be told. */
static bool take_base(struct gpu_context *context, unsigned which, const struct moments *moments) {
	driver_handle base = context->events[EVENT_TRIES];
	uint64_t time = moments->host_before;

	if (context->base_time && time_of(context, context->events[which], &time))
		return false;
	context->events[EVENT_TRIES] = context->events[which];
	context->events[which] = base;
	context->base_time = time;
	context->base_before = moments->before;
	context->base_after = moments->after;
	context->base_half = (moments->host_after - moments->host_before) / 2;
	context->base_host = moments->host_before + context->base_half;
	context->base_session = 0;
	if (!context->first_time) {
		context->first_time = context->base_time;
		context->first_host = context->base_host;
		context->first_half = context->base_half;
	}
	return true;
}

/* The event of the tightest of several tries becomes the base. False: the GPU is too busy. */
static bool try_base(struct gpu_context *context) {
	struct moments moments, good = { 0 };
	unsigned best = EVENT_TRIES, late = 0;
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < EVENT_TRIES && !context->broken && late < LATE_TRIES; i++) {
		if (!bracket(context, context->events[i], NULL, &moments)) {
			late++;
		} else if (moments.after - moments.before < least) {
			best = i;
			least = moments.after - moments.before;
			good = moments;
		}
		if (!i && late && !context->base_time && !context->broken) { /* better than none */
			context->loose_host = moments.host_before;
			context->loose_before = moments.before;
		} else if (!i) {
			context->loose_host = 0;
		}
	}
	return best != EVENT_TRIES && take_base(context, best, &good);
}

/*
 * The GPU has been too busy so far. Has it come to the event that was recorded then? It was some
 * time between that and now.
 */
static void take_loose_base(struct gpu_context *context) {
	struct moments moments = { .before = context->loose_before,
				   .host_before = context->loose_host };
	driver_result result = gpu.event_query(context->events[0]);

	moments.after = trace_now();
	moments.host_after = monotonic_now();
	if (result == DRIVER_ERROR_NOT_READY)
		return;
	context->loose_host = 0;
	if (result)
		event_failed(context, result);
	else
		take_base(context, 0, &moments);
}

static void write_pair(struct trace_self *thread, struct gpu_context *context) {
	struct trace_ring_clock_pair *record = trace_reserve(thread, sizeof(*record));

	if (!record) {
		trace_lose(thread);
		return;
	}
	*record = (struct trace_ring_clock_pair){
		.record = { .size = sizeof(*record), .type = TRACE_RING_CLOCK_PAIR },
		.device = (uint32_t)context->device,
		.gpu = context->base_time,
		.before = context->base_before,
		.after = context->base_after,
	};
	trace_write(thread, sizeof(*record));
	context->base_session = thread->session;
}

/*
 * Makes the base anew, if it is old or there is none. What fails is not tried again at once, but
 * for the last times.
 */
static void make_base(struct trace_self *thread, struct gpu_context *context, bool eager) {
	uint64_t now = monotonic_now(), then;

	if (context->loose_host && !context->base_time)
		take_loose_base(context);
	if (now >= context->base_next || (eager && !context->base_time)) {
		bool made = try_base(context);

		if (made && !context->measured)
			measure_empty(context);
		then = monotonic_now();
		context->base_next = then + (made ? BASE_NS : TRY_PAUSE * (then - now));
	}
	if (context->base_time && context->base_session != thread->session &&
	    is_clock(thread, context))
		write_pair(thread, context);
}

static void write_kernel(struct trace_self *thread, const struct trace_timing *timing,
			 uint64_t start, uint64_t end, uint64_t error) {
	const struct gpu_context *context = timing->context;
	struct trace_ring_kernel *record = trace_reserve(thread, sizeof(*record));
	bool host = !is_clock(thread, context);

	error += distance_error(context, start) + distance_error(context, end);
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
 * When a kernel began and ended, from the events: the one before it (that of the kernel before, or
 * its own), and the one behind it. False: that cannot be.
 */
static bool place(const struct trace_timing *timing, uint64_t *start, uint64_t *end,
		  uint64_t *error) {
	const struct gpu_context *context = timing->context;
	uint64_t reached = host_of(context, *start), empty = context->empty, gap = empty;
	uint64_t least = *start;

	if (least > *end)
		return false;
	*error = empty + (timing->mixed ? *end - least : 0);
	if (timing->has_before && reached < timing->recorded + SLACK_NS) {
		/* the GPU waited for the host, which may have been interrupted behind the doorbell
		 */
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

/* The timing has its time, which is written if its session goes on. Inside a session. */
static void tell_kernel(struct trace_self *thread, const struct trace_timing *timing,
			uint64_t start, uint64_t end) {
	uint64_t error;

	if (timing->session != thread->session)
		return;
	if (place(timing, &start, &end, &error))
		write_kernel(thread, timing, start, end, error);
	else
		trace_lose(thread);
	if (timing->counted)
		trace_count_unread(-1);
}

/* It is read: another launch may have it. */
static void let_go(struct gpu_context *context, struct trace_timing **link) {
	struct trace_timing *timing = *link;
	struct gpu_stream *stream = timing->stream;

	if (stream->last == timing)
		stream->last = NULL;
	stream->timings--;
	stream->queued--;
	context->queued--;
	*link = timing->next;
	if (!*link)
		context->pending_end = link;
	timing->next = context->unused;
	context->unused = timing;
}

/*
 * Reads the times of what has ended in a context; with the lock held, inside a session. Each
 * stream is in order: nothing is looked for behind its first launch that has not ended, and nothing
 * at all once all that is left belongs to such streams.
 */
void event_harvest(struct trace_self *thread, struct gpu_context *context, bool eager) {
	struct trace_timing **link = &context->pending;
	unsigned left,
		waiting = 0; /* launches not looked at yet, and those of streams that are busy */

	make_base(thread, context, eager);
	context->harvest++;
	left = context->queued;
	while (*link && left != waiting && context->base_time && !context->broken) {
		struct trace_timing *timing = *link;
		struct gpu_stream *stream = timing->stream;
		uint64_t start = stream->last_end, end;

		left--;
		if (stream->busy == context->harvest) {
			waiting--;
			link = &timing->next;
			continue;
		}
		if (time_of(context, timing->after, &end) ||
		    (timing->has_before && time_of(context, timing->before, &start))) {
			stream->busy = context->harvest;
			waiting += stream->queued - 1;
			link = &timing->next;
			continue;
		}
		tell_kernel(thread, timing, start, end);
		if (!timing->mixed)
			stream->last_end = end;
		let_go(context, link);
	}
}
