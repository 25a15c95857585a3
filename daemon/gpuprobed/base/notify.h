/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What systemd is told (sd_notify(3)), and the descriptors that it is to keep. Its socket takes a
 * few hundred messages, after which libsystemd would wait for PID 1, and with us all who wait for
 * the loop; so here what does not go waits, in order.
 */

#include <stdbool.h>
#include <uv.h>

struct notify;

/* address: $NOTIFY_SOCKET; NULL: nobody listens, and nothing is sent, as without a notify. 0 or
 * -errno. */
int notify_new(struct notify **notifyp, const char *address);
struct notify *notify_free(struct notify *notify);

/* Whether somebody listens. */
bool notify_heard(const struct notify *notify);

/* From now on what waits goes when it can. 0 or -errno. */
int notify_start(struct notify *notify, uv_loop_t *loop);

/* Waits for what waits, a few seconds, before the loop ends. What comes later goes at once or not
 * at all. */
void notify_end(struct notify *notify);

/*
 * A message, and fd (borrowed, or -1). 0; or -errno: it was not sent and will not be (more
 * descriptors on their way than the user may have open, for one, or more messages than may wait).
 */
int notify_send(struct notify *notify, int fd, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* WATCHDOG=1, unless more than that waits already. */
void notify_beat(struct notify *notify);
