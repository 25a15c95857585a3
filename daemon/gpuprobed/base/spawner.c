/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The thread that starts all processes of the daemon (spawner.h). It takes requests one at a time;
 * its table of descriptors is its own, so no descriptor of another user is in it.
 */

#include "spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "send-fds.h"

#define ITS_CHANNEL 3 /* in the thread's table */
#define SOCKET_OF_CHILD 3

struct spawner {
	pthread_t thread;
	int fd;
};

/* To the thread, with a descriptor; the pointers are of this process. */
struct order {
	const char *path;
	char *const *arguments, *const *environment;
};

/* Back from it. */
struct result {
	int error; /* of errno, or 0 */
	pid_t pid;
};

static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int fd) {
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	r = posix_spawn_file_actions_adddup2(actions, fd, SOCKET_OF_CHILD);
	if (!r)
		r = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDWR, 0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(actions, 0, 1);
	if (!r)
		r = posix_spawn_file_actions_addchdir_np(actions, "/");
	if (!r)
		r = posix_spawnattr_setsigdefault(attributes, &all);
	if (!r)
		r = posix_spawnattr_setsigmask(attributes, &none);
	if (!r)
		r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID |
								 POSIX_SPAWN_SETSIGDEF |
								 POSIX_SPAWN_SETSIGMASK);
	return r;
}

static struct result start(const struct order *order, int fd) {
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	struct result result = { .error = ENOMEM };

	if (posix_spawn_file_actions_init(&actions))
		return result;
	if (!posix_spawnattr_init(&attributes)) {
		result.error = prepare(&actions, &attributes, fd);
		if (!result.error)
			result.error = posix_spawn(&result.pid, order->path, &actions, &attributes,
						   order->arguments, order->environment);
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&actions);
	return result;
}

/* The next order; false at the end. */
static bool receive(struct order *order, int *fdp) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { order, sizeof(*order) };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	const struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(ITS_CHANNEL, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*order))
		return false;
	c = CMSG_FIRSTHDR(&message);
	*fdp = -1;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fdp, CMSG_DATA(c), sizeof(*fdp));
	return true;
}

/* @userdata: the number of its end of the channel, in the table that it shares so far. */
static void *run(void *userdata) {
	struct result result = {};
	int channel = (int)(intptr_t)userdata, fd;
	struct order order;

	if (unshare(CLONE_FILES) < 0 ||
	    (channel != ITS_CHANNEL && dup3(channel, ITS_CHANNEL, O_CLOEXEC) < 0) ||
	    close_range(ITS_CHANNEL + 1, ~0U, 0) < 0)
		result.error = errno;
	send(result.error ? channel : ITS_CHANNEL, &result, sizeof(result), MSG_NOSIGNAL);
	if (result.error)
		return NULL;
	while (receive(&order, &fd)) {
		result = fd < 0 ? (struct result){ .error = EMFILE } : start(&order, fd);
		if (fd >= 0)
			close(fd);
		if (send(ITS_CHANNEL, &result, sizeof(result), MSG_NOSIGNAL) < 0)
			break;
	}
	close(ITS_CHANNEL);
	return NULL;
}

static int answer(const struct spawner *spawner, struct result *result) {
	ssize_t n;

	do
		n = recv(spawner->fd, result, sizeof(*result), 0);
	while (n < 0 && errno == EINTR);
	return n == sizeof(*result) ? -result->error : n < 0 ? -errno : -EPIPE;
}

int spawner_new(struct spawner **spawnerp) {
	struct spawner *spawner = calloc(1, sizeof(*spawner));
	sigset_t all, before;
	struct result result;
	int ends[2], r;

	if (!spawner)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		r = -errno;
		free(spawner);
		return r;
	}
	spawner->fd = ends[0];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&spawner->thread, NULL, run, (void *)(intptr_t)ends[1]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r) {
		close(ends[0]);
		close(ends[1]);
		free(spawner);
		return r;
	}
	r = answer(spawner, &result);
	close(ends[1]);
	if (r) {
		spawner_free(spawner);
		return r;
	}
	*spawnerp = spawner;
	return 0;
}

struct spawner *spawner_free(struct spawner *spawner) {
	if (!spawner)
		return NULL;
	close(spawner->fd);
	pthread_join(spawner->thread, NULL);
	free(spawner);
	return NULL;
}

int spawner_start(struct spawner *spawner, const char *path, char *const *arguments,
		  char *const *environment, int fd, pid_t *pidp) {
	const struct order order = { path, arguments, environment };
	struct result result;
	int r;

	r = send_fds(spawner->fd, &order, sizeof(order), &fd, 1);
	if (!r)
		r = answer(spawner, &result);
	if (!r)
		*pidp = result.pid;
	return r;
}
