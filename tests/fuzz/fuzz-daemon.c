/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. What the daemon does with what others say that is well-formed: shims, who calls its
 * methods, and workers, each of which may lie. The input is commands: a byte (what, which and how,
 * two, two and four bits), two with a length, and bytes.
 *
 *   0  a message on the shims' connection `which`: a byte chooses its type, then its body; behind
 *      that of an IMAGE the image. how: its descriptor (see give())
 *   1  a call on the connection `which & 1`, as text
 *   2  a worker's answer to what was asked for `which`; how: enum world_reply_flags
 *   3  how 0: the shims' connection ends; 1: the caller's; 2: two bytes of a place, and what is
 *      written there into the last instance;
 *     3: from now on there are passes that are programs
 *
 * What comes back is well-formed, and in the end nothing is left.
 */

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon-world.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "lib/varlink/varlink-message.h"
#include "proto/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SHIMS 4
#define CALLERS 2
#define IMAGE_MAX ((size_t)64 << 10)
#define ANSWER_MAX ((size_t)4 << 20)

struct caller {
	int fd; /* -1: not connected */
	size_t n;
	char text[ANSWER_MAX]; /* not complete yet */
};

static struct {
	int shims[SHIMS];
	struct caller callers[CALLERS];
	int instance; /* -1: none yet */
	uint32_t sequence;
} peer;

/* ---- shims ---- */

/* What the daemon says, each well-formed. Of descriptors that of the last instance is kept. */
static void hear_shim(int fd) {
	char control[CMSG_SPACE(4 * sizeof(int))];
	union wire_message message;

	for (;;) {
		struct iovec vector = { &message, sizeof(message) };
		struct msghdr header = { .msg_iov = &vector,
					 .msg_iovlen = 1,
					 .msg_control = control,
					 .msg_controllen = sizeof(control) };
		const ssize_t n = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		const struct cmsghdr *c;
		int got = -1;

		if (n <= 0)
			return;
		c = CMSG_FIRSTHDR(&header);
		if (!wire_valid(&message, (size_t)n) ||
		    (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
		    (c && c->cmsg_len != CMSG_LEN(sizeof(int))))
			abort();
		if (c)
			memcpy(&got, CMSG_DATA(c), sizeof(got));
		if (got >= 0 && message.header.type == WIRE_INSTANCE_REPLY) {
			fd_close(peer.instance);
			peer.instance = got;
		} else {
			fd_close(got);
		}
	}
}

/* Descriptors beside a message. How many. */
static size_t give(unsigned int how, const union wire_message *message, const uint8_t *image,
		   size_t n_image, int fds[static 2]) {
	const uint64_t size = message->header.type == WIRE_IMAGE ? message->image.image_size : 0;
	uint8_t *bytes;

	fds[0] = fds[1] = -1;
	if (message->header.type != WIRE_IMAGE)
		how = how & 8 ? 4 : 3;
	if (how == 3)
		return 0;
	if (how == 4) {
		fds[0] = eventfd(0, EFD_CLOEXEC);
		return 1;
	}
	bytes = calloc(1, IMAGE_MAX + 1);
	memcpy(bytes, image, n_image < IMAGE_MAX ? n_image : IMAGE_MAX);
	if (how == 1) { /* not sealed */
		fds[0] = memfd_new("fuzz");
		if (ftruncate(fds[0], (off_t)(size < IMAGE_MAX ? size : IMAGE_MAX)))
			abort();
	} else {
		fds[0] = memfd_new_sealed(
			"fuzz", bytes, (size_t)(size < IMAGE_MAX ? size : IMAGE_MAX) + (how == 2));
	}
	free(bytes);
	if (how == 5)
		fds[1] = dup(fds[0]);
	return fds[1] < 0 ? 1 : 2;
}

static void say_shim(int fd, unsigned int how, const uint8_t *data, size_t size) {
	static const uint16_t types[] = { WIRE_HELLO,  WIRE_IMAGE,  WIRE_INSTANCE, WIRE_ARMED,
					  WIRE_UNLOAD, WIRE_REPORT, WIRE_SYNCED,   WIRE_TRACE,
					  WIRE_RESUME, WIRE_KEEP,   WIRE_IDS };
	const uint16_t type = types[data[0] % (sizeof(types) / sizeof(types[0]))];
	const size_t n_body = wire_size(type) - sizeof(struct wire_header);
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {};
	union wire_message message = {};
	struct iovec vector = { &message, wire_size(type) };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	size_t n_fds;
	int fds[2];

	data++;
	size--;
	message.header = (struct wire_header){ WIRE_MAGIC, WIRE_VERSION, type,
					       (uint32_t)wire_size(type), ++peer.sequence };
	memcpy(&message.header + 1, data, size < n_body ? size : n_body);
	if (type == WIRE_HELLO && how == 6)
		message.header.version--; /* before an upgrade */
	if (type == WIRE_IMAGE) /* a process has one engine: this one has that of the question */
		world_use_engine(message.image.kind == WIRE_IMAGE_NAMES ? ENGINE_SANITIZER
									: ENGINE_PTX);
	if (type == WIRE_SYNCED)
		message.header.sequence = world.daemon->client.last_sequence;
	n_fds = size > n_body ? give(how, &message, data + n_body, size - n_body, fds)
			      : give(how, &message, data, 0, fds);
	if (n_fds) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.align =
			(struct cmsghdr){ CMSG_LEN(n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
	}
	sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	fd_close(fds[0]);
	fd_close(fds[1]);
}

/* ---- callers ---- */

static void hear_caller(struct caller *caller) {
	struct varlink_reply_message reply;
	char *nul;
	ssize_t n;

	while (caller->fd >= 0 && (n = recv(caller->fd, caller->text + caller->n,
					    ANSWER_MAX - caller->n, MSG_DONTWAIT)) > 0) {
		caller->n += (size_t)n;
		while ((nul = memchr(caller->text, 0, caller->n))) {
			const size_t length = (size_t)(nul - caller->text);

			if (varlink_reply_message_parse(&reply, caller->text, length))
				abort();
			json_object_put(reply.root);
			caller->n -= length + 1;
			memmove(caller->text, nul + 1, caller->n);
		}
		if (caller->n == ANSWER_MAX)
			abort();
	}
}

static void say_caller(struct caller *caller, const uint8_t *data, size_t size) {
	if (caller->fd < 0)
		caller->fd = world_connect(world.control, SOCK_STREAM);
	if (send(caller->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size)
		send(caller->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void hang_up(struct caller *caller) {
	caller->fd = fd_close(caller->fd);
	caller->n = 0;
}

/* ---- commands ---- */

static void run(unsigned int command, const uint8_t *data, size_t size) {
	const unsigned int which = command >> 2 & 3, how = command >> 4;
	uint16_t place;

	switch (command & 3) {
	case 0:
		if (peer.shims[which] < 0)
			peer.shims[which] = world_connect(world.shims, SOCK_SEQPACKET);
		if (size)
			say_shim(peer.shims[which], how, data, size);
		break;
	case 1:
		say_caller(&peer.callers[which % CALLERS], data, size);
		break;
	case 2:
		world_reply(which, how, data, size);
		break;
	default:
		if (how == 0)
			peer.shims[which] = fd_close(peer.shims[which]);
		else if (how == 1)
			hang_up(&peer.callers[which % CALLERS]);
		else if (how == 3)
			world_use_programs();
		else if (peer.instance >= 0 && size > sizeof(place)) {
			memcpy(&place, data, sizeof(place));
			if (pwrite(peer.instance, data + sizeof(place), size - sizeof(place),
				   place) < 0)
				break; /* it is sealed, and ends there */
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (!world.daemon)
		world_start();
	peer.instance = peer.callers[0].fd = peer.callers[1].fd = -1;
	memset(peer.shims, -1, sizeof(peer.shims));
	peer.sequence = 0;
	world_begin();
	while (size >= 3) {
		const unsigned int command = data[0];
		size_t n = (size_t)data[1] | (size_t)data[2] << 8;

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		run(command, data, n);
		world_turn();
		for (size_t i = 0; i < SHIMS; i++)
			hear_shim(peer.shims[i]);
		for (size_t i = 0; i < CALLERS; i++)
			hear_caller(&peer.callers[i]);
		data += n;
		size -= n;
	}
	for (size_t i = 0; i < SHIMS; i++)
		fd_close(peer.shims[i]);
	for (size_t i = 0; i < CALLERS; i++)
		hang_up(&peer.callers[i]);
	fd_close(peer.instance);
	world_turn();
	world_end();
	return 0;
}
