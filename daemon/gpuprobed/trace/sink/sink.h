/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session as its sources see it: they give it records of proto/trace.h. A session is one call of
 * Trace (session/session.h). It filters nothing: a source gives only what the options ask for and
 * the caller may see. All runs on the daemon's loop and never blocks; what may take long
 * (attaching) is bounded, and said in the source's file.
 *
 * Each source is `struct trace_NAME` with trace_NAME_new(), _drain(), _free() (source/source.h,
 * hook/hook.h).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "daemon/gpuprobed/settings/filter.h"
#include "proto/trace.h"

#define TRACE_SESSIONS_MAX 8
#define TRACE_CHUNK_SIZE ((size_t)384 << 10) /* of records in one reply: 512 KiB in base64 */

struct trace_session;

struct trace_options {
	uid_t caller;
	bool all_users; /* the caller may trace processes of others */
	bool own_files; /* users without that right may have probes of functions of their own files
			 */
	struct filter filter;
	const char *cgroup; /* or NULL */
	const uint32_t *pids; /* n_pids 0: those that the filter means */
	size_t n_pids;
	bool follow;
	bool shim, bpf, gpu, kernel; /* sources */
	bool cupti; /* with gpu: by CUPTI, if possible */
	uint64_t functions[TRACE_FUNCTION_MAX / 64]; /* bit n: calls of function n; dynamic ones
							have the bit TRACE_FUNCTION_DYNAMIC */
	const char *const *hooks; /* patterns */
	size_t n_hooks;
	const char *const *probes; /* specs */
	size_t n_probes;
	uint64_t min_duration; /* nanoseconds */
	uint64_t sample; /* 1: all */
	uint64_t rate; /* 0: no limit */
	bool errors, extras, stacks;
	bool aggregate; /* calls are counted, where that can be done */
	size_t buffer; /* bytes for each thread */
};

struct trace_config {
	struct trace_options
		options; /* texts and arrays stay where they are as long as the session */
	uint64_t duration; /* nanoseconds; 0: without end */
	size_t buffer; /* bytes that wait for the client; 0: TRACE_BUFFER_DEFAULT */
	/* There is something to take, or the session is finished. Called from the table's timer, at
	 * most every few milliseconds. It may free the session. */
	void (*wake)(struct trace_session *session, void *userdata);
	void *userdata;
};

enum {
	_TRACE_E_SUCCESS,
	TRACE_E_SESSIONS, /* there are TRACE_SESSIONS_MAX, or the rest is for others */
	TRACE_E_USER, /* the caller has trace_table_quota() */
	TRACE_E_WORK, /* the caller's beginnings and ends have taken too much of the time */
	TRACE_E_GONE, /* one of the pids: see bad_pid */
	TRACE_E_FOREIGN, /* likewise: not the caller's */
	TRACE_E_EXCLUDED, /* likewise: left alone by the configuration */
};

/* Whether a process (or the thread group of a thread) is traced; cached facts, safe to ask for each
 * record. */
bool trace_session_means(struct trace_session *session, pid_t pid);
/* The same of one that did something at that time: it may have begun and ended since beginnings
 * were read last, and nothing but the kernel's word for it is left. */
bool trace_session_meant(struct trace_session *session, pid_t pid, uint64_t time);
/* Of one that is not meant: whether it ended before anybody could see who it was. What it did may
 * be lost to the trace. */
bool trace_session_missed(struct trace_session *session, pid_t pid);

/*
 * Gives a record (a copy is made): record->size is set, padding zeroed. False: the client is too
 * slow, and the record is lost and counted; source and pid, tid are who lost it.
 */
bool trace_session_emit(struct trace_session *session, const struct trace_record *record,
			uint32_t pid, uint32_t tid);

/* Gives the NAME of something; a text of TRACE_NAME_MAX bytes or more is cut. False: as above. */
#define TRACE_NAME_MAX 2048
static inline bool trace_session_name(struct trace_session *session, enum trace_source source,
				      enum trace_name_kind kind, uint32_t pid, uint64_t id,
				      const char *text, size_t n) {
	struct {
		struct trace_name name;
		char text[TRACE_NAME_MAX];
	} record = { .name = { .pid = pid, .kind = kind, .id = id } };

	n = n < TRACE_NAME_MAX ? n : TRACE_NAME_MAX - 1;
	record.name.record =
		(struct trace_record){ .size = (uint32_t)(sizeof(record.name) + (n + 8) / 8 * 8),
				       .type = TRACE_NAME,
				       .source = source };
	memcpy(record.text, text, n);
	return trace_session_emit(session, &record.name.record, pid, 0);
}

/*
 * For `count` launches of a process it will not be known when their kernels ended. This is no loss,
 * and is reported apart.
 */
void trace_session_unknown_ends(struct trace_session *session, uint32_t pid, uint64_t count);

/* Records that were lost before they got here. */
void trace_session_lost(struct trace_session *session, enum trace_source source, uint32_t pid,
			uint32_t tid, uint64_t count);

/*
 * Gives what a source has counted of a function of a process since the beginning; what of it is new
 * becomes a COUNTS record. False: there is no room for that now; nothing is lost if the source
 * comes again.
 */
struct trace_tally;
bool trace_session_counts(struct trace_session *session, enum trace_source source, uint32_t pid,
			  uint16_t function, const struct trace_tally *tally);
/* The source has forgotten that one, and so does the session: if it comes again, it counts from 0,
 * as of another process that gets the pid. */
void trace_session_counts_anew(struct trace_session *session, enum trace_source source,
			       uint32_t pid, uint16_t function);

/* Sees to it that a PROCESS (THREAD) record has been sent. */
void trace_session_process(struct trace_session *session, pid_t pid);
void trace_session_thread(struct trace_session *session, pid_t pid, pid_t tid);

/*
 * A traced process began or ended. The source that learns it first reports it; a second report does
 * no harm.
 */
void trace_session_forked(struct trace_session *session, pid_t parent, pid_t child, uint64_t time);
/* comm and exe are new: facts are read again. False: it is gone, and nothing was told. */
bool trace_session_execed(struct trace_session *session, pid_t pid, uint64_t time);
void trace_session_ended(struct trace_session *session, pid_t pid, int status, uint64_t time);

/* Whether calls of a process come from the shim already: probes leave it alone then. */
bool trace_session_has_shim(struct trace_session *session, pid_t pid);

/*
 * Numbers that all sources of a session share. Of a function that the table does not know (>=
 * TRACE_FUNCTION_DYNAMIC; its NAME is sent once; 0: no room for more), and of a stack, innermost
 * first (a TRACE_STACK is sent once; texts come from /proc/PID/maps; 0: none).
 */
uint16_t trace_session_function(struct trace_session *session, const char *name);
/* A process may have stacks: it may be gone when they come. */
void trace_session_foresee(struct trace_session *session, pid_t pid);
uint32_t trace_session_stack(struct trace_session *session, pid_t pid, const uint64_t *addresses,
			     size_t n);

/* A line for `missing` of the first reply, or the next one. */
void trace_session_missing(struct trace_session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- for the client of the session ---- */

/* Lines of trace_session_missing() since the last time; they are the session's. */
size_t trace_session_trouble(struct trace_session *session, const char *const **linesp);

/* The records that have waited longest: at most TRACE_CHUNK_SIZE bytes, the session's until the
 * next call. 0: there are none. */
size_t trace_session_take(struct trace_session *session, const void **recordsp);

/* Whether there are some, or lines. */
bool trace_session_waiting(const struct trace_session *session);
