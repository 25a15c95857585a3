/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/interest.h"

#define INTEREST_FOLDER_MAX 96

/* The daemon that has an attachment for this process. */
struct interest {
	char folder[INTEREST_FOLDER_MAX]; /* its runtime directory (proto/paths.h) */
	dev_t device; /* its page, which file it is: another one is another daemon */
	ino_t inode;
	uint64_t daemon; /* what the page says of who writes it: so is another number in this */
	uint64_t generation; /* of the page */
	uint32_t deadline_ms; /* how long one load may wait for it */
};

/*
 * Is a daemon interested in this process? Fills in which. Makes a few syscalls and no message.
 * changed: a page that is mapped has changed; then no syscall, but for what daemons ended, and for
 * rules that may mean this process. Not thread-safe.
 */
bool interest_find(struct interest *interest, bool changed);

/*
 * Is there no page that tells that a daemon comes? The system daemon's tells that also while none
 * runs, a session daemon's does not. As of the last look. Not thread-safe.
 */
bool interest_is_gone(void);

/*
 * Is there one of another version, whose page we do not understand? As of the last look. Not
 * thread-safe.
 */
bool interest_is_foreign(void);

enum interest_change {
	INTEREST_UNCHANGED, /* the page is still that one, or cannot be looked at now, or not be
			       understood */
	INTEREST_OTHER, /* another daemon is there */
	INTEREST_ENDED, /* its daemon has ended in good order, and no other one is there */
};

/*
 * What has become of the daemon that was found, whether it is interested now or not; *now: as far
 * as it is another one. Any thread may ask.
 */
enum interest_change interest_look_again(const struct interest *found, struct interest *now);

/*
 * Should this process have the sanitizer engine? Then `sanitizer` is the page's. Not thread-safe.
 */
bool interest_wants_sass(char sanitizer[INTEREST_SANITIZER_MAX]);

/*
 * What the trampolines compare (trampoline.S knows the layout): a page's trace_generation, and what
 * it was when it was last looked at. INTEREST_UNSEEN differs from what a page says when it is
 * stable.
 */
struct interest_watch {
	const uint64_t *generation;
	uint64_t seen;
};

#define INTEREST_UNSEEN 1

extern struct interest_watch trace_watch[2] __attribute__((visibility("hidden")));

/* What a page says now, and whether that was looked at. Any thread may ask. */
static inline uint64_t interest_trace_generation(unsigned which) {
	const uint64_t *now = __atomic_load_n(&trace_watch[which].generation, __ATOMIC_ACQUIRE);

	return __atomic_load_n(now, __ATOMIC_RELAXED);
}

static inline bool interest_trace_is_seen(unsigned which) {
	return interest_trace_generation(which) ==
	       __atomic_load_n(&trace_watch[which].seen, __ATOMIC_RELAXED);
}

/*
 * Does a page say, since it was last asked, that this process may be traced? Until
 * interest_traces_seen() calls of other threads find that the page has changed, too. Makes the
 * syscalls of interest_find() for a page that has changed. Not thread-safe.
 */
bool interest_wants_trace(struct interest *interest);
void interest_traces_seen(void);

/* The generations that interest_wants_trace() has seen last; trace.c compares with them. */
extern uint64_t interest_trace_looked[2] __attribute__((visibility("hidden")));

/* No trace applies to this process any more: trampolines never look at a page again. */
void interest_ignore_traces(void);

/* In a forked child: pages are mapped anew. */
void interest_forked(void);

/*
 * The generations of the pages that are mapped now; they always point to memory that can be read.
 * Any thread may read pointers and generations, without a lock.
 */
extern const uint64_t *interest_generations[2] __attribute__((visibility("hidden")));

static inline void interest_read_generations(uint64_t now[2]) {
	for (unsigned i = 0; i < 2; i++)
		now[i] =
			__atomic_load_n(__atomic_load_n(&interest_generations[i], __ATOMIC_ACQUIRE),
					__ATOMIC_ACQUIRE);
}

/* Is a page another one than was seen? Cheap: launches ask. */
static inline bool interest_has_changed(const uint64_t seen[2]) {
	for (unsigned i = 0; i < 2; i++) {
		const uint64_t *now = __atomic_load_n(&interest_generations[i], __ATOMIC_CONSUME);

		if (__atomic_load_n(now, __ATOMIC_RELAXED) !=
		    __atomic_load_n(&seen[i], __ATOMIC_RELAXED))
			return true;
	}
	return false;
}
