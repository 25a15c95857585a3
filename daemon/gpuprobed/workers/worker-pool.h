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
	/* a worker has ended by itself; of those that do not get ready one after the other only the
	 * first. NULL: nobody asks */
	void (*on_crash)(const char *path, pid_t pid, const char *message);
	/* a worker was busy so long with a task of this owner. NULL: nobody asks */
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

/* Now: workers alive, those that work (in overtime, too), those of them whose deadline is still to
 * come, and jobs that wait. */
struct worker_pool_load {
	unsigned int alive, working, in_time, queued;
};

/* Starts the workers; before anything comes from strangers (spawner.h). 0 or -errno; a worker that
 * does not start is tried again later. */
int worker_pool_new(struct worker_pool **poolp, uv_loop_t *loop,
		    const struct worker_pool_options *options);

/* Kills the workers, calls the functions of all tasks. Memory goes once the loop has closed its
 * handles. */
struct worker_pool *worker_pool_free(struct worker_pool *pool);

const struct worker_pool_counters *worker_pool_counters(const struct worker_pool *pool);
struct worker_pool_load worker_pool_load(const struct worker_pool *pool);

/* What the last worker that got ready said about itself; NULL: none did yet. Borrowed. */
json_object *worker_pool_features(const struct worker_pool *pool);

/* One line on why no worker is alive, or NULL. */
const char *worker_pool_trouble(const struct worker_pool *pool);

/* Consumes the request, also on failure. NULL: no memory. */
struct worker_task *worker_task_new(json_object *request, worker_task_fn fn, void *userdata);
struct worker_task *worker_task_free(struct worker_task *task); /* one that was not submitted */

/* Consumes fd. Its index in the message, or -E2BIG. An input must be sealed. */
int worker_task_add_input(struct worker_task *task, int fd);

/* The same of a copy of fd. Its index, or -errno. */
int worker_task_add_copy(struct worker_task *task, int fd);

/* Makes an empty memfd that the worker fills with at most max bytes. Its index, or -errno. */
int worker_task_add_output(struct worker_task *task, uint64_t max);

/* The descriptor at index, no longer the task's; -1 if there is none. */
int worker_task_steal_fd(struct worker_task *task, unsigned int index);

/* The descriptor at index becomes another one, sealed, with so many bytes in it. Consumes fd (-1:
 * none). */
void worker_task_replace_output(struct worker_task *task, unsigned int index, int fd,
				uint64_t size);

/* Bytes in the output at index. 0 for none. */
uint64_t worker_task_output_size(const struct worker_task *task, unsigned int index);

/* Whose work it is: owners take turns. Without, it is nobody's, and comes first. */
void worker_task_set_owner(struct worker_task *task, uint64_t owner);
bool worker_task_has_owner(const struct worker_task *task);

/*
 * Another owner waits for it, too: it is done at the turn of whichever of them comes first, as that
 * one's work, and may take as long as if it had been submitted now. Of WORKER_TASK_OWNERS_MAX at
 * most; who comes later waits for the turn of one of these. Nothing changes once a worker has it.
 */
void worker_task_share(struct worker_task *task, uint64_t owner, unsigned int deadline_ms);

/* Each of them; i is less than worker_task_owners(). */
unsigned int worker_task_owners(const struct worker_task *task);
uint64_t worker_task_owner_at(const struct worker_task *task, unsigned int i);
bool worker_task_is_of(const struct worker_task *task, uint64_t owner);

/*
 * Whether the worker that answered has had another owner's task before: it could be in the hands of
 * that one. It gets no more work; and who has had another owner's tasks is not taken as long as
 * there are other workers.
 */
bool worker_task_mixed(const struct worker_task *task);

/* It is done by a worker that has had no owner's task before and gets none afterwards: what it says
 * is for more than one user. */
void worker_task_set_alone(struct worker_task *task);

/* It is done once more, by another worker and with "one_thread" in the request, if the first one
 * aborts: compilers do so in threads (job.md). */
void worker_task_set_retry(struct worker_task *task);

/*
 * A worker that has the task when its deadline comes may go on for so long, unless too many do so
 * for the same owner, or at all. If none has it by then, it waits until fewer do so, as long as
 * that at most, and may then take as long.
 */
void worker_task_set_overtime(struct worker_task *task, unsigned int overtime_ms);

/* Consumes the task; its function is called later, never from within. */
void worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			unsigned int deadline_ms);

/* Ends a task that was submitted, soon; its function is called then. */
void worker_task_cancel(struct worker_task *task);

/* The function will not be called. */
void worker_task_forget(struct worker_task *task);

/* Of a task whose function is being called: what came is no good after all, and not worth keeping.
 */
void worker_task_spoil(struct worker_task *task);

/* ---- for who stands between a task and its pool (cache/job-cache.c) ---- */

/* What it asks for, borrowed. May be changed before it is submitted. */
json_object *worker_task_request(const struct worker_task *task);

/* Its descriptors, borrowed; max: that of an output, 0 for an input. -1: there is none at this
 * index. */
unsigned int worker_task_fds(const struct worker_task *task);
int worker_task_fd(const struct worker_task *task, unsigned int index, uint64_t *max);

/* Another function for it; the one that it has is handed over. */
void worker_task_redirect(struct worker_task *task, worker_task_fn *fn, void **userdata);

/* What the worker that answered says about itself; NULL: it was none. */
json_object *worker_task_features(const struct worker_task *task);

bool worker_task_spoiled(const struct worker_task *task);
bool worker_task_cancelled(const struct worker_task *task);

/* Ends one that was not submitted: calls the function and frees it. */
void worker_task_complete(struct worker_task *task, int result, json_object *reply,
			  const char *message);
