/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes metrics to a file (metrics-output.h). A thread writes a new file beside the old one and
 * renames it: a reader sees the old or the new one. If it cannot be written, the old one stays. It
 * is not synced to the disk, because after a crash of the machine it has no use.
 */

#include "metrics-output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/base/message-id.h"

struct metrics_file {
	struct metrics_context *context;
	char *path, *beside; /* beside: the name that it has as long as it is not complete */
	uv_timer_t timer;
	struct metrics_run *run;
	uv_work_t work;
	bool working, freed, closed;
	struct metrics_text text; /* that is being written */
	mode_t mode;
	int result;
	char trouble[512]; /* empty: the last one was written */
};

static void metrics_file_destroy(struct metrics_file *file) {
	if (!file->freed || !file->closed || file->working)
		return;
	metrics_text_deinit(&file->text);
	free(file->path);
	free(file->beside);
	free(file);
}

/* In a thread. */
static int metrics_file_write(const struct metrics_file *file) {
	_cleanup_fd int fd = -1;
	size_t done = 0;
	ssize_t n;

	unlink(file->beside);
	fd = open(file->beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	while (done < file->text.n) {
		n = write(fd, file->text.data + done, file->text.n - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	if (fchmod(fd, file->mode) < 0)
		return -errno;
	return rename(file->beside, file->path) < 0 ? -errno : 0;
}

static void metrics_file_on_work(uv_work_t *work) {
	struct metrics_file *file = work->data;

	file->result = metrics_file_write(file);
	if (file->result < 0)
		unlink(file->beside);
}

/* Says what is wrong, once as long as it stays the same. */
static void metrics_file_set_trouble(struct metrics_file *file, int r) {
	const char *const fields[] = { "GPUPROBE_FILE", file->path, NULL };
	char trouble[sizeof(file->trouble)] = "";

	if (r < 0)
		snprintf(trouble, sizeof(trouble), "--metrics=%s: cannot be written: %s%s",
			 file->path, strerror(-r),
			 r == -EACCES || r == -EROFS || r == -EPERM || r == -ENOENT
				 ? " (the folder must let the daemon's user write, and the unit, "
				   "too: ReadWritePaths=)"
			 : r == -ENOSPC || r == -EDQUOT ? " (what was written last stays)"
							: "");
	if (strcmp(trouble, file->trouble) && *trouble)
		log_event(LOG_LEVEL_WARNING, MESSAGE_METRICS_NOT_WRITTEN, fields, "%s", trouble);
	else if (!*trouble && file->trouble[0])
		log_notice("--metrics=%s: is written again", file->path);
	memcpy(file->trouble, trouble, sizeof(trouble));
	if (r < 0)
		file->context->counters.failures++;
	else
		file->context->counters.written++;
}

static void metrics_file_on_timer(uv_timer_t *timer);

static void metrics_file_again(struct metrics_file *file) {
	if (!file->freed)
		uv_timer_start(&file->timer, metrics_file_on_timer,
			       file->context->image->config->metrics_period_ms, 0);
}

static void metrics_file_on_written(uv_work_t *work, int status) {
	struct metrics_file *file = work->data;

	file->working = false;
	metrics_text_deinit(&file->text);
	if (!file->freed)
		metrics_file_set_trouble(file, status < 0 ? status : file->result);
	metrics_file_again(file);
	metrics_file_destroy(file);
}

static void metrics_file_on_text(struct metrics_text *text, void *userdata) {
	struct metrics_file *file = userdata;
	int r = -ENOMEM;

	file->run = NULL;
	if (text) {
		file->text = *text;
		*text = (struct metrics_text){};
		file->mode = (mode_t)file->context->image->config->metrics_mode;
		file->work.data = file;
		r = uv_queue_work(file->context->image->loop, &file->work, metrics_file_on_work,
				  metrics_file_on_written);
	}
	if (r == 0) {
		file->working = true;
		return;
	}
	metrics_file_set_trouble(file, r);
	metrics_file_again(file);
}

static void metrics_file_on_timer(uv_timer_t *timer) {
	const struct metrics_view view = {
		.all = true,
		.prometheus = ((struct metrics_file *)timer->data)
				      ->context->image->config->metrics_prometheus
	};
	struct metrics_file *file = timer->data;

	if (metrics_run_new(&file->run, file->context, &view, metrics_file_on_text, file) < 0)
		metrics_file_again(file);
}

int metrics_file_new(struct metrics_file **filep, struct metrics_context *context,
		     const char *path) {
	struct metrics_file *file = calloc(1, sizeof(*file));
	const char *name = strrchr(path, '/') + 1;

	if (!file)
		return -ENOMEM;
	file->context = context;
	file->path = strdup(path);
	/* node exporter reads whatever ends in .prom */
	if (!file->path ||
	    asprintf(&file->beside, "%.*s.%s.new", (int)(name - path), path, name) < 0) {
		free(file->path);
		free(file);
		return -ENOMEM;
	}
	uv_timer_init(context->image->loop, &file->timer);
	file->timer.data = file;
	uv_timer_start(&file->timer, metrics_file_on_timer, 0, 0);
	*filep = file;
	return 0;
}

static void metrics_file_on_closed(uv_handle_t *handle) {
	struct metrics_file *file = handle->data;

	file->closed = true;
	metrics_file_destroy(file);
}

struct metrics_file *metrics_file_free(struct metrics_file *file) {
	if (!file)
		return NULL;
	file->freed = true;
	metrics_run_cancel(file->run);
	uv_close((uv_handle_t *)&file->timer, metrics_file_on_closed);
	return NULL;
}

const char *metrics_file_trouble(const struct metrics_file *file) {
	return file->trouble[0] ? file->trouble : NULL;
}
