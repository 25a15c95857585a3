/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes of functions of files (u:PATH:SYMBOL) of one trace. Paths and files are anybody's: one may
 * lead to a server that never answers, or take seconds to read; and who has a file mapped may hold
 * the lock that the kernel needs for a probe. So a thread of their own opens, reads and attaches,
 * another one detaches, and nobody waits for either: who does not come back in time is left to
 * itself, and cleans up after itself.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hook_user;

/* Descriptors of programs: of links of many functions, and of single events. */
struct hook_user_programs {
	int multi_entry, multi_return; /* -1: this kernel has none */
	int entry, end;
};

/* What became of a probe. */
enum {
	_HOOK_USER_E_SUCCESS,
	HOOK_USER_E_FOREIGN, /* no file of the owner's, which need not be there */
	HOOK_USER_E_NO_FUNCTION,
	HOOK_USER_E_IFUNC,
	HOOK_USER_E_NO_PROGRAM, /* no program or library of this machine, or too large to be read */
	HOOK_USER_E_NO_FILE, /* hook_user_result() has the errno */
	HOOK_USER_E_HARM, /* this kernel kills programs for the probe of a return */
	HOOK_USER_E_SILENT, /* it was not there in time */
	HOOK_USER_E_BUSY, /* too many of the owner's are being attached or detached */
};

/* any: files of all users, else of the owner's alone. pid: the one process that is meant, or 0. 0,
 * HOOK_USER_E_BUSY, or -ENOMEM. */
int hook_user_new(struct hook_user **userp, uid_t owner, bool any, pid_t pid);
int hook_user_add(struct hook_user *user, const char *path, const char *symbol, uint32_t row,
		  bool span);

/* Begins to attach; programs are copied. 0 or negative errno. */
int hook_user_start(struct hook_user *user, const struct hook_user_programs *programs);

/* Whether there are results: all is done, or it takes too long. */
bool hook_user_over(struct hook_user *user);

/* Of the probe of a row, when it is over: 0, HOOK_USER_E_* (and perhaps an errno in *errorp), or
 * the negative errno with which the kernel refused it. */
int hook_user_result(const struct hook_user *user, uint32_t row, int *errorp);

/*
 * Whether a kernel of that release lets functions return that are probed there in programs with a
 * seccomp filter, as containers have them: where returns come by a system call (uretprobe, x86-64),
 * which filters do not know, those of 6.11 to 6.13 killed the program, until it passed by filters.
 */
bool hook_user_returns_are_safe(const char *release);

/* Detaches, some time later. */
struct hook_user *hook_user_free(struct hook_user *user);
