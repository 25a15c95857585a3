/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads files of /proc that can hang, each in a thread (foreign.h).
 *
 * A thread for each file, detached, because nobody can wait for one that hangs. A process that was
 * waited for in vain is not asked again before its thread has come back. The more of them there are
 * the shorter is the wait, so that it does not help to have many.
 */

#include "foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/detached.h"

#define HANGING_MAX 64
#define WAIT_NS UINT64_C(500000000)

struct reading {
	pid_t pid;
	char path[64];
	size_t max, n;
	char *bytes; /* or NULL and error */
	int error;
	bool over, abandoned; /* under the mutex */
	pthread_cond_t ended;
};

/* Threads outlive whoever asked, so what they share belongs to the process. */
static struct {
	pthread_mutex_t mutex;
	pid_t pids[HANGING_MAX];
	size_t n;
} hanging = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void reading_read(struct reading *reading) {
	int fd = open(reading->path, O_RDONLY | O_CLOEXEC);

	reading->error =
		fd < 0 ? errno : -file_load_start(fd, reading->max, &reading->bytes, &reading->n);
	if (fd >= 0)
		close(fd);
}

static void reading_free(struct reading *reading) {
	pthread_cond_destroy(&reading->ended);
	free(reading->bytes);
	free(reading);
}

static void *reading_run(void *userdata) {
	struct reading *reading = userdata;
	bool abandoned;

	reading_read(reading);
	pthread_mutex_lock(&hanging.mutex);
	abandoned = reading->abandoned;
	for (size_t i = 0; abandoned && i < hanging.n; i++)
		if (hanging.pids[i] == reading->pid) {
			hanging.pids[i] = hanging.pids[--hanging.n];
			break;
		}
	reading->over = true;
	pthread_cond_signal(&reading->ended);
	pthread_mutex_unlock(&hanging.mutex);
	if (abandoned)
		reading_free(reading);
	return NULL;
}

/* Waits for it, but not for long. The mutex is held. */
static void reading_wait(struct reading *reading) {
	struct timespec end;
	uint64_t wait = WAIT_NS / (1 + hanging.n);
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	wait += (uint64_t)end.tv_nsec;
	end.tv_sec += (time_t)(wait / 1000000000);
	end.tv_nsec = (long)(wait % 1000000000);
	while (!reading->over && r == 0)
		r = pthread_cond_timedwait(&reading->ended, &hanging.mutex, &end);
}

/* Whether that process may be asked. The mutex is held. */
static bool may_read(pid_t pid) {
	for (size_t i = 0; i < hanging.n; i++)
		if (hanging.pids[i] == pid)
			return false;
	return hanging.n < HANGING_MAX;
}

static struct reading *reading_new(pid_t pid, const char *name, size_t max) {
	struct reading *reading = calloc(1, sizeof(*reading));
	pthread_condattr_t attributes;

	if (!reading)
		return NULL;
	reading->pid = pid;
	reading->max = max;
	snprintf(reading->path, sizeof(reading->path), "/proc/%d/%s", (int)pid, name);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&reading->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	return reading;
}

char *foreign_read(pid_t pid, const char *name, size_t max, size_t *np) {
	struct reading *reading = reading_new(pid, name, max);
	char *bytes = NULL;
	int error = reading ? 0 : ENOMEM;

	if (!reading) {
		errno = error;
		return NULL;
	}
	pthread_mutex_lock(&hanging.mutex);
	error = may_read(pid) ? -detached_start(reading_run, reading, 0) : EBUSY;
	if (!error) {
		reading_wait(reading);
		if (!reading->over) {
			reading->abandoned = true;
			hanging.pids[hanging.n++] = pid;
			pthread_mutex_unlock(&hanging.mutex);
			errno = ETIMEDOUT;
			return NULL;
		}
		bytes = reading->bytes;
		reading->bytes = NULL;
		error = reading->error;
		*np = reading->n;
	}
	pthread_mutex_unlock(&hanging.mutex);
	reading_free(reading);
	errno = error;
	return bytes;
}
