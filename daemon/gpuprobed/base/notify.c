/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sends messages and descriptors to systemd (notify.h); the loop never blocks for long.
 *
 * A message that finds the queue of systemd full first waits PATIENCE_MS for room: as a rule PID 1
 * is only busy, and what is sent survives this process, while what waits here does not. If it takes
 * longer, all that follows waits here, until the loop finds the socket writable.
 */

#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "memfd.h"
#include "send-fds.h"
#include "lib/base/clock.h"

#define PATIENCE_MS 20
#define END_MS 3000
#define WAITING_MAX 4096
#define TEXT_SIZE 1280

struct note {
	STAILQ_ENTRY(note) link;
	int fd;
	size_t n;
	char text[];
};

STAILQ_HEAD(note_list, note);

struct notify {
	struct sockaddr_un address;
	socklen_t n_address;
	int fd; /* -1: nobody listens */
	struct note_list waiting;
	unsigned int n_waiting;
	uv_poll_t *poll; /* NULL: there is no loop */
};

/* A socket that is connected to systemd's. 0 or -errno. */
static int notify_connect(struct notify *notify) {
	_cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int size =
		1 << 20; /* as much as there may be: what is unread counts against the sender */

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (connect(fd, (const struct sockaddr *)&notify->address, notify->n_address) < 0)
		return -errno;
	if (notify->fd < 0) {
		notify->fd = fd;
		fd = -1;
	} else if (dup3(fd, notify->fd, O_CLOEXEC) < 0) {
		return -errno;
	}
	return 0;
}

int notify_new(struct notify **notifyp, const char *address) {
	struct notify *notify = calloc(1, sizeof(*notify));
	const size_t n = address ? strlen(address) : 0;
	int r;

	if (!notify)
		return -ENOMEM;
	notify->fd = -1;
	notify->address.sun_family = AF_UNIX;
	STAILQ_INIT(&notify->waiting);
	if (n > 1 && n < sizeof(notify->address.sun_path) && (*address == '/' || *address == '@')) {
		memcpy(notify->address.sun_path, address, n);
		if (*address == '@')
			notify->address.sun_path[0] = '\0';
		notify->n_address =
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*address == '/'));
		r = notify_connect(notify);
		if (r < 0) {
			free(notify);
			return r;
		}
	} else if (n) {
		free(notify);
		return -EINVAL;
	}
	*notifyp = notify;
	return 0;
}

static void note_free(struct notify *notify, struct note *note) {
	STAILQ_REMOVE_HEAD(&notify->waiting, link);
	notify->n_waiting--;
	fd_close(note->fd);
	free(note);
}

struct notify *notify_free(struct notify *notify) {
	if (!notify)
		return NULL;
	while (!STAILQ_EMPTY(&notify->waiting))
		note_free(notify, STAILQ_FIRST(&notify->waiting));
	fd_close(notify->fd);
	free(notify);
	return NULL;
}

bool notify_heard(const struct notify *notify) {
	return notify && notify->fd >= 0;
}

/* 0, -EAGAIN, or -errno. */
static int notify_try(struct notify *notify, const char *text, size_t n, int fd) {
	int r = send_fds(notify->fd, text, n, &fd, fd >= 0);

	if (r == -ECONNREFUSED &&
	    notify_connect(notify) == 0) /* it has a new socket at the same place */
		r = send_fds(notify->fd, text, n, &fd, fd >= 0);
	return r;
}

/* Sends what waits, as far as it goes. What cannot be sent at all is left out. */
static void notify_flush(struct notify *notify) {
	struct note *note;

	while ((note = STAILQ_FIRST(&notify->waiting)) &&
	       notify_try(notify, note->text, note->n, note->fd) != -EAGAIN)
		note_free(notify, note);
}

static void notify_on_poll(uv_poll_t *poll, int status, int events) {
	struct notify *notify = poll->data;

	notify_flush(notify);
	if (notify->n_waiting)
		uv_poll_start(poll, UV_WRITABLE,
			      notify_on_poll); /* again: it may be another socket now */
	else
		uv_poll_stop(poll);
}

int notify_start(struct notify *notify, uv_loop_t *loop) {
	int r;

	if (!notify_heard(notify))
		return 0;
	notify->poll = malloc(sizeof(*notify->poll));
	if (!notify->poll)
		return -ENOMEM;
	r = uv_poll_init(loop, notify->poll, notify->fd);
	if (r < 0) {
		free(notify->poll);
		notify->poll = NULL;
		return r;
	}
	notify->poll->data = notify;
	if (notify->n_waiting)
		uv_poll_start(notify->poll, UV_WRITABLE, notify_on_poll);
	return 0;
}

static void notify_on_closed(uv_handle_t *handle) {
	free(handle);
}

/* Waits until there is room, so long. */
static void notify_wait(struct notify *notify, int ms) {
	poll(&(struct pollfd){ .fd = notify->fd, .events = POLLOUT }, 1, ms);
}

void notify_end(struct notify *notify) {
	const int64_t end = clock_ms(CLOCK_MONOTONIC) + END_MS;
	int64_t now;

	if (!notify_heard(notify))
		return;
	for (notify_flush(notify); notify->n_waiting && (now = clock_ms(CLOCK_MONOTONIC)) < end;
	     notify_flush(notify))
		notify_wait(notify, (int)(end - now));
	if (notify->poll)
		uv_close((uv_handle_t *)notify->poll, notify_on_closed);
	notify->poll = NULL;
}

/* To the end of those that wait. 0 or -errno. */
static int notify_queue(struct notify *notify, const char *text, size_t n, int fd) {
	struct note *note;
	int copy = -1;

	if (notify->n_waiting >= WAITING_MAX)
		return -ENOBUFS;
	if (fd >= 0 && (copy = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
		return -errno;
	note = malloc(sizeof(*note) + n);
	if (!note) {
		fd_close(copy);
		return -ENOMEM;
	}
	note->fd = copy;
	note->n = n;
	memcpy(note->text, text, n);
	STAILQ_INSERT_TAIL(&notify->waiting, note, link);
	notify->n_waiting++;
	if (notify->poll)
		uv_poll_start(notify->poll, UV_WRITABLE, notify_on_poll);
	return 0;
}

int notify_send(struct notify *notify, int fd, const char *format, ...) {
	char text[TEXT_SIZE];
	va_list arguments;
	size_t n;
	int r;

	if (!notify_heard(notify))
		return 0;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	n = strlen(text);
	if (notify->n_waiting)
		return notify_queue(notify, text, n, fd);
	r = notify_try(notify, text, n, fd);
	if (r == -EAGAIN) {
		notify_wait(notify, PATIENCE_MS);
		r = notify_try(notify, text, n, fd);
	}
	return r == -EAGAIN ? notify_queue(notify, text, n, fd) : r;
}

void notify_beat(struct notify *notify) {
	if (notify_heard(notify) && !notify->n_waiting)
		notify_send(notify, -1, "WATCHDOG=1");
}
