/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interest page: one page of a file, <runtime dir>/interest, that the daemon writes and every
 * CUDA process maps read-only at its first module load. It answers one question without a message:
 * can any attachment mean this process? "Yes" costs an image sent to the daemon, which decides
 * with the facts that it looks up itself; "no" costs nothing, and where pid or uid decide no system
 * call: a process in a sandbox is not killed for what is said of others. So rules may be too wide,
 * never too narrow.
 *
 * Written as a sequence lock: generation is odd while the daemon writes. A reader loads it
 * (acquire), reads, loads again, and retries while odd or changed, at most INTEREST_RETRIES times;
 * then it takes "yes". A page of another magic or version means "no"; magic, version, generation
 * and flags lie at the same place in all versions: a daemon closes the page of the one before, and
 * a process sees when one that it does not understand is closed. The file is created anew (rename)
 * when the daemon starts, so a reader that finds INTEREST_FLAG_CLOSED maps it again at the next
 * load.
 */

#include <stdint.h>

#define INTEREST_MAGIC UINT32_C(0x49525047) /* "GPRI" */
#ifndef INTEREST_VERSION /* tests have programs of other versions */
#define INTEREST_VERSION UINT32_C(3)
#endif
#define INTEREST_PAGE_SIZE 4096
#define INTEREST_RULES_MAX 46
#define INTEREST_EXCLUDE_RULES_MAX 8
#define INTEREST_SASS_RULES_MAX 16
#define INTEREST_TRACE_RULES_MAX 8
#define INTEREST_SANITIZER_MAX 256
#define INTEREST_RETRIES 100
#define INTEREST_DEADLINE_MAX_MS 600000 /* a process waits no longer, whatever the page says */

enum interest_flags {
	INTEREST_FLAG_EVERYONE = 1 << 0, /* more rules than fit: every process is meant */
	INTEREST_FLAG_CLOSED = 1 << 1, /* the daemon stopped in good order */
};

enum interest_rule_flags {
	INTEREST_RULE_PID = 1 << 0,
	INTEREST_RULE_UID = 1 << 1,
	INTEREST_RULE_COMM = 1 << 2,
	INTEREST_RULE_EXE = 1 << 3,
	INTEREST_RULE_CGROUP = 1 << 4,
	INTEREST_RULE_NOT =
		1 << 5, /* of sass_rules: who matches this one does not get the engine */
};

/* A process matches a rule if it matches every field that the flags name; no flags: every process.
 */
struct interest_rule {
	uint32_t flags; /* enum interest_rule_flags */
	uint32_t pid; /* as the daemon sees it; ignored by a process in another pid namespace */
	uint32_t uid; /* real uid, likewise; as it was at the process's last load or first call */
	uint32_t reserved; /* 0 */
	char comm[16]; /* as in /proc/PID/comm, NUL-padded */
	uint64_t exe; /* interest_hash of the target of /proc/PID/exe */
	uint64_t cgroup; /* interest_hash of the path in the unified hierarchy, "/a/b" (from
			    /proc/PID/cgroup), or of one that it lies under */
};

struct interest_page {
	uint32_t magic;
	uint32_t version;
	uint64_t generation; /* even: stable; grows with every change */
	uint32_t flags; /* enum interest_flags */
	uint32_t deadline_ms; /* how long the shim may wait for the daemon in one load */
	uint32_t rule_count; /* <= INTEREST_RULES_MAX; 0: nobody is meant */
	/*
	 * Processes that load the SASS engine (patch.h) before their first CUDA call, although no
	 * attachment need mean them yet: the first rule that matches decides. 0: nobody.
	 */
	uint32_t sass_rule_count;
	struct interest_rule rules[INTEREST_RULES_MAX];
	/*
	 * Who is left alone, whatever the other rules say: these are never too wide, so where a
	 * process cannot know whether it matches, it does not (and the daemon decides). They change
	 * with generation and trace_generation.
	 */
	struct interest_rule exclude_rules[INTEREST_EXCLUDE_RULES_MAX];
	struct interest_rule sass_rules[INTEREST_SASS_RULES_MAX];
	/*
	 * Whose calls are traced (trace-ring.h): a sequence lock of its own, so that a trace does
	 * not disturb what is attached. Each cu* function reads trace_generation; when it has
	 * changed, a process that matches a rule asks (WIRE_TRACE).
	 */
	uint64_t trace_generation; /* even: stable; grows with every change of what follows */
	uint32_t trace_rule_count; /* 0: nobody; more than INTEREST_TRACE_RULES_MAX: everybody asks
				    */
	uint32_t exclude_rule_count; /* <= INTEREST_EXCLUDE_RULES_MAX */
	struct interest_rule trace_rules[INTEREST_TRACE_RULES_MAX];
	char sanitizer[INTEREST_SANITIZER_MAX]; /* path of libsanitizer-public.so; empty: where
						   toolkits put it */
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
