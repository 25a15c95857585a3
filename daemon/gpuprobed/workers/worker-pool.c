/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The queue and the number of workers of a pool (worker-pool.h).
 *
 * A pool of workers: who works next, and how many there are. One worker is worker-process.c, a task
 * worker-task.c.
 *
 * Workers are started ahead of the work: each gets ready (its compiler loaded, its sandbox entered)
 * while nobody waits. A worker is STARTING, IDLE, BUSY with one task, or ENDING; one that ends is
 * replaced, at most RESTART_BURST at once and RESTART_RATE a second afterwards, so that an image
 * which kills its worker costs others little. Owners whose tasks have not crashed a worker bypass
 * this rate limit.
 *
 * Owners of tasks take turns (worker_pool_next()). A task that is to be alone has a worker that
 * nobody has used; if there is none, an idle one ends for it.
 *
 * An owner for whom nobody works does not wait for others' tasks to end: if all workers work for
 * EXTRA_MS on, another one is started for him, as far as extra_max allows; when workers are idle,
 * the pool has as many as before.
 *
 * A task has one deadline, from its submission on. A worker that is late is killed, unless its task
 * may take overtime. A worker in overtime has no place in the pool any more: another one is started
 * for it, and it ends with its task; so whatever takes long, others are served by as many workers
 * as ever. What that costs is bounded: in overtime are at most as many as the pool has workers, and
 * half of them for one owner. A task whose deadline passes in the queue waits on for such a place.
 */

#include "worker-pool-parts.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/spawner.h"
#include "lib/json.h"

#define ROOT 0
#define EXTRA_MS 10
#define RESTART_BURST 16
#define RESTART_RATE 4 /* a second */
#define FAILED_MS 10000 /* so long an owner is one who kills workers */

/* One for the task (NULL: for any): that has seen no other user's bytes, if there is one; one that
 * nobody has used, last of these. */
static struct worker *worker_pool_idle(struct worker_pool *pool, const struct worker_task *task) {
	struct worker *worker, *unused = NULL, *other = NULL;

	TAILQ_FOREACH(worker, &pool->list, link) {
		if (worker->state != WORKER_IDLE || worker->eof)
			continue;
		if (!task ||
		    (!task->alone && (worker->user == task->owner || task->owner == WORKER_NOBODY)))
			return worker;
		if (worker->user == WORKER_NOBODY)
			unused = worker;
		else
			other = worker;
	}
	return unused || (task && task->alone) ? unused : other;
}

static unsigned int worker_pool_works_for(const struct worker_pool *pool, uint64_t owner) {
	const struct worker *worker;
	unsigned int n = 0;

	TAILQ_FOREACH(worker, &pool->list, link)
		n += owner != WORKER_NOBODY && worker->task && worker->task->owner == owner;
	return n;
}

/* Workers that work and are not in overtime. */
static unsigned int worker_pool_busy(const struct worker_pool *pool) {
	const struct worker *worker;
	unsigned int n = 0;

	TAILQ_FOREACH(worker, &pool->list, link)
		n += worker->state == WORKER_BUSY && !worker->overtime;
	return n;
}

/* Has a place in overtime become free, or will it never be needed? Else a task that is late already
 * stays in the queue. */
static bool worker_pool_has_place(const struct worker_pool *pool, const struct worker_task *task,
				  uint64_t owner) {
	return !worker_task_is_late(task) || worker_pool_has_overtime(pool, owner);
}

/* How many may work when one does for the owner. Nobody's are the daemon's own, as root's: whether
 * a worker answers. */
static unsigned int worker_pool_places(const struct worker_pool *pool, uint64_t owner) {
	if (!pool->extra_max || worker_pool_works_for(pool, owner))
		return pool->workers;
	return pool->workers + pool->extra_max + (owner == ROOT || owner == WORKER_NOBODY);
}

/* Whether a task that waits is the first one of an owner for whom another worker may be started
 * besides so many. */
static bool worker_pool_wants(const struct worker_pool *pool, const struct worker_task *task,
			      unsigned int workers) {
	const struct worker_task *before;

	for (unsigned int i = 0; i < task->n_owners; i++) {
		const uint64_t owner = task->owners[i];

		if (workers >= worker_pool_places(pool, owner) ||
		    !worker_pool_has_place(pool, task, owner))
			continue;
		before = TAILQ_FIRST(&pool->queue);
		while (before != task && !worker_task_is_of(before, owner))
			before = TAILQ_NEXT(before, link);
		if (before == task)
			return true;
	}
	return false;
}

/* How many are to be alive. */
static unsigned int worker_pool_wanted(const struct worker_pool *pool) {
	const uint64_t now = uv_now(pool->loop);
	unsigned int wanted = worker_pool_busy(pool);
	const struct worker_task *task;

	TAILQ_FOREACH(task, &pool->queue, link)
		wanted +=
			now - task->submitted >= EXTRA_MS && worker_pool_wants(pool, task, wanted);
	return wanted > pool->workers ? wanted : pool->workers;
}

/* Workers that nobody has used and that will be there soon. */
static unsigned int worker_pool_coming(const struct worker_pool *pool) {
	unsigned int wanted = worker_pool_wanted(pool),
		     n = pool->n_alive < wanted ? wanted - pool->n_alive : 0;
	const struct worker *worker;

	TAILQ_FOREACH(worker, &pool->list, link)
		n += worker->state == WORKER_STARTING;
	return pool->trouble[0] ? UINT_MAX : n;
}

/* When the owner had his last turn; 0: long ago, or never, or there is none. */
static struct worker_turn *worker_pool_turn(const struct worker_pool *pool, uint64_t owner) {
	for (size_t i = 0; i < WORKER_OWNERS_MAX; i++)
		if (pool->turns[i].turn && pool->turns[i].owner == owner)
			return (struct worker_turn *)&pool->turns[i];
	return NULL;
}

static void worker_pool_note_turn(struct worker_pool *pool, uint64_t owner) {
	struct worker_turn *turn = worker_pool_turn(pool, owner), *oldest = &pool->turns[0];

	if (owner == WORKER_NOBODY)
		return;
	for (size_t i = 1; !turn && i < WORKER_OWNERS_MAX; i++)
		oldest = pool->turns[i].turn < oldest->turn ? &pool->turns[i] : oldest;
	*(turn ? turn : oldest) =
		(struct worker_turn){ owner, ++pool->last_turn, turn ? turn->failed : 0 };
}

void worker_pool_note_failure(struct worker_pool *pool, uint64_t owner) {
	struct worker_turn *turn = worker_pool_turn(pool, owner);

	if (turn)
		turn->failed = uv_now(pool->loop);
}

/*
 * The task that is next for an idle worker, or NULL: of the owner for whom the fewest workers work,
 * and of several such, of whom had his last turn first. So who has submitted much does not keep
 * others waiting, nor does who was the first to ask for what several wait for. One that is to be
 * alone and for which a worker is coming waits for that; one whose owner has as many workers as he
 * may, for an end of these.
 */
static struct worker_task *worker_pool_next(struct worker_pool *pool) {
	unsigned int n, best_n = UINT_MAX, coming = worker_pool_coming(pool),
			busy = worker_pool_busy(pool);
	uint64_t turn, best_turn = UINT64_MAX, best_owner = WORKER_NOBODY;
	struct worker_task *task, *best = NULL;

	TAILQ_FOREACH(task, &pool->queue, link) {
		if (best && !best_n && !best_turn)
			break;
		if (task->alone && coming && !worker_pool_idle(pool, task)) {
			coming--;
			continue;
		}
		for (unsigned int i = 0; i < task->n_owners; i++) {
			const uint64_t owner = task->owners[i];
			const struct worker_turn *last = worker_pool_turn(pool, owner);

			n = worker_pool_works_for(pool, owner);
			if ((pool->owner_max && n >= pool->owner_max) ||
			    busy >= worker_pool_places(pool, owner) ||
			    !worker_pool_has_place(pool, task, owner))
				continue;
			turn = last ? last->turn : 0;
			if (n > best_n || (n == best_n && turn >= best_turn))
				continue;
			best = task;
			best_owner = owner;
			best_n = n;
			best_turn = turn;
		}
	}
	if (best)
		best->owner = best_owner;
	return best;
}

static void worker_pool_on_timer(uv_timer_t *timer) {
	worker_pool_update(timer->data);
}

static void worker_pool_closed(uv_handle_t *handle) {
	struct worker_pool *pool = handle->data;

	pool->timer_open = false;
	worker_pool_update(pool);
}

static void worker_pool_destroy(struct worker_pool *pool) {
	for (char **s = pool->arguments; s && *s; s++)
		free(*s);
	for (char **s = pool->environment; s && *s; s++)
		free(*s);
	spawner_free(pool->spawner);
	free(pool->arguments);
	free(pool->environment);
	free(pool->path);
	free(pool->buffer);
	json_object_put(pool->features);
	free(pool);
}

/* Ends idle workers that are too many. */
static void worker_pool_shrink(struct worker_pool *pool) {
	struct worker *worker;

	while (pool->n_alive > worker_pool_wanted(pool) && (worker = worker_pool_idle(pool, NULL)))
		worker_retire(worker);
}

/* When a worker may have to be started for who has none, in milliseconds; 0: it need not be looked
 * at. */
static uint64_t worker_pool_extra_wait(const struct worker_pool *pool, uint64_t now) {
	const struct worker_task *task;

	if (pool->extra_max && worker_pool_busy(pool) >= pool->workers)
		TAILQ_FOREACH(task, &pool->queue, link) /* the oldest first */
			if (now - task->submitted < EXTRA_MS)
				return EXTRA_MS - (now - task->submitted);
	return 0;
}

/* Whether somebody for whom no worker works, is idle or is coming waits, and has killed none of
 * late; not if the trouble is with workers as such. */
static bool worker_pool_owes(const struct worker_pool *pool, uint64_t now) {
	const struct worker_task *task;
	const struct worker *worker;

	if (pool->trouble[0] || pool->unready)
		return false;
	TAILQ_FOREACH(worker, &pool->list, link)
		if (worker->state == WORKER_STARTING || worker->state == WORKER_IDLE)
			return false;
	TAILQ_FOREACH(task, &pool->queue, link)
		for (unsigned int i = 0; i < task->n_owners; i++) {
			const uint64_t owner = task->owners[i];
			const struct worker_turn *turn = worker_pool_turn(pool, owner);

			if (owner != WORKER_NOBODY && !worker_pool_works_for(pool, owner) &&
			    (!turn || !turn->failed || now - turn->failed > FAILED_MS))
				return true;
		}
	return false;
}

/* Starts workers that are missing, as far as the rate of restarts allows. Milliseconds until more
 * may start, or 0. */
static uint64_t worker_pool_restart(struct worker_pool *pool, uint64_t now) {
	pool->tokens += (double)(now - pool->tokens_at) * RESTART_RATE / 1000;
	pool->tokens_at = now;
	if (pool->tokens > RESTART_BURST)
		pool->tokens = RESTART_BURST;
	while (pool->n_alive < worker_pool_wanted(pool)) {
		if (pool->tokens < 1 && !worker_pool_owes(pool, now))
			return (uint64_t)((1 - pool->tokens) * 1000 / RESTART_RATE) + 1;
		pool->tokens = pool->tokens < 1 ? pool->tokens : pool->tokens - 1;
		if (worker_spawn(pool) < 0)
			return 1000 / RESTART_RATE;
	}
	return 0;
}

/* If as many as there should be are ready, only one that was started besides has failed. */
static void worker_pool_end_trouble(struct worker_pool *pool) {
	const struct worker *worker;
	unsigned int ready = 0;

	TAILQ_FOREACH(worker, &pool->list, link)
		ready += !worker->overtime &&
			 (worker->state == WORKER_IDLE || worker->state == WORKER_BUSY);
	if (ready >= pool->workers)
		pool->trouble[0] = '\0';
}

/* Gives tasks to idle workers. Functions of tasks may submit tasks: only the list head is looked at
 * after one was called. */
static void worker_pool_assign(struct worker_pool *pool) {
	struct worker_task *task;
	struct worker *worker;

	while (!TAILQ_EMPTY(&pool->queue) && worker_pool_idle(pool, NULL) &&
	       (task = worker_pool_next(pool))) {
		worker = worker_pool_idle(pool, task);
		if (!worker) { /* it is to be alone: one makes room for another that nobody has used
				*/
			worker_retire(worker_pool_idle(pool, NULL));
			continue;
		}
		worker_pool_note_turn(pool, task->owner);
		TAILQ_REMOVE(&pool->queue, task, link);
		pool->n_queue--;
		if (task->cancelled)
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL,
					     WORKER_POOL_UNWANTED);
		else if (task->fn)
			worker_assign(worker, task);
		else
			worker_task_free(task);
	}
}

/* A task that has waited in vain: until it is late, or there is no worker at all. NULL: none. */
static struct worker_task *worker_pool_in_vain(const struct worker_pool *pool, uint64_t now) {
	struct worker_task *task;

	TAILQ_FOREACH(task, &pool->queue, link)
		if (task->queue_until <= now || (pool->trouble[0] && !pool->n_alive))
			return task;
	return NULL;
}

static void worker_pool_give_up(struct worker_pool *pool, uint64_t now) {
	struct worker_task *task;

	while ((task = worker_pool_in_vain(pool, now))) {
		TAILQ_REMOVE(&pool->queue, task, link);
		pool->n_queue--;
		if (task->cancelled) {
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL,
					     WORKER_POOL_UNWANTED);
		} else if (task->queue_until <= now) {
			pool->counters.busy++;
			worker_task_complete(task, WORKER_POOL_E_BUSY, NULL,
					     "no worker was free in time");
		} else {
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, pool->trouble);
		}
	}
}

void worker_pool_update(struct worker_pool *pool) {
	uint64_t now = uv_now(pool->loop), wait, extra_wait;
	const struct worker_task *task;

	if (pool->freed) {
		if (!pool->timer_open && TAILQ_EMPTY(&pool->list))
			worker_pool_destroy(pool);
		return;
	}
	worker_pool_end_trouble(pool);
	worker_pool_assign(pool);
	worker_pool_give_up(pool, now);
	worker_pool_shrink(pool);
	wait = worker_pool_restart(pool, now);
	extra_wait = worker_pool_extra_wait(pool, now);
	if (extra_wait && (!wait || extra_wait < wait))
		wait = extra_wait;
	TAILQ_FOREACH(task, &pool->queue, link)
		if (!wait || task->queue_until - now < wait)
			wait = task->queue_until > now ? task->queue_until - now : 1;
	if (wait)
		uv_timer_start(&pool->timer, worker_pool_on_timer, wait, 0);
	else
		uv_timer_stop(&pool->timer);
}

static char **worker_strings(const char *first, const char *const *rest) {
	size_t n = 0, i = 0;
	char **copy;

	while (rest && rest[n])
		n++;
	copy = calloc(n + 2, sizeof(*copy));
	if (!copy)
		return NULL;
	if (first && !(copy[i++] = strdup(first)))
		return copy;
	for (size_t k = 0; k < n; k++)
		if (!(copy[i++] = strdup(rest[k])))
			return copy;
	return copy;
}

int worker_pool_new(struct worker_pool **poolp, uv_loop_t *loop,
		    const struct worker_pool_options *options) {
	struct worker_pool *pool;
	int r;

	if (options->size != sizeof(*options))
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	TAILQ_INIT(&pool->list);
	TAILQ_INIT(&pool->queue);
	pool->loop = loop;
	pool->workers = options->workers ? options->workers : 1;
	pool->single_use = options->single_use;
	pool->extra_max = options->extra_max;
	pool->owner_max = options->owner_max;
	pool->on_crash = options->on_crash;
	pool->on_time = options->on_time;
	pool->userdata = options->userdata;
	pool->ready_ms = options->ready_ms ? options->ready_ms : 20000;
	pool->queue_max = options->queue_max ? options->queue_max : 4096;
	pool->path = strdup(options->path);
	pool->arguments = worker_strings(options->path, options->arguments);
	pool->environment = worker_strings(NULL, options->environment);
	pool->buffer = malloc(JOB_MESSAGE_MAX);
	if (!pool->path || !pool->arguments || !pool->environment || !pool->buffer) {
		worker_pool_destroy(pool);
		return -ENOMEM;
	}
	r = spawner_new(&pool->spawner);
	if (r < 0) {
		worker_pool_destroy(pool);
		return r;
	}
	pool->tokens = RESTART_BURST + pool->workers;
	pool->tokens_at = uv_now(loop);
	uv_timer_init(loop, &pool->timer);
	pool->timer.data = pool;
	pool->timer_open = true;
	worker_pool_update(pool);
	*poolp = pool;
	return 0;
}

struct worker_pool *worker_pool_free(struct worker_pool *pool) {
	struct worker_task *task;
	struct worker *worker;

	if (!pool)
		return NULL;
	pool->freed = true;
	while ((task = TAILQ_FIRST(&pool->queue))) {
		TAILQ_REMOVE(&pool->queue, task, link);
		worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, "the daemon stops");
	}
	TAILQ_FOREACH(worker, &pool->list, link)
		worker_fail(worker, WORKER_POOL_E_UNAVAILABLE, "the daemon stops");
	uv_close((uv_handle_t *)&pool->timer, worker_pool_closed);
	return NULL;
}

/* How long it may take from now on. */
static void worker_task_start_clock(struct worker_task *task, unsigned int deadline_ms) {
	task->deadline = uv_now(task->pool->loop) + deadline_ms;
	task->limit = task->deadline + task->overtime_ms;
	task->queue_until = task->limit;
}

void worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			unsigned int deadline_ms) {
	task->pool = pool;
	task->submitted = uv_now(pool->loop);
	worker_task_start_clock(task, deadline_ms);
	if (pool->n_queue >= pool->queue_max)
		task->queue_until = 0; /* finished by the timer, as never from within */
	TAILQ_INSERT_TAIL(&pool->queue, task, link);
	pool->n_queue++;
	pool->counters.jobs++;
	uv_timer_start(&pool->timer, worker_pool_on_timer, 0, 0);
}

bool worker_pool_retry(struct worker_pool *pool, struct worker_task *task, int signal) {
	if (signal != SIGABRT || !task->retry || task->cancelled || pool->freed)
		return false;
	for (unsigned int i = 0; i < task->n_fds; i++)
		if (task->output_max[i] && ftruncate(task->fds[i], 0) < 0)
			return false;
	task->retry = false;
	task->worker = NULL;
	json_add_bool(task->request, JOB_KEY_ONE_THREAD, true);
	TAILQ_INSERT_HEAD(&pool->queue, task, link);
	pool->n_queue++;
	return true;
}

void worker_task_share(struct worker_task *task, uint64_t owner, unsigned int deadline_ms) {
	if (task->worker || worker_task_is_of(task, owner) ||
	    task->n_owners == WORKER_TASK_OWNERS_MAX)
		return;
	task->owners[task->n_owners++] = owner;
	if (!task->pool || task->cancelled ||
	    !task->queue_until) /* it comes to the pool later, or is ending */
		return;
	worker_task_start_clock(task, deadline_ms);
	uv_timer_start(&task->pool->timer, worker_pool_on_timer, 0, 0);
}

void worker_task_cancel(struct worker_task *task) {
	task->cancelled = true;
	task->deadline = task->queue_until = 0;
	if (!task->pool)
		return;
	if (task->worker)
		worker_hurry(task->worker);
	else
		uv_timer_start(&task->pool->timer, worker_pool_on_timer, 0, 0);
}

const struct worker_pool_counters *worker_pool_counters(const struct worker_pool *pool) {
	return &pool->counters;
}

struct worker_pool_load worker_pool_load(const struct worker_pool *pool) {
	struct worker_pool_load load = { .queued = pool->n_queue };
	const struct worker *worker;

	TAILQ_FOREACH(worker, &pool->list, link) {
		load.alive += worker->state != WORKER_ENDING;
		load.working += worker->state == WORKER_BUSY;
		load.in_time +=
			worker->state == WORKER_BUSY && worker->task->deadline > uv_now(pool->loop);
	}
	return load;
}

json_object *worker_pool_features(const struct worker_pool *pool) {
	return pool->features;
}

const char *worker_pool_trouble(const struct worker_pool *pool) {
	return pool->trouble[0] ? pool->trouble : NULL;
}
