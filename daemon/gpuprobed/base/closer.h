/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Closes descriptors that came from other users, in threads, so that the loop never waits.
 *
 * close(2) can wait for as long as the sender likes: a TCP socket that lingers blocks the process
 * that closes it last, and it may lie unread in a socket that we close; a file on a FUSE file
 * system blocks until its server answers.
 */

#include <stdbool.h>
#include <uv.h>

struct closer;

/* 0 or -errno. */
int closer_new(struct closer **closerp, uv_loop_t *loop);

/* Gives up what is not closed yet: done() is called for it, and the descriptors stay open until the
 * process ends. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Closes a socket that another user is connected to, in a thread; without a closer at once. */
void closer_socket(struct closer *closer, int consumed_fd);

/* Closes a memfd that another user has filled, in a thread; without a closer at once. Closing the
 * last descriptor of a memfd takes half a second for each GiB. */
void closer_memory(struct closer *closer, int consumed_fd);

/*
 * Whether so many sockets wait to be closed that no new ones should be accepted: they count for no
 * user's quota while they wait. NULL is fine.
 */
bool closer_is_behind(const struct closer *closer);

/*
 * Closes a descriptor that came from another user. done() is called on the loop when it is closed.
 * The sender can delay that for ever, so charge the descriptor to the sender's quota until then.
 */
void closer_foreign(struct closer *closer, int consumed_fd, void (*done)(void *userdata),
		    void *userdata);
