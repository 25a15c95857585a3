/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Workers are started ahead of the work: each gets ready (its compiler loaded, its sandbox entered)
 * while nobody waits. A worker is STARTING, IDLE, BUSY with one task, or ENDING; one that ends is
 * replaced, at most RESTART_BURST at once and RESTART_RATE a second afterwards, so that an image
 * which kills its worker costs others little.
 *
 * Owners of tasks take turns (worker_pool_next()). A task that is to be alone has a worker that nobody has used; if there is none, an idle
 * one ends for it.
 *
 * A task has one deadline, from its submission on. A worker that is late is killed, unless its task
 * may take overtime. A worker in overtime has no place in the pool any more: another one is started
 * for it, and it ends with its task; so whatever takes long, others are served by as many workers
 * as ever. What that costs is bounded: in overtime are at most as many as the pool has workers, and
 * half of them for one owner.
 *
 * Killed is also one whose reply is no reply, because what it says next cannot be trusted either.
 * End of file on the socket comes before the exit status: a busy worker whose socket ends has
 * GRACE_MS to show the signal that killed it, so that the message can name it.
 *
 * Workers get descriptors 0-2 and their socket, an environment of a few words, and a session of
 * their own.
 */

#include "worker-pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memfd.h"
#include "send-fds.h"

#define WORKER_MESSAGE_MAX (128 * 1024)
#define WORKER_FDS_MAX SEND_FDS_MAX
#define WORKER_DEPTH_MAX 16
#define RESTART_BURST 16
#define RESTART_RATE 4 /* a second */
#define GRACE_MS 200
#define ENDING_MS 2000
#define WORKER_NOBODY UINT64_MAX
#define OWNERS_MAX 32 /* whose last turn is remembered */

enum worker_state {
	WORKER_STARTING,
	WORKER_IDLE,
	WORKER_BUSY,
	WORKER_ENDING,
};

struct worker_task {
	TAILQ_ENTRY(worker_task) link;
	json_object *request;
	int fds[WORKER_FDS_MAX];
	uint64_t output_max[WORKER_FDS_MAX]; /* 0: an input */
	uint64_t output_size[WORKER_FDS_MAX];
	unsigned int n_fds;
	uint64_t owner;
	unsigned int overtime_ms;
	uint64_t queue_until, deadline, limit; /* uv_now: to get a worker, and to be done */
	uint64_t assigned; /* uv_now */
	bool cancelled, spoiled, mixed, alone;
	struct worker_pool *pool; /* that it was submitted to; NULL: none yet */
	struct worker *worker;	  /* that has it; NULL: in the queue */
	json_object *features;	  /* of the worker that answered */
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
	uv_process_t process;
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
	unsigned int workers, owner_max, ready_ms, queue_max;
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
	} turns[OWNERS_MAX];
	uint64_t last_turn;
	json_object *features;
	char trouble[192];
	struct worker_pool_counters counters;
	char *buffer; /* WORKER_MESSAGE_MAX + 1 */
};

static void worker_pool_update(struct worker_pool *pool);
static void worker_on_timer(uv_timer_t *timer);

/* ---- tasks ---- */

struct worker_task *worker_task_new(json_object *request, worker_task_fn fn, void *userdata) {
	struct worker_task *task;

	task = request ? calloc(1, sizeof(*task)) : NULL;
	if (!task) {
		json_object_put(request);
		return NULL;
	}
	task->request = request;
	task->owner = WORKER_NOBODY;
	task->fn = fn;
	task->userdata = userdata;
	return task;
}

struct worker_task *worker_task_free(struct worker_task *task) {
	if (!task)
		return NULL;
	for (unsigned int i = 0; i < task->n_fds; i++)
		fd_close(task->fds[i]);
	json_object_put(task->request);
	json_object_put(task->features);
	free(task);
	return NULL;
}

int worker_task_add_input(struct worker_task *task, int fd) {
	if (task->n_fds == WORKER_FDS_MAX) {
		fd_close(fd);
		return -E2BIG;
	}
	task->fds[task->n_fds] = fd;
	return (int)task->n_fds++;
}

int worker_task_add_copy(struct worker_task *task, int fd) {
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : worker_task_add_input(task, copy);
}

int worker_task_add_output(struct worker_task *task, uint64_t max) {
	int fd, index;

	fd = memfd_new("gpuprobe-output");
	if (fd < 0)
		return fd;
	index = worker_task_add_input(task, fd);
	if (index >= 0)
		task->output_max[index] = max;
	return index;
}

int worker_task_steal_fd(struct worker_task *task, unsigned int index) {
	int fd;

	if (index >= task->n_fds)
		return -1;
	fd = task->fds[index];
	task->fds[index] = -1;
	return fd;
}

void worker_task_replace_output(struct worker_task *task, unsigned int index, int fd, uint64_t size) {
	if (index >= task->n_fds) {
		fd_close(fd);
		return;
	}
	fd_close(task->fds[index]);
	task->fds[index] = fd;
	task->output_size[index] = size;
}

uint64_t worker_task_output_size(const struct worker_task *task, unsigned int index) {
	return index < task->n_fds ? task->output_size[index] : 0;
}

void worker_task_set_owner(struct worker_task *task, uint64_t owner) {
	task->owner = owner;
}

bool worker_task_has_owner(const struct worker_task *task) {
	return task->owner != WORKER_NOBODY;
}

void worker_task_set_alone(struct worker_task *task) {
	task->alone = true;
}

void worker_task_set_overtime(struct worker_task *task, unsigned int overtime_ms) {
	task->overtime_ms = overtime_ms;
}

void worker_task_forget(struct worker_task *task) {
	task->fn = NULL;
}

bool worker_task_mixed(const struct worker_task *task) {
	return task->mixed;
}

void worker_task_spoil(struct worker_task *task) {
	task->spoiled = true;
}

json_object *worker_task_request(const struct worker_task *task) {
	return task->request;
}

unsigned int worker_task_fds(const struct worker_task *task) {
	return task->n_fds;
}

int worker_task_fd(const struct worker_task *task, unsigned int index, uint64_t *max) {
	*max = index < task->n_fds ? task->output_max[index] : 0;
	return index < task->n_fds ? task->fds[index] : -1;
}

void worker_task_redirect(struct worker_task *task, worker_task_fn *fn, void **userdata) {
	const worker_task_fn old_fn = task->fn;
	void *const old_userdata = task->userdata;

	task->fn = *fn;
	task->userdata = *userdata;
	*fn = old_fn;
	*userdata = old_userdata;
}

json_object *worker_task_features(const struct worker_task *task) {
	return task->features;
}

bool worker_task_spoiled(const struct worker_task *task) {
	return task->spoiled;
}

bool worker_task_cancelled(const struct worker_task *task) {
	return task->cancelled;
}

void worker_task_complete(struct worker_task *task, int result, json_object *reply, const char *message) {
	if (task->fn)
		task->fn(task, result, reply, message, task->userdata);
	worker_task_free(task);
}

/* ---- one worker ---- */

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
	uv_close((uv_handle_t *)&worker->process, worker_closed);
	uv_close((uv_handle_t *)&worker->timer, worker_closed);
	if (worker->poll.loop)
		uv_close((uv_handle_t *)&worker->poll, worker_closed);
}

static void worker_kill(struct worker *worker) {
	if (!worker->exited)
		uv_process_kill(&worker->process, SIGKILL);
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

/* The task of a worker that is not to be trusted any more. */
static void worker_fail(struct worker *worker, int result, const char *message) {
	struct worker_task *task = worker_take_task(worker);

	worker_end(worker);
	worker_kill(worker);
	if (task)
		worker_task_complete(task, result, NULL, message);
}

static void worker_on_exit(uv_process_t *process, int64_t status, int term_signal) {
	struct worker *worker = process->data;
	struct worker_pool *pool = worker->pool;
	struct worker_task *task = worker_take_task(worker);
	char message[128];

	worker->exited = true;
	if (term_signal)
		snprintf(message, sizeof(message), "worker crashed (signal %d)", term_signal);
	else
		snprintf(message, sizeof(message), "worker ended (status %d)", (int)status);
	if (worker->state != WORKER_ENDING && !pool->freed && pool->on_crash &&
	    !(worker->state == WORKER_STARTING && pool->trouble[0]))
		pool->on_crash(pool->path, worker->process.pid, message);
	if (worker->state == WORKER_STARTING && !pool->freed)
		snprintf(pool->trouble, sizeof(pool->trouble), "%s did not get ready: %s",
			 pool->path, message);
	if (worker->state != WORKER_ENDING)
		pool->counters.crashes++;
	worker_end(worker);
	uv_timer_stop(&worker->timer);
	worker_close_handles(worker);
	if (task)
		worker_task_complete(task, WORKER_POOL_E_CRASHED, NULL, message);
	worker_pool_update(pool);
}

/* The deadline of a busy worker has come. False: it may not go on. */
static bool worker_enter_overtime(struct worker *worker) {
	const struct worker_task *task = worker->task;
	struct worker_pool *pool = worker->pool;
	uint64_t now = uv_now(pool->loop);
	unsigned int n = 0, n_owner = 0;
	const struct worker *other;

	TAILQ_FOREACH(other, &pool->list, link)
		if (other->overtime && other->task) {
			n++;
			n_owner += other->task->owner == task->owner;
		}
	if (n >= pool->workers || n_owner >= (pool->workers + 1) / 2)
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
		snprintf(pool->trouble, sizeof(pool->trouble), "%s did not get ready in time",
			 pool->path);
		worker_fail(worker, WORKER_POOL_E_TIMEOUT, "");
	} else if (worker->state == WORKER_BUSY) {
		worker_on_late(worker);
	}
	worker_pool_update(pool);
}

/* One datagram into the pool's buffer. Its size, 0 at the end, -EAGAIN, or -EPROTO if it is none we
 * take. */
static ssize_t worker_receive(struct worker *worker) {
	union {
		char bytes[CMSG_SPACE(sizeof(int) * WORKER_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec vector = { worker->pool->buffer, WORKER_MESSAGE_MAX };
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
		       : errno == ECONNRESET		 ? 0
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

/* One JSON object, nothing behind it; NULL else. To be put. */
static json_object *worker_parse(const char *text, size_t n) {
	struct json_tokener *tokener;
	json_object *value;

	tokener = json_tokener_new_ex(WORKER_DEPTH_MAX);
	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	value = json_tokener_parse_ex(tokener, text, (int)n);
	if (json_tokener_get_error(tokener) != json_tokener_success ||
	    json_tokener_get_parse_end(tokener) != n ||
	    !json_object_is_type(value, json_type_object)) {
		json_object_put(value);
		value = NULL;
	}
	json_tokener_free(tokener);
	return value;
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
	json_object *ready = NULL, *features = NULL;

	if (!json_object_object_get_ex(message, "ready", &ready) ||
	    !json_object_is_type(ready, json_type_boolean) || !json_object_get_boolean(ready)) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "");
		return;
	}
	if (json_object_object_get_ex(message, "features", &features)) {
		json_object_put(pool->features);
		pool->features = json_object_get(features);
		worker->features = json_object_get(features);
	}
	pool->trouble[0] = '\0';
	worker->state = WORKER_IDLE;
	uv_timer_stop(&worker->timer);
}

/* It has done its work and ends by itself; another one takes its place at once, as that is no restart after a failure. */
static void worker_retire(struct worker *worker) {
	if (!worker->overtime)
		worker->pool->tokens += 1;
	worker_end(worker);
	shutdown(worker->fd, SHUT_RDWR);
	uv_timer_start(&worker->timer, worker_on_timer, ENDING_MS, 0);
}

static void worker_on_reply(struct worker *worker, json_object *reply) {
	struct worker_pool *pool = worker->pool;
	struct worker_task *task = worker->task;
	json_object *id = NULL, *status = NULL, *text = NULL;
	const char *trouble, *message = "";
	int result = _WORKER_POOL_SUCCESS;

	if (!json_object_object_get_ex(reply, "id", &id) ||
	    !json_object_is_type(id, json_type_int) || json_object_get_int64(id) != task->id ||
	    !json_object_object_get_ex(reply, "status", &status) ||
	    !json_object_is_type(status, json_type_string)) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
		return;
	}
	trouble = worker_take_outputs(task);
	if (trouble) {
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, trouble);
		return;
	}
	if (strcmp(json_object_get_string(status), "error") == 0) {
		result = WORKER_POOL_E_REFUSED;
		message = "worker gave no reason";
		if (json_object_object_get_ex(reply, "message", &text) &&
		    json_object_is_type(text, json_type_string))
			message = json_object_get_string(text);
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
	message = n > 0 ? worker_parse(pool->buffer, (size_t)n) : NULL;
	if (message && worker->state == WORKER_STARTING)
		worker_on_ready(worker, message);
	else if (message && worker->state == WORKER_BUSY)
		worker_on_reply(worker, message);
	else
		worker_fail(worker, WORKER_POOL_E_PROTOCOL, "worker sent a malformed reply");
	json_object_put(message);
	worker_pool_update(pool);
}

/* Starts one process. 0 or -errno, with pool->trouble set. */
static int worker_spawn(struct worker_pool *pool) {
	uv_stdio_container_t stdio[4] = { { .flags = UV_IGNORE },
					  { .flags = UV_IGNORE },
					  { .flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO },
					  { .flags = UV_INHERIT_FD } };
	uv_process_options_t options = {
		.exit_cb = worker_on_exit,
		.file = pool->path,
		.args = pool->arguments,
		.env = pool->environment,
		.flags = UV_PROCESS_DETACHED, /* a session of its own */
		.cwd = "/",
		.stdio = stdio,
		.stdio_count = 4,
	};
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
	stdio[3].data.fd = pair[1];
	worker->pool = pool;
	worker->user = WORKER_NOBODY;
	worker->fd = pair[0];
	worker->process.data = worker->poll.data = worker->timer.data = worker;
	TAILQ_INSERT_TAIL(&pool->list, worker, link);
	pool->n_alive++;
	worker->n_handles = 2;
	uv_timer_init(pool->loop, &worker->timer);
	close_range(3, ~0U,
		    CLOSE_RANGE_CLOEXEC); /* what a library, or whoever started us, left open */
	r = uv_spawn(pool->loop, &worker->process, &options);
	close(pair[1]);
	if (r == 0) {
		r = uv_poll_init(pool->loop, &worker->poll, worker->fd);
		if (r == 0) {
			worker->n_handles = 3;
			r = uv_poll_start(&worker->poll, UV_READABLE, worker_on_readable);
		}
		if (r < 0)
			worker_kill(worker);
	}
	if (r < 0) {
		snprintf(pool->trouble, sizeof(pool->trouble), "%s: %s", pool->path,
			 uv_strerror(r));
		worker_end(worker);
		worker->exited = true;
		worker_close_handles(worker);
		return r;
	}
	pool->counters.spawned++;
	uv_timer_start(&worker->timer, worker_on_timer, pool->ready_ms, 0);
	return 0;
}

/* ---- the pool ---- */

/* Hands a task to an idle worker. */
static void worker_assign(struct worker *worker, struct worker_task *task) {
	struct worker_pool *pool = worker->pool;
	uint64_t now = uv_now(pool->loop);
	const char *text;
	size_t n;
	int r;

	task->id = ++pool->next_id;
	json_object_object_add(task->request, "id", json_object_new_int64(task->id));
	text = json_object_to_json_string_length(task->request, JSON_C_TO_STRING_PLAIN, &n);
	if (!text || n > WORKER_MESSAGE_MAX) {
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
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, "too many descriptors of the daemon's user are in flight");
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
	worker->mixed = task->owner != WORKER_NOBODY && worker->user != WORKER_NOBODY && worker->user != task->owner;
	worker->user = task->owner != WORKER_NOBODY ? task->owner : worker->user;
	worker->alone = task->alone;
	uv_timer_start(&worker->timer, worker_on_timer,
		       task->deadline > now ? task->deadline - now : 0, 0);
}

/* One for the task (NULL: for any): that has seen no other user's bytes, if there is one; one that nobody has used, last of these. */
static struct worker *worker_pool_idle(struct worker_pool *pool, const struct worker_task *task) {
	struct worker *worker, *unused = NULL, *other = NULL;

	TAILQ_FOREACH(worker, &pool->list, link) {
		if (worker->state != WORKER_IDLE || worker->eof)
			continue;
		if (!task || (!task->alone && (worker->user == task->owner || task->owner == WORKER_NOBODY)))
			return worker;
		if (worker->user == WORKER_NOBODY)
			unused = worker;
		else
			other = worker;
	}
	return unused || (task && task->alone) ? unused : other;
}

/* Workers that nobody has used and that will be there soon. */
static unsigned int worker_pool_coming(const struct worker_pool *pool) {
	unsigned int n = pool->n_alive < pool->workers ? pool->workers - pool->n_alive : 0;
	const struct worker *worker;

	TAILQ_FOREACH(worker, &pool->list, link)
		n += worker->state == WORKER_STARTING;
	return pool->trouble[0] ? UINT_MAX : n;
}

/* When the owner had his last turn; 0: long ago, or never, or there is none. */
static struct worker_turn *worker_pool_turn(struct worker_pool *pool, uint64_t owner) {
	for (size_t i = 0; i < OWNERS_MAX; i++)
		if (pool->turns[i].turn && pool->turns[i].owner == owner)
			return &pool->turns[i];
	return NULL;
}

static void worker_pool_note_turn(struct worker_pool *pool, uint64_t owner) {
	struct worker_turn *turn = worker_pool_turn(pool, owner), *oldest = &pool->turns[0];

	if (owner == WORKER_NOBODY)
		return;
	for (size_t i = 1; !turn && i < OWNERS_MAX; i++)
		oldest = pool->turns[i].turn < oldest->turn ? &pool->turns[i] : oldest;
	*(turn ? turn : oldest) = (struct worker_turn){ owner, ++pool->last_turn };
}

static unsigned int worker_pool_works_for(const struct worker_pool *pool, uint64_t owner) {
	const struct worker *worker;
	unsigned int n = 0;

	TAILQ_FOREACH(worker, &pool->list, link)
		n += owner != WORKER_NOBODY && worker->task && worker->task->owner == owner;
	return n;
}

/*
 * The task that is next for an idle worker, or NULL: of the owner for whom the fewest workers work, and of several such, of whom had his last turn first. So who
 * has submitted much does not keep others waiting. One that is to be alone and for which a worker is coming waits for that; one whose owner has as many
 * workers as he may, for an end of these.
 */
static struct worker_task *worker_pool_next(struct worker_pool *pool) {
	unsigned int n, best_n = UINT_MAX, coming = worker_pool_coming(pool);
	uint64_t turn, best_turn = UINT64_MAX;
	struct worker_task *task, *best = NULL;

	TAILQ_FOREACH(task, &pool->queue, link) {
		const struct worker_turn *last = worker_pool_turn(pool, task->owner);

		if (task->alone && coming && !worker_pool_idle(pool, task)) {
			coming--;
			continue;
		}
		n = worker_pool_works_for(pool, task->owner);
		if (pool->owner_max && n >= pool->owner_max)
			continue;
		turn = last ? last->turn : 0;
		if (n > best_n || (n == best_n && turn >= best_turn))
			continue;
		best = task;
		best_n = n;
		best_turn = turn;
		if (!n && !turn)
			break;
	}
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
	free(pool->arguments);
	free(pool->environment);
	free(pool->path);
	free(pool->buffer);
	json_object_put(pool->features);
	free(pool);
}

/* Starts workers that are missing, as far as the rate of restarts allows. Milliseconds until more
 * may start, or 0. */
static uint64_t worker_pool_restart(struct worker_pool *pool, uint64_t now) {
	pool->tokens += (double)(now - pool->tokens_at) * RESTART_RATE / 1000;
	pool->tokens_at = now;
	if (pool->tokens > RESTART_BURST)
		pool->tokens = RESTART_BURST;
	while (pool->n_alive < pool->workers) {
		if (pool->tokens < 1)
			return (uint64_t)((1 - pool->tokens) * 1000 / RESTART_RATE) + 1;
		pool->tokens -= 1;
		worker_spawn(pool);
	}
	return 0;
}

/* Brings the pool to what it should be: dead tasks out, tasks to idle workers, workers started,
 * timer set. */
static void worker_pool_update(struct worker_pool *pool) {
	struct worker_task *task, *next;
	uint64_t now = uv_now(pool->loop), wait;
	struct worker *worker;

	if (pool->freed) {
		if (!pool->timer_open && TAILQ_EMPTY(&pool->list))
			worker_pool_destroy(pool);
		return;
	}
	/* Functions of tasks may submit tasks: only the list head is looked at after one was
	 * called. */
	while (!TAILQ_EMPTY(&pool->queue) && worker_pool_idle(pool, NULL) && (task = worker_pool_next(pool))) {
		worker = worker_pool_idle(pool, task);
		if (!worker) { /* it is to be alone: one makes room for another that nobody has used */
			worker_retire(worker_pool_idle(pool, NULL));
			continue;
		}
		worker_pool_note_turn(pool, task->owner);
		TAILQ_REMOVE(&pool->queue, task, link);
		pool->n_queue--;
		if (task->cancelled)
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, WORKER_POOL_UNWANTED);
		else if (task->fn)
			worker_assign(worker, task);
		else
			worker_task_free(task);
	}
restart:
	for (task = TAILQ_FIRST(&pool->queue); task; task = next) {
		next = TAILQ_NEXT(task, link);
		if (task->queue_until > now && !(pool->trouble[0] && !pool->n_alive))
			continue;
		TAILQ_REMOVE(&pool->queue, task, link);
		pool->n_queue--;
		if (task->cancelled) {
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, WORKER_POOL_UNWANTED);
		} else if (task->queue_until <= now) {
			pool->counters.busy++;
			worker_task_complete(task, WORKER_POOL_E_BUSY, NULL,
					   "no worker was free in time");
		} else {
			worker_task_complete(task, WORKER_POOL_E_UNAVAILABLE, NULL, pool->trouble);
		}
		goto restart;
	}
	wait = worker_pool_restart(pool, now);
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
	pool->owner_max = options->owner_max;
	pool->on_crash = options->on_crash;
	pool->on_time = options->on_time;
	pool->userdata = options->userdata;
	pool->ready_ms = options->ready_ms ? options->ready_ms : 20000;
	pool->queue_max = options->queue_max ? options->queue_max : 4096;
	pool->path = strdup(options->path);
	pool->arguments = worker_strings(options->path, options->arguments);
	pool->environment = worker_strings(NULL, options->environment);
	pool->buffer = malloc(WORKER_MESSAGE_MAX);
	if (!pool->path || !pool->arguments || !pool->environment || !pool->buffer) {
		worker_pool_destroy(pool);
		return -ENOMEM;
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

void worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			unsigned int deadline_ms) {
	task->pool = pool;
	task->deadline = uv_now(pool->loop) + deadline_ms;
	task->limit = task->deadline + task->overtime_ms;
	task->queue_until = deadline_ms ? task->deadline : task->limit;
	if (pool->n_queue >= pool->queue_max)
		task->queue_until = 0; /* finished by the timer, as never from within */
	TAILQ_INSERT_TAIL(&pool->queue, task, link);
	pool->n_queue++;
	pool->counters.jobs++;
	uv_timer_start(&pool->timer, worker_pool_on_timer, 0, 0);
}

void worker_task_cancel(struct worker_task *task) {
	task->cancelled = true;
	task->deadline = task->queue_until = 0;
	if (!task->pool)
		return;
	if (task->worker)
		uv_timer_start(&task->worker->timer, worker_on_timer, 0, 0);
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
		load.in_time += worker->state == WORKER_BUSY && worker->task->deadline > uv_now(pool->loop);
	}
	return load;
}

json_object *worker_pool_features(const struct worker_pool *pool) {
	return pool->features;
}

const char *worker_pool_trouble(const struct worker_pool *pool) {
	return pool->trouble[0] ? pool->trouble : NULL;
}
