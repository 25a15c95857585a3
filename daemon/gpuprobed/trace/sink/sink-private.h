/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a session is made of: its buffer, its processes, and what it has told. */

#include <poll.h>
#include <sys/queue.h>
#include <uv.h>

#include "lib/base/clock.h"
#include "daemon/gpuprobed/settings/filter.h"
#include "number-map.h"
#include "sink.h"

#define SESSION_RESERVE \
	((size_t)4 << 20) /* above the bound, for records that others need to be understood */
#define SESSION_LOST_MAX 4096 /* pids and tids that losses are told apart by */
#define SESSION_PROCESSES_MAX 65536
#define SESSION_THREADS_MAX 262144
#define SESSION_STACKS_MAX 65536
#define SESSION_FILES_MAX 16384
#define SESSION_MISSING_MAX 256
#define SESSION_REFUSED_SHOWN 8 /* pids in one line */

struct config;
struct trace_hooks;
struct trace_table;
struct trace_uprobe;

struct trace_chunk {
	TAILQ_ENTRY(trace_chunk) link;
	size_t n;
	_Alignas(8) unsigned char bytes[TRACE_CHUNK_SIZE];
};

TAILQ_HEAD(trace_chunk_list, trace_chunk);

/* A process that a session was asked about. */
struct trace_member {
	struct process_facts facts;
	uint64_t checked; /* when facts were read last: uv_now() */
	uint64_t known; /* the same, CLOCK_MONOTONIC: it was that program then */
	pid_t parent;
	bool alive; /* facts could be read */
	bool means;
	bool child; /* of a traced process: means, whatever the filter says */
	bool announced; /* there is a PROCESS record */
	bool ended; /* likewise, of its end */
	bool shim; /* its calls come from the shim */
	bool refused; /* its shim got no connection, which is told */
	bool busy; /* its parents are being looked at: it stays */
	uint64_t second, n_second; /* of uv_now(): records since then */
};

/* One of `pids`. */
struct trace_target {
	pid_t pid;
	uint64_t start_time;
	int pidfd; /* -1: it has ended */
	unsigned int ending; /* ticks since its end was seen */
};

/* Whether the process has; -1: nobody knows. */
static inline bool pidfd_has_ended(int pidfd) {
	struct pollfd process = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&process, 1, 0) > 0;
}

struct trace_session {
	struct trace_table *table; /* of the room above */
	struct sink_shared *shared;
	/* Takes what hooks saw by now, if there are any: the room above sets it. */
	void (*catch_up)(struct trace_session *session);
	unsigned int index; /* in the table: bit of masks */
	struct trace_config config;
	const struct trace_options *options; /* of config */
	struct filter cgroup; /* has_cgroup, or nothing */
	uint64_t end; /* CLOCK_MONOTONIC; 0: none */
	uint64_t began; /* CLOCK_MONOTONIC */
	bool ending; /* what has been counted goes out, whatever the bound */
	bool finished;
	/* the buffer */
	struct trace_chunk_list chunks;
	struct trace_chunk *taken, *spare;
	size_t buffered; /* bytes */
	uint64_t last_wake; /* CLOCK_MONOTONIC */
	uint64_t n_records, n_lost;
	struct number_map lost[4]; /* of each source: pid << 32 | tid, +1 -> count */
	bool has_lost;
	/* processes */
	struct number_map members; /* pid -> struct trace_member */
	struct trace_member *last_member; /* that was asked about */
	struct number_map threads; /* pid << 32 | tid */
	struct trace_target *targets;
	size_t n_targets;
	struct trace_target *leaving; /* processes that have left the shim's side */
	size_t n_leaving;
	/* numbers that were told */
	uint64_t functions[(TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC) / 64];
	struct number_map stacks; /* hash -> id */
	uint32_t last_stack;
	struct number_map files; /* pid and inode of those in stacks */
	struct number_map tallies; /* of calls that are counted */
	uint64_t counted, pruned; /* when they were told, and looked through for those of processes
				     that are gone */
	/* processes whose shim got no connection: the first of them, as long as they are not told
	 */
	struct {
		uint64_t since; /* CLOCK_MONOTONIC */
		char why[160];
		size_t n;
		pid_t pids[SESSION_REFUSED_SHOWN];
	} refused;
	char **missing;
	size_t n_missing,
		n_troubles; /* lines, and those of them that trace_session_trouble() has given */
	struct trace_uprobe *uprobe;
	struct trace_hooks *hooks;
	uint64_t hooks_read; /* CLOCK_MONOTONIC: what they saw until then has been told */
};

#define STACK_PROCESSES_MAX 8

/* Where code of processes is. */
struct stack_cache {
	uint64_t next; /* CLOCK_MONOTONIC: when mappings may be read again */
	struct stack_mappings {
		pid_t pid; /* 0: none */
		uid_t uid;
		uint64_t time;
		size_t n, n_max;
		struct stack_mapping *list;
	} processes[STACK_PROCESSES_MAX];
};

/* What all sessions share. */
struct sink_shared {
	uv_loop_t *loop;
	const struct config *const *config; /* NULL: nobody is excluded */
	struct stack_cache stacks;
	char *functions[TRACE_FUNCTION_MAX -
			TRACE_FUNCTION_DYNAMIC]; /* names of dynamic functions, of all processes */
};

/* sink.c */
bool session_put(struct trace_session *session, const struct trace_record *record, size_t limit);
/* Tells losses, as far as there is room below the limit; session_flush_lost(): the usual one. */
void session_tell_lost(struct trace_session *session, size_t limit);
void session_flush_lost(struct trace_session *session);
void session_deinit_buffer(struct trace_session *session);
/* The number of a dynamic function, 0 without room. Numbers last as long as there are sessions that
 * were told of them: what a process has filled the table with is not for ever. */
uint16_t sink_function(struct sink_shared *shared, const char *name);
void sink_forget_functions(struct sink_shared *shared);

/* sink-count.c: counts a call. False: its record is needed. */
bool session_count_call(struct trace_session *session, const struct trace_call *call);
/* Tells what was counted here, if it is time. */
void session_tell_counts(struct trace_session *session, uint64_t now);
void session_deinit_counts(struct trace_session *session);

/* sink-process.c */
int session_add_targets(struct trace_session *session, uint32_t *bad_pid);
/* Tells ends, a moment after they are seen, or at once the last time. Whether all of `pids` have
 * ended; not if there are none. */
bool session_look_at_targets(struct trace_session *session, bool last);
/* A process has left its ring: its end is told when it comes. */
void session_watch_end(struct trace_session *session, pid_t pid, int pidfd);
/*
 * A process says that it descends of another one. If the session follows that, and both are the
 * same user's, it is traced: what it says is not proved, so others could put what they like into
 * the trace.
 */
void session_descends(struct trace_session *session, pid_t pid, pid_t ancestor);
/* Reads facts again at the next question. */
void session_forget_facts(struct trace_session *session, pid_t pid);
void session_forget_all_facts(struct trace_session *session);
/* NULL: no memory. */
struct trace_member *session_member(struct trace_session *session, pid_t pid);
/* A process gets no connection for its shim: nothing of it is traced by that. Many are told in one
 * line, when a second is over or if it is the last one. */
void session_refused(struct trace_session *session, pid_t pid, const char *why);
void session_tell_refused(struct trace_session *session, bool last);
void session_deinit_processes(struct trace_session *session);
/* Whether a record of the process is within the rate. */
bool session_within_rate(struct trace_session *session, pid_t pid);

/*
 * stack.c: the texts of addresses of a process, one after the other; none if it is not the owner's
 * (NULL: any will do), as of set-user-id programs he may not learn where their code is. Each file
 * that occurs is told. Bytes written.
 */
typedef void (*stack_file_fn)(void *userdata, pid_t pid, uint64_t inode, const char *path);
size_t stack_describe(struct stack_cache *cache, pid_t pid, const uid_t *owner,
		      const uint64_t *addresses, size_t n, char *text, size_t size,
		      stack_file_fn file, void *userdata);
/* A process's stacks will be asked for. */
void stack_foresee(struct stack_cache *cache, pid_t pid);
void stack_cache_deinit(struct stack_cache *cache);
