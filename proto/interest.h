/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interest page: one page of a file, <runtime dir>/interest, that the daemon writes and every CUDA
 * process maps read-only at its first module load. It answers one question without a message:
 * can any attachment mean this process? "Yes" costs an image sent to the daemon, which decides
 * with the facts that it looks up itself; "no" costs nothing. So rules may be too wide, never too narrow.
 *
 * Written as a sequence lock: generation is odd while the daemon writes. A reader loads it (acquire), reads,
 * loads again, and retries while odd or changed, at most INTEREST_RETRIES times; then it takes "yes".
 * A page of another magic or version means "no". The file is created anew (rename) when the daemon
 * starts, so a reader that finds INTEREST_FLAG_CLOSED maps it again at the next load.
 */

#include <stdint.h>

#define INTEREST_MAGIC UINT32_C(0x49525047) /* "GPRI" */
#define INTEREST_VERSION UINT32_C(1)
#define INTEREST_PAGE_SIZE 4096
#define INTEREST_RULES_MAX 64
#define INTEREST_RETRIES 100

enum interest_flags {
	INTEREST_FLAG_EVERYONE = 1 << 0, /* more rules than fit: every process is meant */
	INTEREST_FLAG_CLOSED = 1 << 1, /* the daemon stopped in good order */
};

enum interest_rule_flags {
	INTEREST_RULE_PID = 1 << 0,
	INTEREST_RULE_UID = 1 << 1,
	INTEREST_RULE_COMM = 1 << 2,
	INTEREST_RULE_EXE = 1 << 3,
};

/* A process matches a rule if it matches every field that the flags name; no flags: every process. */
struct interest_rule {
	uint32_t flags; /* enum interest_rule_flags */
	uint32_t pid; /* as the daemon sees it; ignored by a process in another pid namespace */
	uint32_t uid; /* real uid, likewise */
	uint32_t reserved; /* 0 */
	char comm[16]; /* as in /proc/PID/comm, NUL-padded */
	uint64_t exe; /* interest_hash of the target of /proc/PID/exe */
};

struct interest_page {
	uint32_t magic;
	uint32_t version;
	uint64_t generation; /* even: stable; grows with every change */
	uint32_t flags; /* enum interest_flags */
	uint32_t deadline_ms; /* how long the shim may wait for the daemon in one load */
	uint32_t rule_count; /* <= INTEREST_RULES_MAX; 0: nobody is meant */
	uint32_t reserved; /* 0 */
	struct interest_rule rules[INTEREST_RULES_MAX];
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
