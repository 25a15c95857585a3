/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* One datagram, with fd (borrowed) or -1 for none, without waiting. 0 or -errno; -ETOOMANYREFS: this user has too many descriptors in flight. */
int send_fd(int socket_fd, const void *bytes, size_t n, int fd);
