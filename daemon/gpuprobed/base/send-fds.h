/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sends descriptors over a Unix socket. The spawner and messages to systemd use it. */

#include <stddef.h>

#define SEND_FDS_MAX 64

/* One datagram, with descriptors (borrowed), without waiting. 0 or -errno; -ETOOMANYREFS: this user
 * has too many descriptors in flight. */
int send_fds(int socket_fd, const void *bytes, size_t n, const int *fds, size_t n_fds);
