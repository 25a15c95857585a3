/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interest page: one page of the file <runtime dir>/interest. The daemon writes it; every CUDA
 * process maps it read-only at its first module load. A process finds out there, without a message,
 * whether any attachment may apply to it.
 *
 * The file of the system daemon outlives it: at boot there is a page of zeros, which means that
 * nobody is interested. Each daemon goes on with the page of the one before, so that a process
 * which mapped it at any time is told of all that come, without a system call. A session daemon
 * that stops removes its file.
 *
 * "Yes" costs one image sent to the daemon, which then decides with facts that it looks up itself.
 * "No" costs nothing; a rule on pid or uid takes not even a system call, so a sandbox that kills
 * for a system call does not kill a process that no rule means. So a rule may match too many
 * processes, but never too few.
 *
 * The page is a sequence lock: generation is odd while the daemon writes. A reader loads generation
 * (acquire), reads the page, and loads it again. It retries while the number is odd or has changed,
 * at most INTEREST_RETRIES times; then it assumes "yes".
 *
 * A page with another magic or version means "no". The fields magic, version, generation and flags
 * lie at the same place in all versions. So a daemon can close the page of an older one, and a
 * process sees when a page that it does not understand is closed. A daemon that does not understand
 * the page puts another file in its place (rename), and then closes the old one: a reader that
 * finds INTEREST_FLAG_REPLACED opens the file again.
 */

#include <stdint.h>

#define INTEREST_MAGIC UINT32_C(0x49525047) /* "GPRI" */
#ifndef INTEREST_VERSION /* tests have programs of other versions */
#define INTEREST_VERSION UINT32_C(4)
#endif
#define INTEREST_PAGE_SIZE 4096
#define INTEREST_RULES_MAX 46
#define INTEREST_EXCLUDE_RULES_MAX 8
#define INTEREST_SASS_RULES_MAX 16
#define INTEREST_TRACE_RULES_MAX 8
#define INTEREST_SANITIZER_MAX 256
#define INTEREST_RETRIES 100
#define INTEREST_DEADLINE_MAX_MS \
	600000 /* the longest that a process waits, whatever the page says */

enum interest_flags {
	INTEREST_FLAG_EVERYONE =
		1 << 0, /* there are more rules than fit: the page applies to every process */
	INTEREST_FLAG_CLOSED = 1 << 1, /* the daemon has stopped normally, or: */
	INTEREST_FLAG_REPLACED = 1 << 2, /* another file is in its place */
};

enum interest_rule_flags {
	INTEREST_RULE_PID = 1 << 0,
	INTEREST_RULE_UID = 1 << 1,
	INTEREST_RULE_COMM = 1 << 2,
	INTEREST_RULE_EXE = 1 << 3,
	INTEREST_RULE_CGROUP = 1 << 4,
	INTEREST_RULE_NOT = 1 << 5, /* in sass_rules: matching processes do not get the engine */
};

/*
 * A process matches a rule if it matches every field that the flags name. A rule without flags
 * matches every process.
 */
struct interest_rule {
	uint32_t flags; /* enum interest_rule_flags */
	uint32_t pid; /* as the daemon sees it; ignored by a process in another pid namespace */
	uint32_t uid; /* real uid, likewise; the process takes its uid at its last load or first
			 call */
	uint32_t reserved; /* 0 */
	char comm[16]; /* as in /proc/PID/comm, NUL-padded */
	uint64_t exe; /* interest_hash of the target of /proc/PID/exe */
	uint64_t cgroup; /* interest_hash of a path in the unified hierarchy, "/a/b": the process's
			    cgroup (from /proc/PID/cgroup) or one above it */
};

struct interest_page {
	uint32_t magic;
	uint32_t version;
	uint64_t generation; /* even: stable; grows with every change */
	uint32_t flags; /* enum interest_flags */
	uint32_t deadline_ms; /* how long the shim may wait for the daemon in one load */
	uint32_t rule_count; /* <= INTEREST_RULES_MAX; 0: no process is meant */
	/*
	 * Processes that load the sanitizer engine (patch.h) before their first CUDA call, even if
	 * no attachment means them yet. The first rule that matches decides. 0: no process.
	 */
	uint32_t sass_rule_count;
	struct interest_rule rules[INTEREST_RULES_MAX];
	/*
	 * Processes that are left alone, whatever the other rules say. These rules never match too
	 * many: a process that cannot tell whether it matches assumes that it does not, and the
	 * daemon decides. They change together with generation and trace_generation.
	 */
	struct interest_rule exclude_rules[INTEREST_EXCLUDE_RULES_MAX];
	struct interest_rule sass_rules[INTEREST_SASS_RULES_MAX];
	/*
	 * Processes whose calls are traced (trace-ring.h). trace_generation is a second sequence
	 * lock, so that a trace does not disturb attachments. Each cu* function reads it; when it
	 * has changed, a process that matches a rule asks the daemon (WIRE_TRACE).
	 */
	uint64_t trace_generation; /* even: stable; grows with every change of what follows */
	uint32_t trace_rule_count; /* 0: no process; more than INTEREST_TRACE_RULES_MAX: every
				      process asks */
	uint32_t exclude_rule_count; /* <= INTEREST_EXCLUDE_RULES_MAX */
	struct interest_rule trace_rules[INTEREST_TRACE_RULES_MAX];
	char sanitizer[INTEREST_SANITIZER_MAX]; /* path of libsanitizer-public.so; empty: search
						   where toolkits install it */
	uint64_t daemon; /* who writes it: another number in each daemon that has this page */
};

_Static_assert(sizeof(struct interest_page) <= INTEREST_PAGE_SIZE, "one page");

/* FNV-1a, 64 bit, of a NUL-terminated string. */
static inline uint64_t interest_hash(const char *string) {
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	while (*string) {
		hash ^= (unsigned char)*string++;
		hash *= UINT64_C(0x100000001b3);
	}
	return hash;
}
