/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Closes what strangers have had a hand in. close(2) may wait for them: a TCP socket that lingers
 * holds whoever lets go of it last, and it may lie unread in a socket that we close; a file of a
 * FUSE server holds everybody who has it open and closes it. So threads do that, and the loop never
 * waits.
 */

#include <stdbool.h>
#include <uv.h>

struct closer;

/* 0 or -errno. */
int closer_new(struct closer **closerp, uv_loop_t *loop);

/* Lets go of what is not closed yet: its done() is called, its descriptors stay open as long as the
 * process. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Consumes a socket that a stranger is connected to, soon. Without a closer it is closed here. */
void closer_socket(struct closer *closer, int consumed_fd);

/* Consumes a memfd that a stranger has filled, soon: whose last descriptor goes takes half a second
 * for each GiB. Without a closer it is closed here. */
void closer_memory(struct closer *closer, int consumed_fd);

/*
 * Whether so many sockets wait to be closed that who makes them should wait, too: what is accepted
 * meanwhile would stay open, as it is in nobody's account. NULL is fine.
 */
bool closer_is_behind(const struct closer *closer);

/*
 * Consumes a descriptor that came from a stranger. done() is called on the loop when that is over,
 * which may be never while the stranger likes: he should be charged until then.
 */
void closer_foreign(struct closer *closer, int consumed_fd, void (*done)(void *userdata),
		    void *userdata);
