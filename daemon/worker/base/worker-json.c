/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Functions of worker.h that the handlers of jobs use: read members of requests and check their
 * types, add members to replies, find descriptors by their index, map and write memfds.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox.h"
#include "worker.h"
#include "lib/base/text.h"
#include "lib/base/utf8.h"
#include "lib/json.h"

#define LOG_MAX (64 * 1024)

/* Replaces what is no UTF-8 by '?': a reply is one datagram, and U+FFFD takes three bytes. */
static void make_valid(char *text, size_t length) {
	size_t i = 0;

	while (i < length) {
		size_t n = utf8_length(text + i, length - i);

		if (!n) {
			text[i] = '?';
			n = 1;
		}
		i += n;
	}
}

void worker_add_string(struct json_object *object, const char *key, const char *text) {
	char *copy = strdup(text);

	if (copy)
		make_valid(copy, strlen(copy));
	json_add(object, key, copy ? json_object_new_string(copy) : NULL);
	free(copy);
}

/* A text for a person, in one line whatever foreign bytes were printed into it. */
void worker_add_line(struct json_object *object, const char *key, const char *text) {
	char *line = strdup(text);

	for (char *c = line; c && *c; c++)
		if (is_control(*c))
			*c = ' ';
	worker_add_string(object, key, line ?: "");
	free(line);
}

/* A log that is too long loses its middle: the first and the last words of a compiler say most. */
static void add_log(struct json_object *reply, const char *log) {
	static const char gap[] = "\n[...]\n";
	size_t length = strlen(log), half = (LOG_MAX - sizeof(gap)) / 2;
	char shortened[LOG_MAX];

	if (length > LOG_MAX) {
		snprintf(shortened, sizeof(shortened), "%.*s%s%s", (int)half, log, gap,
			 log + length - half);
		log = shortened;
	}
	worker_add_string(reply, JOB_KEY_LOG, log);
}

int worker_reply_error(struct json_object *reply, const char *log, enum job_error error,
		       const char *format, ...) {
	char message[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	json_clear(reply);
	json_add_string(reply, JOB_KEY_STATUS, job_statuses[JOB_ERROR]);
	json_add_string(reply, JOB_KEY_ERROR, job_errors[error]);
	worker_add_line(reply, JOB_KEY_MESSAGE, message);
	if (log && *log)
		add_log(reply, log);
	return 0;
}

int worker_get_fd(const struct worker_job *job, struct json_object *object, const char *key) {
	int64_t index;

	if (!job->n_fds || !json_get_int(object, key, 0, (int64_t)job->n_fds - 1, &index))
		return -EBADF;
	return job->fds[index];
}

int worker_map(int fd, uint64_t max, const uint8_t **data, size_t *size) {
	const int sealed = F_SEAL_SHRINK | F_SEAL_WRITE;
	struct stat status;
	void *map;
	int seals;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & sealed) != sealed)
		return -EPERM;
	if (sandbox_fstat(fd, &status))
		return -errno;
	if (status.st_size <= 0)
		return -ENODATA;
	if ((uint64_t)status.st_size > max)
		return -EFBIG;
	map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*data = map;
	*size = (size_t)status.st_size;
	return 0;
}

void worker_unmap(const uint8_t *data, size_t size) {
	if (data)
		munmap((void *)data, size);
}

int worker_write(int fd, const void *data, size_t size, uint64_t offset) {
	const uint8_t *bytes = data;

	while (size) {
		ssize_t n = pwrite(fd, bytes, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}
