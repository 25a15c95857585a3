/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The wire protocol (proto/wire.h) as the shim speaks it: blocking with a deadline on a
 * non-blocking socket, no SIGPIPE, no descriptor that survives exec. Any surprise breaks the
 * connection; the caller then lets the application go on alone.
 */

#include "wire-client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/deadline.h"
#include "proto/paths.h"

/*
 * Out of the way of shells and tests, but below 64: a descriptor table that has to grow costs a
 * process with threads, which every CUDA program is, an RCU grace period (9 ms on an H200 machine).
 */
#define LEAST_DESCRIPTOR 40

int wire_client_move_descriptor(int fd) {
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR);

	if (moved < 0 && fd > STDERR_FILENO)
		return fd; /* a low descriptor limit: then it stays */
	if (moved < 0) /* but not where the program has closed what it still writes to */
		moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return moved;
}

bool wire_client_is_open(const struct wire_client *client) {
	struct stat status;

	return client->fd >= 0 && fstat(client->fd, &status) == 0 && S_ISSOCK(status.st_mode) &&
	       status.st_dev == client->device && status.st_ino == client->inode;
}

bool wire_client_is_alive(const struct wire_client *client) {
	struct pollfd polled = { .fd = client->fd, .events = POLLIN };
	int saved = errno, r = -1;

	if (wire_client_is_open(client))
		do /* a signal of the application's interrupts even a look */
			r = poll(&polled, 1, 0);
		while (r < 0 && errno == EINTR);
	errno = saved;
	return r == 0;
}

void wire_client_close(struct wire_client *client) {
	if (wire_client_is_open(client))
		close(client->fd);
	client->fd = -1;
}

/* Waits for the socket; false when the deadline is over. */
static bool wait_for(int fd, short events, uint64_t deadline_ms) {
	struct pollfd polled = { .fd = fd, .events = events };

	for (;;) {
		uint64_t now = deadline_now_ms();
		int r;

		if (now >= deadline_ms)
			return false;
		r = poll(&polled, 1, (int)(deadline_ms - now));
		if (r > 0)
			return true;
		if (r < 0 && errno != EINTR)
			return false;
	}
}

void wire_client_prepare(struct wire_client *client, union wire_message *message,
			 enum wire_type type, uint32_t sequence) {
	message->header = (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = type,
		.size = (uint32_t)wire_size(type),
		.sequence = sequence ? sequence : ++client->sequence,
	};
}

bool wire_client_send(struct wire_client *client, const union wire_message *message, int fd,
		      uint64_t deadline_ms) {
	struct iovec bytes = { (void *)message, message->header.size };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr datagram = { .msg_iov = &bytes, .msg_iovlen = 1 };

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		datagram.msg_control = &control;
		datagram.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	for (;;) {
		ssize_t sent;

		if (!wire_client_is_open(client))
			return false;
		sent = sendmsg(client->fd, &datagram, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0)
			return sent == (ssize_t)message->header.size;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || !wait_for(client->fd, POLLOUT, deadline_ms))
			return false;
	}
}

/* Takes the descriptors out of a datagram: at most one is kept. false if there were more. */
static bool take_descriptor(struct msghdr *datagram, int *fd) {
	bool surplus = false;

	*fd = -1;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(datagram); part;
	     part = CMSG_NXTHDR(datagram, part)) {
		size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int one;

			memcpy(&one, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			if (*fd < 0) {
				*fd = one;
			} else {
				close(one);
				surplus = true;
			}
		}
	}
	return !surplus && !(datagram->msg_flags & (MSG_TRUNC | MSG_CTRUNC));
}

bool wire_client_receive(struct wire_client *client, union wire_message *message,
			 enum wire_type type, int *fd, uint64_t deadline_ms) {
	struct iovec bytes = { message, sizeof(*message) };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct msghdr datagram = {
		.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.space),
	};
	ssize_t received;
	int one;
	bool good;

	do {
		/* asked after the wait: nothing must be read from whoever has the number now */
		if (!wait_for(client->fd, POLLIN, deadline_ms) || !wire_client_is_open(client))
			return false;
		received = recvmsg(client->fd, &datagram, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (received < 0 && (errno == EINTR || errno == EAGAIN));
	if (received < 0)
		return false;
	good = take_descriptor(&datagram, &one) && wire_valid(message, (size_t)received) &&
	       (!type || message->header.type == type);
	if (one >= 0 && (!good || !fd)) {
		close(one);
		good = false;
	}
	if (fd)
		*fd = good && one >= 0 ? wire_client_move_descriptor(one) : -1;
	return good;
}

bool wire_client_call(struct wire_client *client, union wire_message *message, int send_fd,
		      enum wire_type reply, int *fd, uint64_t deadline_ms) {
	uint32_t sequence = message->header.sequence;

	if (!wire_client_send(client, message, send_fd, deadline_ms) ||
	    !wire_client_receive(client, message, reply, fd, deadline_ms))
		return false;
	if (message->header.sequence == sequence)
		return true;
	if (fd && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return false;
}

/*
 * A user's own session daemon must be that user's; below /run/gpuprobe only the system's daemon can
 * listen.
 */
static bool peer_is_trusted(int fd, const char *folder) {
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return false;
	return !strcmp(folder, PATHS_SYSTEM_DIR) || peer.uid == getuid() || peer.uid == 0;
}

/*
 * Connects; a full queue of connections is waited for until the deadline, as poll() does not tell
 * of it.
 */
static bool connect_patiently(int fd, const struct sockaddr_un *address, uint64_t deadline_ms) {
	const struct timespec pause = { .tv_nsec = 1000000 };

	while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
		if ((errno != EAGAIN && errno != EINTR) || deadline_now_ms() >= deadline_ms)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Makes the socket. */
static bool make_socket(struct wire_client *client) {
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat status;

	if (fd >= 0)
		fd = wire_client_move_descriptor(fd);
	if (fd < 0)
		return false;
	if (fstat(fd, &status) < 0) {
		close(fd);
		return false;
	}
	*client = (struct wire_client){ .fd = fd, .device = status.st_dev, .inode = status.st_ino };
	return true;
}

static bool connect_to(struct wire_client *client, const char *folder, uint64_t deadline_ms) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int length;

	length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder,
			  PATHS_SHIM_SOCKET);
	return length > 0 && (size_t)length < sizeof(address.sun_path) && make_socket(client) &&
	       connect_patiently(client->fd, &address, deadline_ms) &&
	       peer_is_trusted(client->fd, folder);
}

bool wire_client_open(struct wire_client *client, const char *folder, enum wire_role role,
		      uint32_t driver_version, uint64_t deadline_ms, struct wire_welcome *welcome) {
	union wire_message message;

	*client = (struct wire_client)WIRE_CLIENT_NONE;
	if (!connect_to(client, folder, deadline_ms)) {
		wire_client_close(client);
		return false;
	}
	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_HELLO, 0);
	message.hello.role = role;
	message.hello.driver_version = driver_version;
	strncpy(message.hello.shim_version, PROJECT_VERSION,
		sizeof(message.hello.shim_version) - 1);
	if (!wire_client_call(client, &message, -1, WIRE_WELCOME, NULL, deadline_ms)) {
		wire_client_close(client);
		return false;
	}
	*welcome = message.welcome;
	return true;
}
