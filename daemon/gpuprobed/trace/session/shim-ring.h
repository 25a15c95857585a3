/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rings of traced processes (proto/trace-ring.h): a memfd for each, made when the process asks
 * (WIRE_TRACE) and a session means it, read by the table's timer. All sessions that mean a process
 * share its ring, which has the union of what they ask for; each session gets what it asked for
 * itself.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process;
struct shim_connection;
struct trace_session;
struct trace_table;

/*
 * What a process that asks on this connection, and says of which one it descends (0: none), gets:
 * *fdp is its ring's memfd, borrowed, of *sizep bytes; -1: nobody traces it. 0 or negative errno:
 * the connection is to be closed.
 */
int shim_rings_ask(struct trace_table *table, const struct process *process, uint32_t ancestor,
		   struct shim_connection *connection, int *fdp, uint64_t *sizep);
/* Rings of processes that have ended are read a last time, though others still have their
 * connections. */
void shim_rings_look_at_processes(struct trace_table *table);
/* A connection ends: what its ring holds is read a last time. */
void shim_rings_closed(struct trace_table *table, const struct shim_connection *connection);

/*
 * A session that has just begun takes part in the rings that there are. shim_rings_replace(), once
 * the interest page tells of the session, takes those from their processes that record too little
 * for it: they ask for new ones at once. One that ends reads its rings a last time and leaves.
 */
void shim_rings_join(struct trace_table *table, struct trace_session *session);
void shim_rings_replace(struct trace_table *table, struct trace_session *session);
void shim_rings_leave(struct trace_table *table, struct trace_session *session);

/* Processes that no session means any more are told so. */
void shim_rings_look_again(struct trace_table *table);

enum shim_rings_load {
	SHIM_RINGS_IDLE,
	SHIM_RINGS_SOME,
	SHIM_RINGS_BUSY, /* one fills: read again soon */
};
enum shim_rings_load shim_rings_drain(struct trace_table *table);
