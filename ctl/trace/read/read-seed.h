/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads lines of the seeds' format as items; the begin and the end of a span are two lines there.
 * The items of a thread within its outermost span are kept until that span ends, so that items come
 * in order of their start. If a span has more than READ_SEED_MAX lines in it, finished items are
 * given away earlier.
 */

#include "read-line.h"

#define READ_SEED_MAX 4096
#define READ_SEED_THREADS 1024

struct read_seed;

int read_seed_new(struct read_seed **seedp,
		  int (*take)(void *userdata, const struct trace_item *item), void *userdata);
struct read_seed *read_seed_free(struct read_seed *seed);
/* What take() returned, or -ENOMEM. */
int read_seed_line(struct read_seed *seed, const struct read_line *line);
/* Gives away what has no end: it is open. */
int read_seed_finish(struct read_seed *seed);
/* Ends without a beginning. */
uint64_t read_seed_unmatched(const struct read_seed *seed);
