/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A pool of worker processes (worker/job.md). Nothing here blocks: tasks are queued, and their
 * function is called from the loop once, with the reply or with the reason why there is none.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "lib/json.h"
#include "proto/job.h"

enum {
	_WORKER_POOL_SUCCESS, /* the reply has a status that is not "error"; outputs are sealed */
	WORKER_POOL_E_REFUSED, /* status "error": reply has error, message, perhaps log */
	WORKER_POOL_E_TIMEOUT, /* the worker was late, and is dead now */
	WORKER_POOL_E_BUSY, /* no worker was free in time */
	WORKER_POOL_E_CRASHED,
	WORKER_POOL_E_PROTOCOL, /* what came is no reply */
	WORKER_POOL_E_UNAVAILABLE, /* no worker starts, the pool ends, or it was cancelled */
};

#define WORKER_TASK_OWNERS_MAX 8
#define WORKER_POOL_UNWANTED "it is not wanted any more" /* message of what was cancelled */

struct worker_pool;
struct worker_task;

/*
 * result is one of the above; reply is borrowed, NULL unless SUCCESS or REFUSED; message is one
 * line, empty on success. Descriptors can be taken with worker_task_steal_fd(). The task is freed
 * afterwards.
 */
typedef void (*worker_task_fn)(struct worker_task *task, int result, json_object *reply,
			       const char *message, void *userdata);

struct worker_pool_options {
	size_t size; /* of this struct */
	const char *path; /* of the executable; copied */
	const char *const *arguments; /* NULL-terminated, after argv[0]; copied */
	const char *const *environment; /* NULL-terminated; copied */
	unsigned int workers; /* alive at a time, but for those in overtime, and the next */
	unsigned int extra_max; /* started besides, while all work, for owners for whom none works;
				   and one more for root; 0: none */
	bool single_use; /* a worker serves one job, then ends */
	unsigned int owner_max; /* that work for one owner at a time; 0: all */
	unsigned int ready_ms; /* how long a worker may take to get ready; 0: 20 s */
	unsigned int queue_max; /* tasks waiting; 0: 4096 */
	/*
	 * a worker has ended by itself; if several in turn do not get ready, only the first is
	 * reported. NULL: not called
	 */
	void (*on_crash)(const char *path, pid_t pid, const char *message);
	/* a worker was busy for `ms` milliseconds with a task of this owner. NULL: not called */
	void (*on_time)(uint64_t owner, uint64_t ms, void *userdata);
	void *userdata;
};

struct worker_pool_counters {
	uint64_t crashes;
	uint64_t timeouts;
	uint64_t spawned;
	uint64_t jobs; /* submitted */
	uint64_t busy; /* jobs for which no worker was free in time */
};

/* Counts of this moment: workers alive, workers with a task, those of them whose deadline has not
 * passed, and tasks in the queue. */
struct worker_pool_load {
	unsigned int alive, working, in_time, queued;
};

/* Starts the workers. Call it before other users can connect (spawner.h). 0 or -errno; a worker
 * that does not start is started again later. */
int worker_pool_new(struct worker_pool **poolp, uv_loop_t *loop,
		    const struct worker_pool_options *options);

/* Kills the workers and calls the functions of all tasks. Memory is freed when the loop has closed
 * its handles. */
struct worker_pool *worker_pool_free(struct worker_pool *pool);

const struct worker_pool_counters *worker_pool_counters(const struct worker_pool *pool);
struct worker_pool_load worker_pool_load(const struct worker_pool *pool);

/* What the worker that got ready last said about itself; NULL: no worker has got ready. Borrowed.
 */
json_object *worker_pool_features(const struct worker_pool *pool);

/* One line on why no worker is alive, or NULL. */
const char *worker_pool_trouble(const struct worker_pool *pool);

/* What a reply says: enum job_status, enum job_error; -1: nothing that there is. */
static inline int job_status_of(json_object *reply) {
	return JOB_WORD(job_statuses, json_string_of(reply, JOB_KEY_STATUS));
}
static inline int job_error_of(json_object *reply) {
	return JOB_WORD(job_errors, json_string_of(reply, JOB_KEY_ERROR));
}

/* A new task. Takes over the request, also on failure. NULL: no memory. */
struct worker_task *worker_task_new(json_object *request, worker_task_fn fn, void *userdata);
struct worker_task *worker_task_free(struct worker_task *task); /* one that was not submitted */

/* Adds a descriptor to the task, and takes it over. An input must be sealed. Returns its index in
 * the message, or -E2BIG. */
int worker_task_add_input(struct worker_task *task, int fd);

/* The same with a copy of fd. Returns its index, or -errno. */
int worker_task_add_copy(struct worker_task *task, int fd);

/* Adds an empty memfd that the worker fills with at most `max` bytes. Returns its index, or -errno.
 */
int worker_task_add_output(struct worker_task *task, uint64_t max);

/* Takes the descriptor at index out of the task; -1 if there is none. */
int worker_task_steal_fd(struct worker_task *task, unsigned int index);

/* Replaces the descriptor at index by fd, which is sealed and holds `size` bytes. Takes fd over
 * (-1: none). */
void worker_task_replace_output(struct worker_task *task, unsigned int index, int fd,
				uint64_t size);

/* Bytes in the output at index; 0: there is none. */
uint64_t worker_task_output_size(const struct worker_task *task, unsigned int index);

/*
 * Sets the owner for whom the task is done: owners take turns. A task without an owner comes first.
 */
void worker_task_set_owner(struct worker_task *task, uint64_t owner);
bool worker_task_has_owner(const struct worker_task *task);

/*
 * Another owner waits for the same task. It is then done at the turn of the owner whose turn comes
 * first, and counts as that owner's work; its deadline is as if it had been submitted now. A task
 * has WORKER_TASK_OWNERS_MAX owners at most; later ones wait without a turn of their own. Has no
 * effect once a worker has the task.
 */
void worker_task_share(struct worker_task *task, uint64_t owner, unsigned int deadline_ms);

/* Owner number i, which is less than worker_task_owners(). */
unsigned int worker_task_owners(const struct worker_task *task);
uint64_t worker_task_owner_at(const struct worker_task *task, unsigned int i);
bool worker_task_is_of(const struct worker_task *task, uint64_t owner);

/*
 * Whether the worker that answered had a task of another owner before. That owner may have taken it
 * over by a hostile task, so its answer must not be kept for others. Such a worker gets no more
 * work, and the pool uses it only if there is no other.
 */
bool worker_task_mixed(const struct worker_task *task);

/* The task is done by a worker that had no owner's task before and gets none afterwards: the answer
 * serves more than one user. */
void worker_task_set_alone(struct worker_task *task);

/* If the worker aborts, another one does the task again, with "one_thread" in the request: NVIDIA's
 * compiler may abort when it uses several threads (job.md). */
void worker_task_set_retry(struct worker_task *task);

/*
 * Overtime: a worker that still works on the task at its deadline may continue for overtime_ms
 * milliseconds, unless too many workers are in overtime already, for this owner or in all. A task
 * that no worker has taken by its deadline waits at most that long until fewer are, and may then
 * take as long.
 */
void worker_task_set_overtime(struct worker_task *task, unsigned int overtime_ms);

/* Puts the task into the queue, and takes it over. Its function is called later, never from within
 * this call. */
void worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			unsigned int deadline_ms);

/* Cancels a task that was submitted. Its function is called soon. */
void worker_task_cancel(struct worker_task *task);

/* Cancels a task; its function will not be called. */
void worker_task_forget(struct worker_task *task);

/* To be called within the task's function: the answer is no good, and is not put into the cache. */
void worker_task_spoil(struct worker_task *task);

/* ---- for the cache, which stands between a task and its pool (cache/job-cache.c) ---- */

/* The request, borrowed. May be changed before the task is submitted. */
json_object *worker_task_request(const struct worker_task *task);

/* The descriptor at an index, borrowed; -1: there is none. *max: the largest size of an output; 0:
 * it is an input. */
unsigned int worker_task_fds(const struct worker_task *task);
int worker_task_fd(const struct worker_task *task, unsigned int index, uint64_t *max);

/* Gives the task another function, and returns the one that it had. */
void worker_task_redirect(struct worker_task *task, worker_task_fn *fn, void **userdata);

/* What the worker that answered says about itself; NULL: no worker answered. */
json_object *worker_task_features(const struct worker_task *task);

bool worker_task_spoiled(const struct worker_task *task);
bool worker_task_cancelled(const struct worker_task *task);

/* Ends a task that was not submitted: calls its function and frees it. */
void worker_task_complete(struct worker_task *task, int result, json_object *reply,
			  const char *message);
