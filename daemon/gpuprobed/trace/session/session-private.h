/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of sessions and rings share. */

#include <sys/queue.h>

#include "lib/clock.h"
#include "daemon/gpuprobed/trace/sink/sink-private.h"

#define TABLE_WARNED_MAX 16
#define TABLE_WORK_MAX 64

struct interest_writer;
struct shim_ring;
LIST_HEAD(shim_ring_list, shim_ring);

struct trace_table {
	struct sink_shared shared;
	uv_timer_t timer;
	bool stopping;
	struct interest_writer *interest;
	struct trace_session *sessions[TRACE_SESSIONS_MAX];
	struct shim_ring_list rings;
	unsigned int n_rings;
	uint64_t last_ring; /* id */
	uint64_t next_ring; /* those below have their turn first */
	struct tsc_clock tsc;
	uint64_t last_alive; /* when the ends of processes were looked for */
	uint64_t records, lost; /* of sessions that are gone */
	struct {
		pid_t pid;
		uint64_t start_time;
	} liars[64]; /* who gets no ring any more */
	unsigned int n_liars;
	struct {
		pid_t pid;
		uint64_t time;
	} warned[TABLE_WARNED_MAX]; /* CLOCK_MONOTONIC; 0: free */
	uint64_t n_unwarned; /* warnings that were left out */
	struct {
		uid_t uid;
		uint64_t until;
	} work[TABLE_WORK_MAX]; /* CLOCK_MONOTONIC: when it has been paid for; 0: free */
};

/* session.c: takes what the sources that ask the kernel have. */
void session_drain(struct trace_session *session);

/*
 * session-table.c: a warning about a process, which may give reason for it as often as it likes, as
 * may its children: one of each in a minute, and TABLE_WARNED_MAX of all. The next one says how
 * many were left out.
 */
void trace_table_warn(struct trace_table *table, pid_t pid, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void trace_table_announce(struct trace_table *table);
/*
 * Beginnings and ends of traces are work of the loop: users who may trace their own processes only
 * get a tenth of the time for them, and may have some seconds in advance, so that nobody waits who
 * does not do this all the time. Whether the user may have more; adds to what he has had.
 */
bool trace_table_may_work(const struct trace_table *table, const struct trace_options *options);
void trace_table_worked(struct trace_table *table, const struct trace_options *options,
			uint64_t nanoseconds);
