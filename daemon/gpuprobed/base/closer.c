/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Closes descriptors of other users in a thread (closer.h).
 *
 * One thread closes sockets and memory, one after the other. What lies unread in them was never
 * ours, so all that can make it wait is a lingering socket, and that wait ends with a signal: a
 * timer sends the thread one so soon that nobody makes such sockets faster than they are closed. A
 * descriptor that we have received has a thread to itself, as a file system that does not answer
 * holds it for good. There are FOREIGN_THREADS_MAX of these at most; other descriptors wait for one
 * of them.
 *
 * Threads are detached, because nobody can wait for one that hangs. What they share with the loop
 * goes with the last of them.
 */

#include "closer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "detached.h"
#include "memfd.h"

#define FOREIGN_THREADS_MAX 64
#define NUDGE SIGURG /* nothing else uses it, and by default it does nothing */
#define NUDGE_NS 50000
#define BEHIND 8 /* one part in so many of the descriptors that this process may have */

struct closing {
	TAILQ_ENTRY(closing) link;
	struct shared *shared;
	int fd;
	bool over; /* the thread has come back; this and the next under the mutex */
	bool abandoned; /* the thread is to free it */
	void (*done)(void *userdata);
	void *userdata;
};

TAILQ_HEAD(closing_list, closing);

/* What the threads use. */
struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t more;
	struct closing_list sockets;
	unsigned int n_sockets; /* in the list, and the one that is being closed */
	unsigned int n_refs; /* threads, and the closer */
	bool ends;
	uv_async_t *async; /* NULL at the end */
};

struct closer {
	struct shared *shared;
	uv_async_t async;
	struct closing_list waiting, running; /* foreign ones: for a thread, and that have one */
	unsigned int n_running;
	rlim_t behind; /* with more sockets it is */
};

static void on_nudge(int number) {
}

/* The mutex is held, and let go. */
static void shared_unref(struct shared *shared) {
	const bool last = --shared->n_refs == 0;

	pthread_mutex_unlock(&shared->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&shared->more);
	pthread_mutex_destroy(&shared->mutex);
	free(shared);
}

/* A timer that can send this thread signals, not armed. */
static bool nudge_new(timer_t *timerp) {
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = NUDGE };

	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	return timer_create(CLOCK_MONOTONIC, &event, timerp) == 0;
}

static void nudge_arm(timer_t timer, bool armed) {
	const struct timespec period = { .tv_nsec = armed ? NUDGE_NS : 0 };

	timer_settime(timer, 0, &(struct itimerspec){ period, period }, NULL);
}

/* Signals come as long as there is something to be closed. */
static void *close_sockets(void *userdata) {
	struct shared *shared = userdata;
	struct closing *closing;
	timer_t timer;
	const bool has_timer = nudge_new(&timer);
	bool armed = false;

	pthread_mutex_lock(&shared->mutex);
	for (;;) {
		closing = TAILQ_FIRST(&shared->sockets);
		if (!closing && shared->ends)
			break;
		if (has_timer && armed != !!closing) {
			armed = !!closing;
			nudge_arm(timer, armed);
		}
		if (!closing) {
			pthread_cond_wait(&shared->more, &shared->mutex);
			continue;
		}
		TAILQ_REMOVE(&shared->sockets, closing, link);
		pthread_mutex_unlock(&shared->mutex);
		fd_close(closing->fd);
		free(closing);
		pthread_mutex_lock(&shared->mutex);
		shared->n_sockets--;
	}
	shared_unref(shared);
	if (has_timer)
		timer_delete(timer);
	return NULL;
}

static void *close_foreign(void *userdata) {
	struct closing *closing = userdata;
	struct shared *shared = closing->shared;
	timer_t timer;
	const bool has_timer = nudge_new(&timer);

	if (has_timer)
		nudge_arm(timer, true);
	fd_close(closing->fd);
	if (has_timer)
		timer_delete(timer);
	pthread_mutex_lock(&shared->mutex);
	closing->over = true;
	if (closing->abandoned)
		free(closing);
	else
		uv_async_send(shared->async);
	shared_unref(shared);
	return NULL;
}

/* Starts threads for those that wait, as far as there may be more. */
static void closer_start(struct closer *closer) {
	struct shared *shared = closer->shared;
	struct closing *closing;

	while (closer->n_running < FOREIGN_THREADS_MAX &&
	       (closing = TAILQ_FIRST(&closer->waiting))) {
		pthread_mutex_lock(&shared->mutex);
		shared->n_refs++;
		pthread_mutex_unlock(&shared->mutex);
		if (detached_start(close_foreign, closing, NUDGE) < 0) {
			pthread_mutex_lock(&shared->mutex);
			shared_unref(shared);
			return; /* with the next one, or when one is over */
		}
		TAILQ_REMOVE(&closer->waiting, closing, link);
		TAILQ_INSERT_TAIL(&closer->running, closing, link);
		closer->n_running++;
	}
}

static void closer_on_over(uv_async_t *async) {
	struct closer *closer = async->data;
	struct closing *closing, *next;
	bool over;

	for (closing = TAILQ_FIRST(&closer->running); closing; closing = next) {
		next = TAILQ_NEXT(closing, link);
		pthread_mutex_lock(&closer->shared->mutex);
		over = closing->over;
		pthread_mutex_unlock(&closer->shared->mutex);
		if (!over)
			continue;
		TAILQ_REMOVE(&closer->running, closing, link);
		closer->n_running--;
		closing->done(closing->userdata);
		free(closing);
	}
	closer_start(closer);
}

int closer_new(struct closer **closerp, uv_loop_t *loop) {
	const struct sigaction action = { .sa_handler = on_nudge };
	struct rlimit limit = { .rlim_cur = 1024 };
	struct closer *closer = calloc(1, sizeof(*closer));
	struct shared *shared = calloc(1, sizeof(*shared));
	int r = closer && shared ? 0 : -ENOMEM;

	if (r == 0)
		r = uv_async_init(loop, &closer->async, closer_on_over);
	if (r < 0) {
		free(closer);
		free(shared);
		return r;
	}
	sigaction(NUDGE, &action, NULL);
	getrlimit(RLIMIT_NOFILE, &limit);
	closer->behind = limit.rlim_cur / BEHIND;
	pthread_mutex_init(&shared->mutex, NULL);
	pthread_cond_init(&shared->more, NULL);
	TAILQ_INIT(&shared->sockets);
	TAILQ_INIT(&closer->waiting);
	TAILQ_INIT(&closer->running);
	shared->n_refs = 2;
	shared->async = &closer->async;
	closer->async.data = closer;
	closer->shared = shared;
	r = detached_start(close_sockets, shared, NUDGE);
	if (r < 0) {
		shared->n_refs--;
		closer_free(closer);
		return r;
	}
	*closerp = closer;
	return 0;
}

static void closer_on_closed(uv_handle_t *handle) {
	free(handle->data);
}

/* Nobody waits for these any more. */
static void closer_abandon(struct closing_list *list, bool have_threads) {
	struct closing *closing;

	while ((closing = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, closing, link);
		closing->done(closing->userdata);
		if (have_threads && !closing->over)
			closing->abandoned = true;
		else
			free(closing);
	}
}

struct closer *closer_free(struct closer *closer) {
	struct shared *shared;

	if (!closer)
		return NULL;
	shared = closer->shared;
	pthread_mutex_lock(&shared->mutex);
	shared->ends = true;
	shared->async = NULL;
	pthread_cond_signal(&shared->more);
	closer_abandon(&closer->waiting, false);
	closer_abandon(&closer->running, true);
	shared_unref(shared);
	uv_close((uv_handle_t *)&closer->async, closer_on_closed);
	return NULL;
}

/* A new entry, or NULL: it is closed here, as there is nothing better. */
static struct closing *closing_new(struct closer *closer, int fd) {
	struct closing *closing = closer ? calloc(1, sizeof(*closing)) : NULL;

	if (!closing) {
		fd_close(fd);
		return NULL;
	}
	closing->fd = fd;
	closing->shared = closer->shared;
	return closing;
}

void closer_socket(struct closer *closer, int consumed_fd) {
	struct closing *closing = closing_new(closer, consumed_fd);

	if (!closing)
		return;
	pthread_mutex_lock(&closer->shared->mutex);
	TAILQ_INSERT_TAIL(&closer->shared->sockets, closing, link);
	closer->shared->n_sockets++;
	pthread_cond_signal(&closer->shared->more);
	pthread_mutex_unlock(&closer->shared->mutex);
}

void closer_memory(struct closer *closer, int consumed_fd) {
	closer_socket(closer, consumed_fd);
}

bool closer_is_behind(const struct closer *closer) {
	bool is_behind;

	if (!closer)
		return false;
	pthread_mutex_lock(&closer->shared->mutex);
	is_behind = closer->shared->n_sockets > closer->behind;
	pthread_mutex_unlock(&closer->shared->mutex);
	return is_behind;
}

void closer_foreign(struct closer *closer, int consumed_fd, void (*done)(void *userdata),
		    void *userdata) {
	struct closing *closing = closing_new(closer, consumed_fd);

	if (!closing) {
		done(userdata);
		return;
	}
	closing->done = done;
	closing->userdata = userdata;
	TAILQ_INSERT_TAIL(&closer->waiting, closing, link);
	closer_start(closer);
}
