/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Lines of the log that any user can cause as often as he likes: some of each user's in a minute;
 * at its end a line says how many were left out. What says who has attached or traced what of
 * others is not for this: it is never left out.
 */

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#define LOG_LIMIT_LINES 10 /* of each kind and user */
#define LOG_LIMIT_USERS 64 /* that are told apart; the others have LOG_LIMIT_LINES together */
#define LOG_LIMIT_MS 60000

struct log_limit;

/* what: how the lines begin, before the user; stays. 0 or -errno. It ends with log_limit_free(),
 * which says what was left out until then; NULL is fine. */
int log_limit_new(struct log_limit **limitp, uv_loop_t *loop, unsigned int period_ms,
		  const char *what);
struct log_limit *log_limit_free(struct log_limit *limit);

/* Whether a line that this user causes is written now. */
bool log_limit_may(struct log_limit *limit, uid_t uid);
