/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What trace-event.c and trace-event-time.c share. All is used with the lock of the former held. */

#include "shim/driver/driver.h"
#include "trace-event.h"

#define EVENT_STREAMS 256 /* a power of two */
#define EVENT_TRIES 4

/* Names of the legacy stream and of a thread's own, which are the default ones and have the handle
 * 0, too. */
#define EVENT_STREAM_LEGACY 1
#define EVENT_STREAM_OWN 2

/* A stream. last: its latest timing that is not read yet. */
struct gpu_stream {
	bool used;
	uint64_t handle; /* of a default one its name */
	uint32_t tid;
	struct trace_timing *last;
	uint64_t last_end; /* of the latest that was read and is not mixed */
	unsigned other_work;
	unsigned turn; /* counts launches */
	unsigned launching; /* of them: those that are on their way */
	unsigned timings; /* that point here; 0: another stream may have the place */
	unsigned queued; /* that are in gpu_context.pending */
	unsigned busy; /* in which harvest (gpu_context.harvest) it was found so */
};

struct trace_timing {
	struct trace_timing *next;
	struct gpu_context *context;
	struct gpu_stream *stream;
	driver_handle before, after;
	uint64_t recorded,
		launched; /* CLOCK_MONOTONIC: the event before it, and the launch, returned */
	uint64_t function, handle;
	uint64_t session;
	unsigned generation; /* of the context */
	uint32_t tid, sequence;
	unsigned turn, changes; /* of the stream and the context, when it was taken */
	bool has_before, per_thread;
	bool counted; /* in `unread` of the session's ring */
	bool mixed; /* others' launches may lie between its events */
};

struct gpu_context {
	uint64_t handle; /* 0: free */
	unsigned generation;
	int device;
	bool broken;
	driver_result failed; /* what the driver answered then, if it did, */
	bool told; /* and the trace says so */
	driver_handle stream;
	driver_handle events[EVENT_TRIES + 1]; /* the last one is the base, */
	uint64_t base_time; /* of this time, 0: not known yet, */
	uint64_t base_host, base_half; /* which is this one of the host, give or take, */
	uint64_t base_before, base_after; /* and lies between these of the ring's clock */
	uint64_t base_next; /* when it is made anew, by the host's clock */
	uint64_t base_session; /* that has a CLOCK_PAIR of it */
	uint64_t loose_host, loose_before; /* the first of the events was recorded then; 0: it is
					      not waited for */
	bool measured; /* `empty` */
	uint64_t first_time, first_host, first_half; /* of the first base */
	uint64_t empty; /* nanoseconds from an event to the next */
	struct trace_timing *timings; /* all: they stay for the next context that has this place */
	struct trace_timing *unused, *pending, **pending_end;
	unsigned queued; /* that are pending */
	struct gpu_stream streams[EVENT_STREAMS];
	unsigned launches, harvest; /* counts of them */
	bool legacy; /* the last launch was into the legacy stream; */
	unsigned changes; /* counts those after one of which that was not so, */
	unsigned
		launching[2]; /* and this those that are on their way: into others, into that one */
};

#define EVENT_FUNCTIONS(X)                                                        \
	X(event_create, "cuEventCreate", (driver_handle *, unsigned))             \
	X(event_destroy, "cuEventDestroy_v2", (driver_handle))                    \
	X(event_record, "cuEventRecord", (driver_handle, driver_handle))          \
	X(event_record_own, "cuEventRecord_ptsz", (driver_handle, driver_handle)) \
	X(event_query, "cuEventQuery", (driver_handle))                           \
	X(stream_create, "cuStreamCreate", (driver_handle *, unsigned))           \
	X(stream_destroy, "cuStreamDestroy_v2", (driver_handle))                  \
	X(is_capturing, "cuStreamIsCapturing", (driver_handle, int *))            \
	X(is_capturing_own, "cuStreamIsCapturing_ptsz", (driver_handle, int *))   \
	X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *))            \
	X(ctx_get_current, "cuCtxGetCurrent", (driver_handle *))                  \
	X(ctx_get_device, "cuCtxGetDevice", (int *))

struct event_driver {
#define X(field, name, arguments) driver_result(*field) arguments;
	EVENT_FUNCTIONS(X)
#undef X
	driver_result (*elapsed)(float *, driver_handle, driver_handle);
	driver_result (*push)(driver_handle), (*pop)(driver_handle *); /* or NULL */
};

extern struct event_driver gpu __attribute__((visibility("hidden")));

/* The driver has answered with an error: the context is left alone. */
static inline void event_failed(struct gpu_context *context, driver_result result) {
	if (!context->broken)
		context->failed = result;
	context->broken = true;
}

/*
 * trace-event-time.c: reads the times of what has ended in a context, which is current; called
 * inside a session. eager: this is one of the last times.
 */
void event_harvest(struct trace_self *thread, struct gpu_context *context, bool eager);
