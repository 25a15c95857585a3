/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The writer of the interest page (proto/interest.h). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/interest.h"

struct interest_writer;

/* What a page says of the configuration. Borrowed. */
struct interest_options {
	uint32_t deadline_ms;
	const struct interest_rule *sass_rules;
	size_t n_sass_rules; /* at most INTEREST_SASS_RULES_MAX */
	const struct interest_rule *rules; /* of a new page, as of interest_writer_set() */
	size_t n_rules;
	const struct interest_rule *exclude_rules;
	size_t n_exclude_rules; /* at most INTEREST_EXCLUDE_RULES_MAX */
	const char
		*sanitizer; /* NULL: where toolkits put it; shorter than INTEREST_SANITIZER_MAX */
};

/*
 * Goes on with the page that lies at path; else puts a new one there, and the readers of the old
 * one are told. The path is borrowed. 0 or -errno.
 */
int interest_writer_new(struct interest_writer **writerp, const char *path,
			const struct interest_options *options);

/* Marks the page as closed; the file stays. NULL is fine. */
struct interest_writer *interest_writer_free(struct interest_writer *writer);

/* Says something else of the configuration; both generations grow. */
void interest_writer_configure(struct interest_writer *writer,
			       const struct interest_options *options);

/* The page stays as it is, for the next daemon to go on with it. NULL is fine. */
struct interest_writer *interest_writer_leave(struct interest_writer *writer);

/* Announces new rules: the generation grows, also if they are those of before. Equal ones are
 * merged; too many of them mean everyone. */
void interest_writer_set(struct interest_writer *writer, const struct interest_rule *rules,
			 size_t n_rules);

/* Announces whose calls are traced: its generation grows, also if the rules are those of before.
 * More than INTEREST_TRACE_RULES_MAX: everybody asks. */
void interest_writer_trace(struct interest_writer *writer, const struct interest_rule *rules,
			   size_t n_rules);
