/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Starts, serves and ends one worker process (worker-pool-parts.h).
 *
 * One worker process: its start, the messages from and to it, its deadline and its end.
 *
 * A worker that is late is killed, unless its task may take overtime. Killed is also one whose
 * reply is no reply, because what it says next cannot be trusted either. End of file on the socket
 * comes before the exit status: a busy worker whose socket ends has GRACE_MS to show the signal
 * that killed it, so that the message can name it.
 *
 * Workers get descriptors 0-2 and their socket, an environment of a few words, and a session of
 * their own.
 */

#include "worker-pool-parts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/base/spawner.h"
#include "lib/json.h"

#define WORKER_DEPTH_MAX 16
#define GRACE_MS 200
#define ENDING_MS 2000

static void worker_on_timer(uv_timer_t *timer);

static void worker_closed(uv_handle_t *handle) {
	struct worker *worker = handle->data;
	struct worker_pool *pool = worker->pool;

	if (--worker->n_handles)
		return;
	fd_close(worker->fd);
	json_object_put(worker->features);
	TAILQ_REMOVE(&pool->list, worker, link);
	free(worker);
	worker_pool_update(pool);
}

static void worker_close_handles(struct worker *worker) {
	uv_close((uv_handle_t *)&worker->child, worker_closed);
	uv_close((uv_handle_t *)&worker->timer, worker_closed);
	if (worker->poll.loop)
		uv_close((uv_handle_t *)&worker->poll, worker_closed);
}

static void worker_kill(struct worker *worker) {
	if (!worker->exited)
		kill(worker->pid, SIGKILL);
}

/* The task that it has no more, or NULL. */
static struct worker_task *worker_take_task(struct worker *worker) {
	const struct worker_pool *pool = worker->pool;
	struct worker_task *task = worker->task;

	worker->task = NULL;
	if (task && task->owner != WORKER_NOBODY && pool->on_time)
		pool->on_time(task->owner, uv_now(pool->loop) - task->assigned, pool->userdata);
	return task;
}

/* From here on the worker gets no work; its exit ends it. */
static void worker_end(struct worker *worker) {
	if (worker->state != WORKER_ENDING) {
		worker->state = WORKER_ENDING;
		if (!worker->overtime)
			worker->pool->n_alive--;
		if (worker->poll.loop)
			uv_poll_stop(&worker->poll);
	}
}

void worker_fail(struct worker *worker, int result, const char *message) {
	struct worker_task *task = worker_take_task(worker);

	worker_end(worker);
	worker_kill(worker);
	if (task) {
		worker_pool_note_failure(worker->pool, task->owner);
		worker_task_complete(task, result, NULL, message);
	}
}

static void worker_exited(struct worker *worker, int status) {
	struct worker_pool *pool = worker->pool;
	struct worker_task *task = worker_take_task(worker);
	const int term_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	const bool again = task && worker_pool_retry(pool, task, term_signal);
	char message[128];

	worker->exited = true;
	if (term_signal)
		snprintf(message, sizeof(message), "worker crashed (signal %d)%s", term_signal,
			 again ? "; its job is done once more" : "");
	else
		snprintf(message, sizeof(message), "worker ended (status %d)", WEXITSTATUS(status));
	if (worker->state != WORKER_ENDING && !pool->freed && pool->on_crash &&
	    !(worker->state == WORKER_STARTING && pool->trouble[0]))
		pool->on_crash(pool->path, worker->pid, message);
	if (worker->state == WORKER_STARTING && !pool->freed) {
		pool->unready = true;
		snprintf(pool->trouble, sizeof(pool->trouble), "%s did not get ready: %s",
			 pool->path, message);
	}
	if (worker->state != WORKER_ENDING)
		pool->counters.crashes++;
	worker_end(worker);
	uv_timer_stop(&worker->timer);
	worker_close_handles(worker);
	if (task) {
		worker_pool_note_failure(pool, task->owner);
		if (!again)
			worker_task_complete(task, WORKER_POOL_E_CRASHED, NULL, message);
	}
	worker_pool_update(pool);
}

/* A child of this process has ended: this worker, or another one. */
static void worker_on_child(uv_signal_t *handle, int number) {
	struct worker *worker = handle->data;
	int status;

	if (waitpid(worker->pid, &status, WNOHANG) == worker->pid)
		worker_exited(worker, status);
}

bool worker_task_is_late(const struct worker_task *task) {
	return task->overtime_ms && task->deadline <= uv_now(task->pool->loop);
}

bool worker_pool_has_overtime(const struct worker_pool *pool, uint64_t owner) {
	unsigned int n = 0, n_owner = 0;
	const struct worker *worker;

	TAILQ_FOREACH(worker, &pool->list, link)
		if (worker->overtime && worker->task) {
			n++;
			n_owner += worker->task->owner == owner;
		}
	return n < pool->workers && n_owner < (pool->workers + 1) / 2;
}

/* The deadline of a busy worker has come. False: it may not go on. */
static bool worker_enter_overtime(struct worker *worker) {
	const struct worker_task *task = worker->task;
	struct worker_pool *pool = worker->pool;
	uint64_t now = uv_now(pool->loop);

	if (!worker_pool_has_overtime(pool, task->owner))
		return false;
	worker->overtime = true;
	pool->n_alive--;
	pool->tokens += 1; /* its successor is no restart after a failure */
	uv_timer_start(&worker->timer, worker_on_timer, task->limit > now ? task->limit - now : 0,
		       0);
	return true;
}

/* A busy worker is late. */
static void worker_on_late(struct worker *worker) {
	const struct worker_task *task = worker->task;
	const char *message = "worker timed out";

	if (task->cancelled) {
		worker_fail(worker, WORKER_POOL_E_UNAVAILABLE, WORKER_POOL_UNWANTED);
		return;
	}
	if (task->overtime_ms && !worker->overtime) {
		if (worker_enter_overtime(worker))
			return;
		message = "worker timed out: too many other jobs take as long";
	}
	worker->pool->counters.timeouts++;
	worker_fail(worker, WORKER_POOL_E_TIMEOUT, message);
}

static void worker_on_timer(uv_timer_t *timer) {
	struct worker *worker = timer->data;
	struct worker_pool *pool = worker->pool;

	if (worker->eof || worker->state == WORKER_ENDING) {
		worker_kill(worker); /* the exit comes */
	} else if (worker->state == WORKER_STARTING) {
		pool->unready = true;
		snprintf(pool->trouble, sizeof(pool->trouble), "%s did not get ready in time",
			 pool->path);
		worker_fail(worker, WORKER_POOL_E_TIMEOUT, "");
	} else if (worker->state == WORKER_BUSY) {
		worker_on_late(worker);
	}
	worker_pool_update(pool);
}

void worker_hurry(struct worker *worker) {
	uv_timer_start(&worker->timer, worker_on_timer, 0, 0);
}

/* One datagram into the pool's buffer. Its size, 0 at the end, -EAGAIN, or -EPROTO if it is none we
 * take. */
static ssize_t worker_receive(struct worker *worker) {
	union {
		char bytes[CMSG_SPACE(sizeof(int) * JOB_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec vector = { worker->pool->buffer, JOB_MESSAGE_MAX };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	bool surplus = false;
	ssize_t n;

	n = recvmsg(worker->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN
		       : errno == ECONNRESET             ? 0
							 : -EPROTO;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			fd_close(fd);
			surplus = true;
		}
	}
	if (surplus || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return -EPROTO;
	return n;
}

/* Seals the outputs and reads their sizes. A line if the worker did what it may not. */
static const char *worker_take_outputs(struct worker_task *task) {
	for (unsigned int i = 0; i < task->n_fds; i++) {
		if (!task->output_max[i] || task->fds[i] < 0)
			continue;
		if (memfd_seal(task->fds[i]) < 0)
			return "worker kept its output writable";
		if (memfd_size(task->fds[i], &task->output_size[i]) < 0 ||
		    task->output_size[i] > task->output_max[i])
			return "worker wrote more than it may";
	}
	return NULL;
}

static void worker_on_ready(struct worker *worker, json_object *message) {
	struct worker_pool *pool = worker->pool;
	json_object *features = json_member(message, JOB_KEY_FEATURES);

	if (!json_bool_of(message, JOB_KEY_READY)) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "");
		return;
	}
	if (features) {
		json_object_put(pool->features);
		pool->features = json_object_get(features);
		worker->features = json_object_get(features);
	}
	pool->trouble[0] = '\0';
	pool->unready = false;
	worker->state = WORKER_IDLE;
	uv_timer_stop(&worker->timer);
}

void worker_retire(struct worker *worker) {
	if (!worker->overtime)
		worker->pool->tokens += 1;
	worker_end(worker);
	shutdown(worker->fd, SHUT_RDWR);
	uv_timer_start(&worker->timer, worker_on_timer, ENDING_MS, 0);
}

static void worker_on_reply(struct worker *worker, json_object *reply) {
	struct worker_pool *pool = worker->pool;
	struct worker_task *task = worker->task;
	const char *trouble, *message = "";
	int result = _WORKER_POOL_SUCCESS;
	int64_t id;

	if (!json_get_int(reply, JOB_KEY_ID, task->id, task->id, &id) ||
	    !json_string_of(reply, JOB_KEY_STATUS)) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
		return;
	}
	trouble = worker_take_outputs(task);
	if (trouble) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, trouble);
		return;
	}
	if (job_status_of(reply) == JOB_ERROR) {
		result = WORKER_POOL_E_REFUSED;
		message = json_string_of(reply, JOB_KEY_MESSAGE) ?: "worker gave no reason";
	}
	task->features = json_object_get(worker->features);
	task->mixed = worker->mixed;
	worker_take_task(worker);
	uv_timer_stop(&worker->timer);
	if (pool->single_use || worker->overtime || worker->mixed || worker->alone)
		worker_retire(worker);
	else
		worker->state = WORKER_IDLE;
	worker_task_complete(task, result, reply, message);
}

static void worker_on_readable(uv_poll_t *poll, int status, int events) {
	struct worker *worker = poll->data;
	struct worker_pool *pool = worker->pool;
	json_object *message;
	ssize_t n;

	n = status < 0 ? 0 : worker_receive(worker);
	if (n == -EAGAIN)
		return;
	if (n == 0) {
		worker->eof = true;
		uv_poll_stop(&worker->poll);
		uv_timer_start(&worker->timer, worker_on_timer, GRACE_MS, 0);
		return;
	}
	message = n > 0 ? json_parse(pool->buffer, (size_t)n, WORKER_DEPTH_MAX) : NULL;
	if (message && worker->state == WORKER_STARTING)
		worker_on_ready(worker, message);
	else if (message && worker->state == WORKER_BUSY)
		worker_on_reply(worker, message);
	else
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
	json_object_put(message);
	worker_pool_update(pool);
}

int worker_spawn(struct worker_pool *pool) {
	struct worker *worker;
	int pair[2], r;

	worker = calloc(1, sizeof(*worker));
	if (!worker)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		snprintf(pool->trouble, sizeof(pool->trouble), "%s: %s", pool->path, strerror(-r));
		free(worker);
		return r;
	}
	worker->pool = pool;
	worker->user = WORKER_NOBODY;
	worker->fd = pair[0];
	worker->child.data = worker->poll.data = worker->timer.data = worker;
	TAILQ_INSERT_TAIL(&pool->list, worker, link);
	pool->n_alive++;
	worker->n_handles = 2;
	uv_timer_init(pool->loop, &worker->timer);
	uv_signal_init(pool->loop, &worker->child);
	r = uv_signal_start(&worker->child, worker_on_child, SIGCHLD);
	if (r == 0)
		r = spawner_start(pool->spawner, pool->path, pool->arguments, pool->environment,
				  pair[1], &worker->pid);
	close(pair[1]);
	if (r == 0)
		r = uv_poll_init(pool->loop, &worker->poll, worker->fd);
	if (r == 0) {
		worker->n_handles = 3;
		r = uv_poll_start(&worker->poll, UV_READABLE, worker_on_readable);
	}
	if (r < 0) {
		snprintf(pool->trouble, sizeof(pool->trouble), "%s: %s", pool->path,
			 uv_strerror(r));
		worker_end(worker);
		if (worker->pid) {
			worker_kill(worker);
			waitpid(worker->pid, NULL, 0);
		}
		worker->exited = true;
		worker_close_handles(worker);
		return r;
	}
	pool->counters.spawned++;
	uv_timer_start(&worker->timer, worker_on_timer, pool->ready_ms, 0);
	return 0;
}

void worker_assign(struct worker *worker, struct worker_task *task) {
	struct worker_pool *pool = worker->pool;
	uint64_t now = uv_now(pool->loop);
	const char *text;
	size_t n;
	int r;

	task->id = ++pool->next_id;
	json_add_int(task->request, JOB_KEY_ID, task->id);
	text = json_object_to_json_string_length(task->request, JSON_C_TO_STRING_PLAIN, &n);
	if (!text || n > JOB_MESSAGE_MAX) {
		worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL,
				     "the job is larger than a message to a worker may be");
		return;
	}
	worker->task = task;
	worker->state = WORKER_BUSY;
	r = send_fds(worker->fd, text, n, task->fds, task->n_fds);
	if (r) {
		if (r == -ETOOMANYREFS) {
			worker->task = NULL;
			worker->state = WORKER_IDLE;
			worker_task_complete(
				task, WORKER_POOL_E_UNAVAILABLE, NULL,
				"too many descriptors of the daemon's user are in flight");
			return;
		}
		/* it died while it was idle: its exit status is on the way, another one can do this
		 */
		worker->task = NULL;
		worker->eof = true;
		pool->counters.crashes++;
		worker_end(worker);
		worker_kill(worker);
		TAILQ_INSERT_HEAD(&pool->queue, task, link);
		pool->n_queue++;
		return;
	}
	task->worker = worker;
	task->assigned = now;
	worker->mixed = task->owner != WORKER_NOBODY && worker->user != WORKER_NOBODY &&
			worker->user != task->owner;
	worker->user = task->owner != WORKER_NOBODY ? task->owner : worker->user;
	worker->alone = task->alone;
	if (worker_task_is_late(task)) {
		task->limit = now + task->overtime_ms;
		worker_enter_overtime(worker);
		return;
	}
	uv_timer_start(&worker->timer, worker_on_timer,
		       task->deadline > now ? task->deadline - now : 0, 0);
}
