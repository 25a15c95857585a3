/* SPDX-License-Identifier: Apache-2.0 */

#include "send-fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int send_fd(int socket_fd, const void *bytes, size_t n, int fd) {
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct iovec vector = { (void *)bytes, n };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fd >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&header);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	for (;;) {
		if (sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}
