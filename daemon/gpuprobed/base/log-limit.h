/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits log lines that any user can cause: each user gets some lines a minute. At the end of the
 * minute one line says how many were left out. Lines that an audit needs (who attached or traced
 * what) do not go through this: none of them is ever left out.
 */

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#define LOG_LIMIT_LINES 10 /* a minute, of each kind and user */
#define LOG_LIMIT_USERS 64 /* counted one by one; all others share LOG_LIMIT_LINES */
#define LOG_LIMIT_MS 60000

struct log_limit;

/* what: how the lines begin, before the user; must outlive the limit. Returns 0 or -errno.
 * log_limit_free() writes how many lines were left out until then; NULL is fine. */
int log_limit_new(struct log_limit **limitp, uv_loop_t *loop, unsigned int period_ms,
		  const char *what);
struct log_limit *log_limit_free(struct log_limit *limit);

/* Whether a line that this user causes may be written now. */
bool log_limit_may(struct log_limit *limit, uid_t uid);
