/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon that gputrace speaks to: one that runs, or a private one for as long as it lasts. */

#include "ctl/base/ctl.h"

struct session {
	pid_t pid; /* of the private daemon; 0: there is none */
	int log; /* what it says */
	char name[40];
	bool verifies; /* programs are verified by Linux before they run */
};

/*
 * Connects. Starts a private daemon if none answers and `may_start`; it does not verify if the user
 * lacks the rights for that, unless `require_verify`. Returns the exit status.
 */
int session_open(struct session *session, struct ctl *ctl, bool may_start, bool require_verify);
/* Ends the private daemon. */
void session_close(struct session *session);
