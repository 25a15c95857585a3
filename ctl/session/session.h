/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What commands share that start a program, CMD, and observe it: gputrace, trace, attach -- CMD,
 * run.
 */

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "ctl/base/ctl.h"

/* private.c: the daemon that is spoken to: one that runs, or a private one for as long as we last.
 */
struct session {
	pid_t pid; /* of the private daemon; 0: there is none */
	int log; /* what it says */
	char name[40];
	bool verifies; /* programs are verified by Linux before they run */
};

/*
 * Connects. If `may_start` and no daemon answers, or the system's lets this user not attach, starts
 * a private one. That does not verify if the user lacks the rights for it, unless `require_verify`.
 * Returns the exit status.
 */
int session_open(struct session *session, struct ctl *ctl, bool may_start, bool require_verify);
/* Says that nothing is verified, if so. */
void session_tell_unverified(const struct session *session);
/* Whether the private daemon has ended by itself, or does within that time; says so, with what it
 * said last. */
bool session_ended(struct session *session, int wait_ms);
/* Ends the private daemon. */
void session_close(struct session *session);

/* child.c: CMD, which waits until all is in place. */
struct child {
	pid_t pid; /* 0: there is none, or it has ended */
	int go; /* a socket to it until it is CMD; -1: none */
	int status; /* its exit status, or 128 and the signal */
};

struct child_options {
	const struct ctl *ctl;
	char **command; /* CMD and its arguments */
	bool shim; /* it is to have the shim, if that is installed */
	const char *other; /* what CMD may have been meant to be: "gpuprobectl trace report"; or
			      NULL */
};

/* Whether CMD will have the shim, if it does not do without on purpose. */
bool child_has_shim(void);
/* Returns the exit status. */
int child_start(struct child *child, const struct child_options *options);
void child_go(struct child *child);
/* Whether it has said that it cannot become CMD. */
bool child_failed(struct child *child);
/* Whether it has ended by now, or waits for that. */
bool child_ended(struct child *child, bool wait);
void child_kill(struct child *child);
/* CMD could not be executed, and that was said. */
static inline bool child_was_not_run(const struct child *child) {
	return child->status == 126 || child->status == 127;
}

/* attached.c: an object that is attached for as long as we last. One at a time in a process. */
/* Returns the exit status, and what the daemon says of it. */
int attached_new(struct ctl *ctl, json_object *consume_parameters, const char *subject,
		 json_object **attachedp);
/* Detaches and frees it, also if it is NULL. ctl NULL: the daemon is gone, and so is the
 * attachment. Returns the exit status. */
int attached_free(struct ctl *ctl, json_object *attached);
/* Detaches by a connection of its own, where the main thread does not come to it: for
 * ctl_end_if_stuck(). */
void attached_end(void);
/* Which kernels were not probed, and why: what is counted lacks them. Of whole images only if
 * nothing was probed. pid 0: of all processes. seen: as attached_seen() said before. */
void attached_tell_unprobed(struct ctl *ctl, pid_t pid, int64_t seen);
/* How many processes with CUDA the daemon has seen so far; -1: that is not known. */
int64_t attached_seen(struct ctl *ctl);

/*
 * signals.c: blocks the signals that end a process, and SIGCHLD if there is a child; they come
 * through the descriptor that is returned, or -1 and errno. *endingp: those that end.
 */
int session_signals(sigset_t *endingp, bool child);
