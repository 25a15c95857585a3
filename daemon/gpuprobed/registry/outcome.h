/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What happened to kernels and images, and why: the memory behind `gpuprobectl why`. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct process_facts;

enum outcome_kind {
	OUTCOME_PROBED,
	OUTCOME_NOT_PROBED,
	OUTCOME_FAILED,
};

enum outcome_engine {
	OUTCOME_ENGINE_NONE,
	OUTCOME_ENGINE_PTX,
	OUTCOME_ENGINE_SANITIZER,
	OUTCOME_ENGINE_MACHINE_CODE, /* a twin that was made from machine code */
};

#define OUTCOME_MAX 4096 /* remembered */
#define OUTCOME_UID_MAX 1024 /* of one uid */
#define OUTCOME_ATTACHMENTS_MAX 64

#define OUTCOME_BUCKETS 1024 /* of hashes */

struct outcome_user;

struct outcome {
	TAILQ_ENTRY(outcome) link;
	TAILQ_ENTRY(outcome) user_link; /* of those of its uid */
	LIST_ENTRY(outcome) same; /* of those with the same hash */
	struct outcome_user *user;
	uint64_t number; /* above those of all before it */
	uid_t uid; /* real uid of the process */
	pid_t pid;
	char comm[16];
	int64_t time; /* microseconds since the epoch */
	enum outcome_kind kind;
	enum outcome_engine engine;
	char *kernel; /* mangled, or empty: a whole image or process */
	bool device_function;
	char *demangled;
	char *reason;
	size_t n_attachments;
	uint64_t attachments[];
};

TAILQ_HEAD(outcome_list, outcome);

LIST_HEAD(outcome_same, outcome);

/* Those of a uid, newest first. */
struct outcome_user {
	LIST_ENTRY(outcome_user) link;
	uid_t uid;
	unsigned int n;
	struct outcome_list list;
};

LIST_HEAD(outcome_user_list, outcome_user);

struct outcome_log {
	struct outcome_list list; /* newest first */
	uint64_t last; /* number */
	unsigned int n;
	uint64_t seed; /* of hashes: texts are of strangers */
	struct outcome_same same[OUTCOME_BUCKETS];
	struct outcome_user_list users[OUTCOME_BUCKETS];
};

void outcome_log_init(struct outcome_log *log);
void outcome_log_deinit(struct outcome_log *log);

/* What an outcome is about. All zeros: a whole image or process, and no attachment in particular.
 * Borrowed. */
struct outcome_subject {
	const char *kernel; /* NULL: a whole image or process */
	const char *demangled;
	bool device_function;
	const uint64_t *attachments;
	size_t n_attachments;
	enum outcome_engine engine;
};

/*
 * Remembers one; text that is not printable is shown as '?'. The oldest one of this uid, or of all,
 * is forgotten when there are too many. 0 or -ENOMEM.
 */
int outcome_log_add(struct outcome_log *log, uid_t uid, pid_t pid, const char *comm,
		    enum outcome_kind kind, const struct outcome_subject *subject,
		    const char *reason);

/* The same of a process; outcome_tell_once(): unless that is remembered of it. */
void outcome_tell(struct outcome_log *log, const struct process_facts *facts,
		  enum outcome_kind kind, const struct outcome_subject *subject,
		  const char *reason);
void outcome_tell_once(struct outcome_log *log, const struct process_facts *facts,
		       enum outcome_kind kind, const struct outcome_subject *subject,
		       const char *reason);

/* Whether this was said of the kernel (or of none) and these attachments in a process, and is
 * remembered. */
bool outcome_log_has(const struct outcome_log *log, pid_t pid,
		     const struct outcome_subject *subject, const char *reason);

const char *outcome_kind_name(enum outcome_kind kind);
/* Whether the text of a report (proto/wire.h) says that the sanitizer engine leaves a module alone.
 */
bool outcome_is_left_alone(const char *text);

const char *outcome_engine_name(
	enum outcome_engine engine); /* "ptx", "sanitizer", "machine code" or empty */

/* Whether the outcome is about a kernel that the pattern means (job.md, "Kernel names"). */
bool outcome_means(const struct outcome *outcome, const char *pattern);
bool outcome_kernel_means(const char *kernel, const char *demangled, const char *pattern);
