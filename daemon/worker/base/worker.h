/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What both workers share: the protocol of job.md on fd 3, and the way into the sandbox.
 *
 * A worker's main() does:
 *
 *	r = worker_options_parse(&options, argc, argv);
 *	if (r)
 *		return r > 0 ? 0 : 2;
 *	... dlopen what the jobs need: nothing can be opened later ...
 *	return worker_run(&options, handlers, n_handlers, warm, userdata) < 0;
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox.h"
#include "proto/job.h"

#define WORKER_FD 3
#define WORKER_THREADS_MAX 8 /* of one; each takes memory */
#define WORKER_SLOW_MS 2500 /* longer than a process waits by default */
#define WORKER_INPUT_MAX (UINT64_C(1) << 30)

/* Where a worker fails on purpose: --test-fault=, for tests alone. */
enum worker_fault {
	WORKER_FAULT_NONE,
	WORKER_FAULT_CRASH, /* SIGSEGV when a job arrives */
	WORKER_FAULT_HANG, /* never answers */
	WORKER_FAULT_GARBAGE, /* answers with bytes that are no JSON */
	WORKER_FAULT_SLOW, /* answers well, WORKER_SLOW_MS later than it could */
};

struct worker_options {
	struct sandbox_options sandbox;
	bool no_sandbox; /* for sanitizer builds and fuzzing alone */
	enum worker_fault fault;
	const char *compiler; /* image worker: "auto" or what compiler.h knows */
	unsigned int threads; /* image worker: that compile; 0: one for each processor */
	int fd; /* WORKER_FD */
};

/*
 * Defaults, then the command line: --memory=MIB --cpu=SECONDS --output=MIB --no-sandbox
 * --compiler=NAME --threads=N --test-fault=crash|hang|garbage|slow --help --version. Prints what is
 * wrong. 0: go on, 1: done, -EINVAL.
 */
int worker_options_parse(struct worker_options *options, int argc, char *argv[]);

/* A request. All borrowed during the handler's call; the descriptors are closed after it. */
struct worker_job {
	int64_t id;
	struct json_object *request;
	const int *fds;
	size_t n_fds;
};

/*
 * Serves one job: puts the members of the reply (all but "id") into `reply`. Returns 0 to send
 * `reply`, also with an error for the requester (worker_reply_error()). -errno: the worker must
 * end.
 */
typedef int (*worker_job_fn)(const struct worker_job *job, struct json_object *reply,
			     void *userdata);

struct worker_handler {
	const char *job;
	worker_job_fn fn;
};

/*
 * Called once in the sandbox, before the first job: warms what the jobs use, so that what does not
 * work in there shows here, and puts into `features` what the worker can do. 0 or -errno: the
 * worker ends.
 */
typedef int (*worker_warm_fn)(struct json_object *features, void *userdata);

/*
 * Enters the sandbox, calls warm (may be NULL), says {"ready": true, "features": {...}}, serves
 * jobs until end of file. Returns 0 at end of file, -errno after it has printed one line.
 */
int worker_run(const struct worker_options *options, const struct worker_handler *handlers,
	       size_t n_handlers, worker_warm_fn warm, void *userdata);

/*
 * Replies: members by lib/json.h; the worker sends no reply that lacks one for want of memory. Of a
 * foreign text, what is not UTF-8 becomes '?'. An error takes away what the reply held before;
 * `log` (may be NULL) is shortened to 64 KiB, from the middle. Returns 0, as a handler does.
 */
int worker_reply_error(struct json_object *reply, const char *log, enum job_error error,
		       const char *format, ...) __attribute__((format(printf, 4, 5)));
void worker_add_string(struct json_object *object, const char *key, const char *text);
void worker_add_line(struct json_object *object, const char *key,
		     const char *text); /* no newlines */

/* The descriptor whose index stands in member `key`; -EBADF if there is none such. */
int worker_get_fd(const struct worker_job *job, struct json_object *object, const char *key);

/*
 * Maps a sealed memfd to read. -EPERM if it is not sealed against writing and shrinking, -EFBIG if
 * larger than max, -ENODATA if empty, -errno. worker_unmap() takes it back; NULL is fine.
 */
int worker_map(int fd, uint64_t max, const uint8_t **data, size_t *size);
void worker_unmap(const uint8_t *data, size_t size);

/* Writes all of it at `offset` of an output; 0 or -errno (-EFBIG: over the limit of --output). */
int worker_write(int fd, const void *data, size_t size, uint64_t offset);
