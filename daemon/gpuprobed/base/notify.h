/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages to systemd (sd_notify(3)), and descriptors for its store. systemd's socket holds a few
 * hundred messages; then libsystemd would block the loop until PID 1 has read some. Here a message
 * that does not fit is queued instead, and sent later in order.
 */

#include <stdbool.h>
#include <uv.h>

struct notify;

/* address: $NOTIFY_SOCKET. NULL: there is no service manager, and nothing is sent. 0 or -errno. */
int notify_new(struct notify **notifyp, const char *address);
struct notify *notify_free(struct notify *notify);

/* Whether there is a service manager. */
bool notify_heard(const struct notify *notify);

/* From now on the loop sends queued messages when there is room. 0 or -errno. */
int notify_start(struct notify *notify, uv_loop_t *loop);

/* Sends queued messages before the loop ends; waits a few seconds at most. A message that comes
 * later is sent at once or dropped. */
void notify_end(struct notify *notify);

/*
 * Sends or queues a message, with fd (borrowed, or -1). 0; or -errno if it will never be sent: too
 * many descriptors are in flight, or the queue is full.
 */
int notify_send(struct notify *notify, int fd, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Sends WATCHDOG=1, unless other messages are queued. */
void notify_beat(struct notify *notify);
