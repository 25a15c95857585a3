/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks that the daemon works (watchdog.h), by jobs that go through its workers.
 *
 * A daemon may hang in its loop; it may also go round and round while nothing is done, because its
 * workers are stuck or none can be started. So the sign of life is a job that has been all the way:
 * into the queue, to a worker, and back as a reply. It says nothing itself: beat() does.
 *
 * A ping that is not answered in its quarter of the time costs its worker its life, as any job that
 * is late, and the next one goes to another worker. Only if none of them comes back in the whole
 * time is it the daemon that must go. A pool that is busy is no reason: deadlines of jobs may be
 * longer than our time, and until they have come nobody can say that their workers are stuck. So a
 * ping that got no worker is a sign of life, too, while one works whose time has not come; then the
 * next ping is the first to get it.
 */

#include "watchdog.h"
#include "lib/json.h"
#include "proto/job.h"

#include <errno.h>
#include <stdlib.h>

#define PINGS 4 /* in the time that the daemon has */

struct watchdog {
	struct worker_pool *pool;
	struct worker_task *ping; /* that is on its way, or NULL */
	uv_timer_t timer;
	unsigned int period_ms;
	void (*beat)(void *userdata);
	void *userdata;
};

static void watchdog_on_reply(struct worker_task *task, int result, json_object *reply,
			      const char *message, void *userdata) {
	struct watchdog *watchdog = userdata;

	watchdog->ping = NULL;
	if (result == _WORKER_POOL_SUCCESS ||
	    (result == WORKER_POOL_E_BUSY && worker_pool_load(watchdog->pool).in_time))
		watchdog->beat(watchdog->userdata);
}

static void watchdog_on_timer(uv_timer_t *timer) {
	struct watchdog *watchdog = timer->data;
	json_object *request;

	if (watchdog->ping)
		return;
	request = json_object_new_object();
	json_add_string(request, JOB_KEY_JOB, JOB_PING);
	watchdog->ping = worker_task_new(request, watchdog_on_reply, watchdog);
	if (watchdog->ping)
		worker_pool_submit(watchdog->pool, watchdog->ping, watchdog->period_ms);
}

int watchdog_new(struct watchdog **watchdogp, uv_loop_t *loop, struct worker_pool *pool,
		 uint64_t timeout_ms, void (*beat)(void *userdata), void *userdata) {
	struct watchdog *watchdog = calloc(1, sizeof(*watchdog));

	if (!watchdog)
		return -ENOMEM;
	watchdog->pool = pool;
	watchdog->period_ms =
		timeout_ms / PINGS < UINT32_MAX ? (unsigned int)(timeout_ms / PINGS) : UINT32_MAX;
	watchdog->period_ms += !watchdog->period_ms;
	watchdog->beat = beat;
	watchdog->userdata = userdata;
	uv_timer_init(loop, &watchdog->timer);
	watchdog->timer.data = watchdog;
	uv_timer_start(&watchdog->timer, watchdog_on_timer, 0, watchdog->period_ms);
	*watchdogp = watchdog;
	return 0;
}

static void watchdog_closed(uv_handle_t *handle) {
	free(handle->data);
}

struct watchdog *watchdog_free(struct watchdog *watchdog) {
	if (!watchdog)
		return NULL;
	if (watchdog->ping)
		worker_task_forget(watchdog->ping);
	uv_close((uv_handle_t *)&watchdog->timer, watchdog_closed);
	return NULL;
}
