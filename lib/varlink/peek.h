/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Looks at the input of a stream socket, to find descriptors in it. A reader that receives unwanted
 * descriptors must close them, and closing may take as long as their sender wants: a TCP socket
 * that lingers blocks the process that closes it last. So input is examined before libuv reads it.
 */

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

/*
 * For a uv_alloc_cb: libuv is to read what lies there already, at most n bytes. An empty buffer,
 * which comes back as UV_ENOBUFS, is that there is nothing now (true), or that there are
 * descriptors or that it cannot be read (false).
 */
static inline bool peek_input(const uv_handle_t *handle, char *bytes, size_t n, uv_buf_t *buffer) {
	struct iovec vector = { bytes, n };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	ssize_t found;
	int fd;

	*buffer = uv_buf_init(NULL, 0);
	if (uv_fileno(handle, &fd) < 0)
		return false;
	found = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);
	if (found < 0 && errno == ECONNRESET)
		found = 0; /* a peer that has not read all is gone: it is said once, and then it is
			      the end */
	if (found < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!(header.msg_flags & MSG_CTRUNC))
		*buffer = uv_buf_init(bytes, found ? (unsigned int)found : 1);
	return false;
}
