/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "interest.h"

#define INTEREST_FOLDER_MAX 96

/* The daemon that has an attachment for this process. */
struct interest {
	char folder[INTEREST_FOLDER_MAX]; /* its runtime directory (proto/paths.h) */
	dev_t device; /* its page, which file it is: another one is another daemon */
	ino_t inode;
	uint64_t generation; /* of the page */
	uint32_t deadline_ms; /* how long one load may wait for it */
};

/*
 * Is a daemon interested in this process? Fills in which. Makes a few syscalls and no message. Not
 * thread-safe.
 */
bool interest_find(struct interest *interest);

/*
 * Should this process have the SASS engine? Then `sanitizer` is the page's. Not thread-safe.
 */
bool interest_wants_sass(char sanitizer[INTEREST_SANITIZER_MAX]);

/*
 * The generations of the pages that are mapped now; they always point to memory that can be read.
 * Any thread may read pointers and generations, without a lock.
 */
extern const uint64_t *interest_generations[2] __attribute__((visibility("hidden")));
