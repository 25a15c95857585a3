/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the parts of a pool of workers share: worker-task.c, worker-process.c and worker-pool.c.
 * Others include worker-pool.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "daemon/gpuprobed/base/send-fds.h"
#include "worker-pool.h"
#include "proto/job.h"

#define WORKER_NOBODY UINT64_MAX
#define WORKER_OWNERS_MAX 32 /* whose last turn is remembered */

enum worker_state {
	WORKER_STARTING,
	WORKER_IDLE,
	WORKER_BUSY,
	WORKER_ENDING,
};

struct worker_task {
	TAILQ_ENTRY(worker_task) link;
	json_object *request;
	int fds[JOB_FDS_MAX];
	uint64_t output_max[JOB_FDS_MAX]; /* 0: an input */
	uint64_t output_size[JOB_FDS_MAX];
	unsigned int n_fds;
	uint64_t owners[WORKER_TASK_OWNERS_MAX]; /* the owners that wait for it */
	unsigned int n_owners;
	uint64_t owner; /* of these, in whose turn it is done */
	unsigned int overtime_ms;
	uint64_t queue_until, deadline, limit; /* uv_now: to get a worker, and to be done */
	uint64_t submitted, assigned; /* uv_now */
	bool cancelled, spoiled, mixed, alone, retry;
	struct worker_pool *pool; /* that it was submitted to; NULL: none yet */
	struct worker *worker; /* that has it; NULL: in the queue */
	json_object *features; /* of the worker that answered */
	int64_t id;
	worker_task_fn fn;
	void *userdata;
};

struct worker {
	TAILQ_ENTRY(worker) link;
	struct worker_pool *pool;
	enum worker_state state;
	bool eof; /* the socket has ended, the exit status is awaited */
	bool exited;
	bool overtime;
	unsigned int n_handles; /* open ones */
	uv_signal_t child; /* SIGCHLD */
	pid_t pid;
	uv_poll_t poll;
	uv_timer_t timer;
	int fd;
	json_object *features; /* what it said about itself */
	uint64_t user; /* the owner whose tasks it has had */
	bool mixed; /* ... and another before */
	bool alone; /* it has a task that is to be its only one */
	struct worker_task *task;
};

TAILQ_HEAD(worker_list, worker);
TAILQ_HEAD(worker_task_list, worker_task);

struct worker_pool {
	uv_loop_t *loop;
	char *path;
	char **arguments; /* argv */
	char **environment;
	struct spawner *spawner;
	unsigned int workers, extra_max, owner_max, ready_ms, queue_max;
	bool single_use, freed;
	void (*on_crash)(const char *path, pid_t pid, const char *message);
	void (*on_time)(uint64_t owner, uint64_t ms, void *userdata);
	void *userdata;
	struct worker_list list;
	unsigned int n_alive; /* not ENDING, not in overtime */
	struct worker_task_list queue;
	unsigned int n_queue;
	uv_timer_t timer; /* queue deadlines and restarts */
	bool timer_open;
	double tokens; /* restarts that are allowed now */
	uint64_t tokens_at;
	int64_t next_id;
	struct worker_turn {
		uint64_t owner;
		uint64_t turn; /* 0: none */
		uint64_t failed; /* uv_now() when a worker last ended because of a task of this
				    owner; 0: never */
	} turns[WORKER_OWNERS_MAX];
	uint64_t last_turn;
	json_object *features;
	char trouble[192];
	bool unready; /* the last one that was started did not get ready */
	struct worker_pool_counters counters;
	char *buffer; /* JOB_MESSAGE_MAX + 1 */
};

/* ---- worker-process.c ---- */

/* Starts one process. 0 or -errno, with pool->trouble set. */
int worker_spawn(struct worker_pool *pool);

/* Hands a task to an idle worker. */
void worker_assign(struct worker *worker, struct worker_task *task);

/* It has done its work and ends by itself; another one takes its place at once, as that is no
 * restart after a failure. */
void worker_retire(struct worker *worker);

/* Ends a worker that is not to be trusted any more, and its task, if it has one. */
void worker_fail(struct worker *worker, int result, const char *message);

/* Its deadline comes now. */
void worker_hurry(struct worker *worker);

/* Has its deadline passed while it may take overtime? */
bool worker_task_is_late(const struct worker_task *task);

/* May one more worker be in overtime, for this owner? */
bool worker_pool_has_overtime(const struct worker_pool *pool, uint64_t owner);

/* ---- worker-pool.c ---- */

/* A worker ends by a task of this owner. */
void worker_pool_note_failure(struct worker_pool *pool, uint64_t owner);

/* The worker that had the task has ended by a signal: it is the first in the queue again, if it may
 * be. */
bool worker_pool_retry(struct worker_pool *pool, struct worker_task *task, int signal);

/* Brings the pool to what it should be: dead tasks out, tasks to idle workers, workers started,
 * timer set. */
void worker_pool_update(struct worker_pool *pool);
