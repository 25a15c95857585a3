/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session is one call of Trace: it takes records from its sources (sink.h), holds them, up to a
 * bound, until its client takes them, and knows which processes it is about. The table has all
 * sessions and the rings of traced processes (shim-ring.h), and the timer that all of them are
 * drained by. What varlink has to do with it is in control/control-trace.c.
 */

#include <uv.h>

#include "daemon/gpuprobed/trace/sink/sink.h"

#define TRACE_BEGAN "trace: began, by" /* as the log says it */
#define TRACE_KEPT_FOR_NEW \
	2 /* of these, for users who have none, so that some cannot shut all others out */
#define TRACE_KEPT_FOR_ROOT 2 /* ... and for root, and the daemon's user */
#define TRACE_BUFFER_DEFAULT ((size_t)64 << 20) /* of a session */

struct config;
struct interest_writer;
struct trace_hooks;
struct trace_table;

/* Both are borrowed, and may be NULL; config: where the one that holds is found. 0 or -ENOMEM. */
int trace_table_new(struct trace_table **tablep, uv_loop_t *loop, struct interest_writer *interest,
		    const struct config *const *config);
/* How many sessions one user may have. */
unsigned int trace_table_quota(const struct trace_table *table);
/* After a change of who is excluded: what is known of processes is asked anew, and those that
 * nobody means any more are told. */
void trace_table_look_again(struct trace_table *table);
/* Ends all sessions (each one's `wake` is called a last time) and the timer; nothing new starts. */
void trace_table_stop(struct trace_table *table);
bool trace_table_stopping(const struct trace_table *table);
/* After the loop has ended, and all connections of shims. NULL is fine. */
struct trace_table *trace_table_free(struct trace_table *table);

/* A process gets no connection, or loses it: its traces say so. */
void trace_table_refused(struct trace_table *table, pid_t pid, const char *why);

/* Sessions now, processes that have a ring now, and records and losses so far: of all sessions. */
struct trace_counters {
	unsigned int sessions, processes;
	uint64_t records, lost;
};
struct trace_counters trace_table_counters(const struct trace_table *table);

/*
 * Starts: START is the first record; everything is attached when it returns, but probes of files of
 * users, for which see trace_session_ready(). 0, TRACE_E_*, or negative errno.
 */
int trace_session_new(struct trace_session **sessionp, struct trace_table *table,
		      const struct trace_config *config, uint32_t *bad_pid);
/* Ends at once; NULL is fine. */
struct trace_session *trace_session_free(struct trace_session *session);

/* Whether all is attached that will be, and trace_session_trouble() says what could not be. `wake`
 * is called when it has become so. */
bool trace_session_ready(const struct trace_session *session);

/* All is over: STOP is in the buffer, or was taken. */
bool trace_session_finished(const struct trace_session *session);
/* Ends the trace as its duration would. */
void trace_session_finish(struct trace_session *session);

/* For ListHooks: what sessions of a user have attached (NULL: of all). */
size_t trace_table_hooks(const struct trace_table *table, const uid_t *owner,
			 struct trace_hooks *hooks[static TRACE_SESSIONS_MAX]);
