/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Watches processes that have not connected to this daemon yet (process-watch.h), by pidfds. It
 * reads the start time again: a later process with the same pid is not the one to watch.
 */

#include "process-watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "process.h"
#include "daemon/gpuprobed/wire/process-facts.h"

struct process_watch {
	struct process_table *table;
	struct process *process;
	int pidfd;
	uv_poll_t poll;
};

static void process_watch_closed(uv_handle_t *handle) {
	struct process_watch *watch = handle->data;

	fd_close(watch->pidfd);
	free(watch);
}

void process_unwatch(struct process *process) {
	if (process->watch)
		uv_close((uv_handle_t *)&process->watch->poll, process_watch_closed);
	process->watch = NULL;
}

static void process_watch_on_poll(uv_poll_t *poll, int status, int events) {
	struct process_watch *watch = poll->data;

	watch->table->gone(watch->process, watch->table->userdata);
}

int process_watch(struct process_table *table, struct process *process) {
	struct process_watch *watch = calloc(1, sizeof(*watch));
	struct process_facts facts;
	int r;

	if (!watch)
		return -ENOMEM;
	watch->table = table;
	watch->process = process;
	watch->poll.data = watch;
	watch->pidfd = (int)syscall(SYS_pidfd_open, process->facts.pid, 0);
	r = watch->pidfd < 0 ? -errno
			     : process_facts_read(&facts, process->facts.pid, watch->pidfd);
	if (r == 0 && facts.start_time != process->facts.start_time)
		r = -ESRCH;
	if (r == 0)
		r = uv_poll_init(table->loop, &watch->poll, watch->pidfd);
	if (r < 0) {
		fd_close(watch->pidfd);
		free(watch);
		return r;
	}
	uv_poll_start(&watch->poll, UV_READABLE, process_watch_on_poll);
	process->watch = watch;
	return 0;
}
