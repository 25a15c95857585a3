/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads from NVIDIA's driver (ctl/rm), during a trace, what the daemon does not send: clocks of
 * GPUs and context switches. The daemon has no GPU device; a user who traces CUDA programs may open
 * one. Calls of the driver may take long. So a thread of their own makes them, and nothing waits
 * for that thread longer than a bound.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/rm/source.h"
#include "lib/base/clock.h"
#include "proto/trace.h"
#include "watch.h"

#define PERIOD_NS UINT64_C(50000000)
#ifndef BYTES_MAX
#define BYTES_MAX   \
	((size_t)16 \
	 << 20) /* that wait for a reader who is slow; what comes then is lost, and counted */
#endif

struct trace_watch {
	const struct rm_driver *driver;
	bool ctxsw;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	bool started, stop, ended; /* it has begun what it can; it is to end; it has ended */
	bool abandoned; /* nobody waits for it any more: it frees this */
	bool failed; /* no memory */
	char *bytes; /* records */
	size_t n;
	uint64_t n_lost; /* records that found no room, since the last LOST */
	char *lines; /* of what cannot be had */
};

static void destroy(struct trace_watch *watch) {
	pthread_mutex_destroy(&watch->lock);
	pthread_cond_destroy(&watch->changed);
	free(watch->bytes);
	free(watch->lines);
	free(watch);
}

/* Waits for a change, no longer than until that time. Returns whether there may have been one. */
static bool wait_until(struct trace_watch *watch, uint64_t time) {
	const struct timespec until = { .tv_sec = (time_t)(time / 1000000000),
					.tv_nsec = (long)(time % 1000000000) };

	return pthread_cond_timedwait(&watch->changed, &watch->lock, &until) == 0;
}

/* ---- the thread ---- */

static void take_line(void *userdata, const char *line) {
	struct trace_watch *watch = userdata;
	const size_t n_line = strlen(line);
	size_t n;
	char *lines;

	pthread_mutex_lock(&watch->lock);
	n = watch->lines ? strlen(watch->lines) : 0;
	lines = realloc(watch->lines, n + n_line + 2);
	if (lines) {
		watch->lines = lines;
		memcpy(lines + n, line, n_line);
		memcpy(lines + n + n_line, "\n", 2);
	}
	pthread_mutex_unlock(&watch->lock);
}

static void add_bytes(struct trace_watch *watch, const void *bytes, size_t n) {
	char *all = realloc(watch->bytes, watch->n + n);

	if (all) {
		memcpy(all + watch->n, bytes, n);
		watch->bytes = all;
		watch->n += n;
	}
	watch->failed = watch->failed || !all;
}

/* How many events are lost with a record. */
static uint64_t n_lost_with(const struct trace_record *record) {
	if (record->type == TRACE_LOST)
		return ((const struct trace_lost *)record)->count;
	return record->type != TRACE_CLOCK;
}

/* Adds what has come, if there is room. With the lock. */
static void take_bytes(struct trace_watch *watch, struct rm_source *source) {
	size_t n;
	char *bytes = rm_source_take(source, &n);

	if (bytes && watch->n + n > BYTES_MAX) {
		for (size_t at = 0; at < n;
		     at += ((const struct trace_record *)(const void *)(bytes + at))->size)
			watch->n_lost += n_lost_with((const void *)(bytes + at));
	} else if (bytes) {
		add_bytes(watch, bytes, n);
	}
	free(bytes);
}

/* Until the end. With the lock, which is not held during calls of the driver. */
static void watch_source(struct trace_watch *watch, struct rm_source *source) {
	uint64_t next = monotonic_now();
	bool last = false;
	int r = 0;

	while (!last && !r && !watch->failed) {
		next += PERIOD_NS;
		while (!watch->stop && monotonic_now() < next)
			wait_until(watch, next);
		last = watch->stop;
		pthread_mutex_unlock(&watch->lock);
		next = monotonic_now();
		r = last ? rm_source_finish(source, next) : rm_source_poll(source, next);
		pthread_mutex_lock(&watch->lock);
		take_bytes(watch, source);
	}
	watch->failed = watch->failed || r;
}

static void *run(void *userdata) {
	struct trace_watch *watch = userdata;
	const struct rm_source_options options = {
		.driver = watch->driver, .ctxsw = watch->ctxsw, .tell = take_line, .userdata = watch
	};
	struct rm_source *source = NULL;
	int r;

	r = rm_source_new(&source, &options);
	pthread_mutex_lock(&watch->lock);
	watch->failed = r;
	watch->started = true;
	pthread_cond_broadcast(&watch->changed);
	if (!r) {
		take_bytes(watch, source);
		watch_source(watch, source);
	}
	watch->ended = true;
	pthread_cond_broadcast(&watch->changed);
	pthread_mutex_unlock(&watch->lock);
	rm_source_free(source);
	pthread_mutex_lock(&watch->lock);
	r = watch->abandoned;
	watch->abandoned = true;
	pthread_mutex_unlock(&watch->lock);
	if (r)
		destroy(watch);
	return NULL;
}

/* ---- from outside ---- */

int trace_watch_new(struct trace_watch **watchp, const struct rm_driver *driver, bool ctxsw) {
	struct trace_watch *watch = calloc(1, sizeof(*watch));
	pthread_condattr_t attributes;
	pthread_t thread;
	int r;

	if (!watch)
		return -ENOMEM;
	watch->driver = driver;
	watch->ctxsw = ctxsw;
	pthread_mutex_init(&watch->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&watch->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	r = pthread_create(&thread, NULL, run, watch);
	if (r) {
		destroy(watch);
		return -r;
	}
	pthread_detach(thread);
	*watchp = watch;
	return 0;
}

struct trace_watch *trace_watch_free(struct trace_watch *watch) {
	bool ended;

	if (!watch)
		return NULL;
	pthread_mutex_lock(&watch->lock);
	watch->stop = true;
	pthread_cond_broadcast(&watch->changed);
	ended = watch->abandoned;
	watch->abandoned = true;
	pthread_mutex_unlock(&watch->lock);
	if (ended)
		destroy(watch);
	return NULL;
}

void trace_watch_wait(struct trace_watch *watch, uint64_t milliseconds) {
	const uint64_t until = monotonic_now() + milliseconds * 1000000;

	pthread_mutex_lock(&watch->lock);
	while (!watch->started && monotonic_now() < until)
		wait_until(watch, until);
	pthread_mutex_unlock(&watch->lock);
}

void trace_watch_stop(struct trace_watch *watch, uint64_t milliseconds) {
	const uint64_t until = monotonic_now() + milliseconds * 1000000;

	pthread_mutex_lock(&watch->lock);
	watch->stop = true;
	pthread_cond_broadcast(&watch->changed);
	while (!watch->ended && monotonic_now() < until)
		wait_until(watch, until);
	pthread_mutex_unlock(&watch->lock);
}

int trace_watch_take(struct trace_watch *watch, void **bytesp, size_t *np, char **linesp) {
	struct trace_lost lost = {
		.record = { .size = sizeof(lost), .type = TRACE_LOST, .source = TRACE_SOURCE_GPU },
		.time = monotonic_now()
	};
	int r;

	pthread_mutex_lock(&watch->lock);
	lost.count = watch->n_lost;
	watch->n_lost = 0;
	if (lost.count)
		add_bytes(watch, &lost, sizeof(lost));
	r = watch->failed ? -ENOMEM : 0;
	*bytesp = watch->bytes;
	*np = watch->n;
	*linesp = watch->lines;
	watch->bytes = watch->lines = NULL;
	watch->n = 0;
	pthread_mutex_unlock(&watch->lock);
	return r;
}
