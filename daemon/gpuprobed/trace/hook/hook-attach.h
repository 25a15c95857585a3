/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which alternative of a hook, and by which means: the best that works. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook-spec.h"

struct hook_kernel;
struct hook_programs;

#define HOOK_REASON_SIZE 512

/* Best first. */
enum hook_method {
	HOOK_METHOD_NONE,
	HOOK_METHOD_FENTRY,
	HOOK_METHOD_MULTI,
	HOOK_METHOD_KPROBE,
	HOOK_METHOD_TRACEPOINT,
	HOOK_METHOD_RAW_TRACEPOINT,
	HOOK_METHOD_UPROBE,
};

/* A hook at work, or what keeps it from that. Its number is that of its row, and of the trace's
 * records. */
struct hook_attachment {
	const struct hook *hook; /* borrowed */
	const struct hook_alternative *alternative; /* NULL: none can be */
	enum hook_method method; /* NONE: not attached */
	const struct hook_type *types[HOOK_WORDS_MAX]; /* of a tracepoint's fields */
	bool waiting; /* a probe of a function of a file, which hook-user.h attaches: method comes
			 later */
	bool named; /* its NAME was sent */
	char reason[HOOK_REASON_SIZE]; /* why not, or why not the first choice */
	/* while attaching */
	size_t next; /* alternative */
	uint64_t address; /* of the function to be attached */
};

const char *hook_method_name(enum hook_method method);

/* The row of an alternative: 0, or 1 with a line in reason (what its arguments need is not there).
 */
int hook_row_fill(struct hook_row *row, struct hook_attachment *attachment,
		  const struct hook_alternative *alternative, const struct hook_kernel *kernel,
		  char reason[HOOK_ERROR_SIZE]);

/*
 * Attaches all but those of files, which wait, each by the first alternative that works. Blocks:
 * some milliseconds, and 2 for each function that can be probed only by itself. 0 or -ENOMEM.
 */
int hook_attach(struct hook_attachment *attachments, size_t n, struct hook_programs *programs,
		const struct hook_kernel *kernel);

/* What hook_user_result() says of one that waits. */
void hook_attach_settle(struct hook_attachment *attachment, int r, int error);

/* What would be done, without doing it: alternative, the method that would be tried first, and
 * reason. */
void hook_attach_guess(struct hook_attachment *attachment, const struct hook_kernel *kernel);
