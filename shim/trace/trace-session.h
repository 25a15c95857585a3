/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What trace.c needs of the session to begin one; all others use tracing.h. */

#include "shim/interest/wire-client.h"
#include "tracing.h"

/* The session's connection. It is closed when the session ends. */
extern struct wire_client trace_client __attribute__((visibility("hidden")));

/* What sessions need, before the first one. */
bool trace_session_prepare(void);

/* The session is what trace_adopt() took. Returns its number. */
uint64_t trace_session_begin(void);

/* In a child: it has no session, and no other threads. */
void trace_session_forked(void);

/* Is this a child that libc did not tell of the fork? True once, for the first caller. */
bool trace_session_notice_fork(void);

/* Is it such a child, and trace_session_forked() was not called? */
bool trace_session_has_parent(void);
