/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Input of a stream socket without descriptors. Who reads descriptors, though he does not want them, lets go of them, and that takes as long as
 * who sent them wants: a TCP socket that lingers holds whoever has it last. So input is looked at before it is read.
 */

#include <errno.h>
#include <sys/socket.h>

/* How many bytes can be read without taking descriptors, at most n, which are at bytes already; 0 at the end; or -errno, -EPROTO if some are there. */
static inline ssize_t peek_input(int fd, void *bytes, size_t n) {
	struct iovec vector = { bytes, n };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	ssize_t found = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);

	if (found < 0)
		return -errno;
	return header.msg_flags & MSG_CTRUNC ? -EPROTO : found;
}
