/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tasks for workers (worker-pool.h): the request, the descriptors that go with it, and the owner on
 * whose account the work is done.
 */

#include "worker-pool-parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "daemon/gpuprobed/base/memfd.h"

struct worker_task *worker_task_new(json_object *request, worker_task_fn fn, void *userdata) {
	struct worker_task *task;

	task = request ? calloc(1, sizeof(*task)) : NULL;
	if (!task) {
		json_object_put(request);
		return NULL;
	}
	task->request = request;
	task->owner = task->owners[0] = WORKER_NOBODY;
	task->n_owners = 1;
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
	if (task->n_fds == JOB_FDS_MAX) {
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

void worker_task_replace_output(struct worker_task *task, unsigned int index, int fd,
				uint64_t size) {
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
	task->owner = task->owners[0] = owner;
}

unsigned int worker_task_owners(const struct worker_task *task) {
	return task->n_owners;
}

uint64_t worker_task_owner_at(const struct worker_task *task, unsigned int i) {
	return task->owners[i];
}

bool worker_task_is_of(const struct worker_task *task, uint64_t owner) {
	for (unsigned int i = 0; i < task->n_owners; i++)
		if (task->owners[i] == owner)
			return true;
	return false;
}

bool worker_task_has_owner(const struct worker_task *task) {
	return task->owner != WORKER_NOBODY;
}

void worker_task_set_alone(struct worker_task *task) {
	task->alone = true;
}

void worker_task_set_retry(struct worker_task *task) {
	task->retry = true;
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

void worker_task_complete(struct worker_task *task, int result, json_object *reply,
			  const char *message) {
	if (task->fn)
		task->fn(task, result, reply, message, task->userdata);
	worker_task_free(task);
}
