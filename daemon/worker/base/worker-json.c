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

#define LOG_MAX (64 * 1024)

/* Replaces what is no UTF-8, and NUL, by '?'. */
static void make_valid(char *text, size_t length) {
	size_t i = 0;

	while (i < length) {
		size_t n = utf8_length(text + i, length - i);

		if (!n || !text[i]) {
			text[i] = '?';
			n = 1;
		}
		i += n;
	}
}

int worker_add_object(struct json_object *object, const char *key, struct json_object *consumed) {
	if (!consumed)
		return -ENOMEM;
	if (json_object_object_add(object, key, consumed)) {
		json_object_put(consumed);
		return -ENOMEM;
	}
	return 0;
}

int worker_add_string_n(struct json_object *object, const char *key, const char *text,
			size_t length) {
	struct json_object *string;
	char *copy;

	if (length > INT32_MAX)
		return -EFBIG;
	copy = malloc(length + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, length);
	make_valid(copy, length);
	string = json_object_new_string_len(copy, (int)length);
	free(copy);
	return worker_add_object(object, key, string);
}

int worker_add_string(struct json_object *object, const char *key, const char *text) {
	return worker_add_string_n(object, key, text, strlen(text));
}

/* A text for a person, in one line whatever foreign bytes were printed into it. */
int worker_add_line(struct json_object *object, const char *key, const char *text) {
	char *line = strdup(text);
	int r;

	if (!line)
		return -ENOMEM;
	for (char *c = line; *c; c++)
		if (is_control(*c))
			*c = ' ';
	r = worker_add_string(object, key, line);
	free(line);
	return r;
}

int worker_add_int(struct json_object *object, const char *key, int64_t value) {
	return worker_add_object(object, key, json_object_new_int64(value));
}

int worker_add_bool(struct json_object *object, const char *key, bool value) {
	return worker_add_object(object, key, json_object_new_boolean(value));
}

int worker_reply_status(struct json_object *reply, const char *status) {
	return worker_add_string(reply, "status", status);
}

/* Takes all members out. */
static void empty(struct json_object *object) {
	struct json_object_iterator member = json_object_iter_begin(object);
	struct json_object_iterator end = json_object_iter_end(object);

	while (!json_object_iter_equal(&member, &end)) {
		json_object_object_del(object, json_object_iter_peek_name(&member));
		member = json_object_iter_begin(object);
		end = json_object_iter_end(object);
	}
}

/* A log that is too long loses its middle: the first and the last words of a compiler say most. */
static int add_log(struct json_object *reply, const char *log) {
	static const char gap[] = "\n[...]\n";
	size_t length = strlen(log), half = (LOG_MAX - sizeof(gap)) / 2;
	char *shortened;
	int r;

	if (length <= LOG_MAX)
		return worker_add_string_n(reply, "log", log, length);
	shortened = malloc(LOG_MAX);
	if (!shortened)
		return -ENOMEM;
	memcpy(shortened, log, half);
	memcpy(shortened + half, gap, sizeof(gap) - 1);
	memcpy(shortened + half + sizeof(gap) - 1, log + length - half, half);
	r = worker_add_string_n(reply, "log", shortened, 2 * half + sizeof(gap) - 1);
	free(shortened);
	return r;
}

int worker_reply_error(struct json_object *reply, const char *log, const char *error,
		       const char *format, ...) {
	char message[512];
	va_list arguments;
	int r;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	empty(reply);
	r = worker_reply_status(reply, "error");
	if (!r)
		r = worker_add_string(reply, "error", error);
	if (!r)
		r = worker_add_line(reply, "message", message);
	if (!r && log && *log)
		r = add_log(reply, log);
	return r;
}

static struct json_object *get(struct json_object *object, const char *key, enum json_type type) {
	struct json_object *member;

	if (!json_object_object_get_ex(object, key, &member) || !json_object_is_type(member, type))
		return NULL;
	return member;
}

bool worker_get_string(struct json_object *object, const char *key, const char **text) {
	struct json_object *member = get(object, key, json_type_string);

	/* A string with a NUL inside would be another one to us. */
	if (!member ||
	    strlen(json_object_get_string(member)) != (size_t)json_object_get_string_len(member))
		return false;
	*text = json_object_get_string(member);
	return true;
}

bool worker_get_int(struct json_object *object, const char *key, int64_t min, int64_t max,
		    int64_t *value) {
	struct json_object *member = get(object, key, json_type_int);
	int64_t number;

	if (!member)
		return false;
	number = json_object_get_int64(member);
	if (number < min || number > max)
		return false;
	*value = number;
	return true;
}

bool worker_get_bool(struct json_object *object, const char *key, bool *value) {
	struct json_object *member = get(object, key, json_type_boolean);

	if (!member)
		return false;
	*value = json_object_get_boolean(member);
	return true;
}

bool worker_get_array(struct json_object *object, const char *key, size_t max,
		      struct json_object **array) {
	struct json_object *member = get(object, key, json_type_array);

	if (!member || json_object_array_length(member) > max)
		return false;
	*array = member;
	return true;
}

bool worker_get_object(struct json_object *object, const char *key, struct json_object **member) {
	struct json_object *found = get(object, key, json_type_object);

	if (!found)
		return false;
	*member = found;
	return true;
}

int worker_get_fd(const struct worker_job *job, struct json_object *object, const char *key) {
	int64_t index;

	if (!job->n_fds || !worker_get_int(object, key, 0, (int64_t)job->n_fds - 1, &index))
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
