/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sends one datagram with descriptors, by sendmsg() and SCM_RIGHTS, without waiting (send-fds.h).
 */

#include "send-fds.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int send_fds(int socket_fd, const void *bytes, size_t n, const int *fds, size_t n_fds) {
	union {
		char bytes[CMSG_SPACE(sizeof(int) * SEND_FDS_MAX)];
		struct cmsghdr align;
	} control = {};
	struct iovec vector = { (void *)bytes, n };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct cmsghdr *c;

	assert(n_fds <= SEND_FDS_MAX);
	if (n_fds) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&header);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	for (;;) {
		if (sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}
