/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Limits how many log lines a user can cause (log-limit.h): one counter for each user id in a
 * bounded table, and a timer that reports what was left out.
 */

#include "log-limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

struct log_limit {
	uv_timer_t timer; /* runs while there are users */
	unsigned int period_ms, n;
	const char *what;
	struct {
		uid_t uid;
		unsigned int lines, left_out;
	} users[LOG_LIMIT_USERS + 1]; /* the last one: all others */
};

static void log_limit_tell(struct log_limit *limit) {
	for (unsigned int i = 0; i < limit->n; i++) {
		char who[32] = "other users";

		if (!limit->users[i].left_out)
			continue;
		if (i < LOG_LIMIT_USERS)
			snprintf(who, sizeof(who), "uid %u", (unsigned)limit->users[i].uid);
		log_notice("%s %s: %u more such lines were left out", limit->what, who,
			   limit->users[i].left_out);
	}
	limit->n = 0;
}

static void log_limit_on_timer(uv_timer_t *timer) {
	log_limit_tell(timer->data);
}

int log_limit_new(struct log_limit **limitp, uv_loop_t *loop, unsigned int period_ms,
		  const char *what) {
	struct log_limit *limit = calloc(1, sizeof(*limit));

	if (!limit)
		return -ENOMEM;
	limit->period_ms = period_ms;
	limit->what = what;
	uv_timer_init(loop, &limit->timer);
	limit->timer.data = limit;
	*limitp = limit;
	return 0;
}

static void log_limit_on_closed(uv_handle_t *timer) {
	free(timer->data);
}

struct log_limit *log_limit_free(struct log_limit *limit) {
	if (!limit)
		return NULL;
	log_limit_tell(limit);
	uv_close((uv_handle_t *)&limit->timer, log_limit_on_closed);
	return NULL;
}

bool log_limit_may(struct log_limit *limit, uid_t uid) {
	unsigned int i = 0;

	if (!limit->n)
		uv_timer_start(&limit->timer, log_limit_on_timer, limit->period_ms, 0);
	while (i < limit->n && i < LOG_LIMIT_USERS && limit->users[i].uid != uid)
		i++;
	if (i == limit->n) {
		limit->users[limit->n].uid = uid;
		limit->users[limit->n].lines = limit->users[limit->n].left_out = 0;
		limit->n++;
	}
	if (limit->users[i].lines < LOG_LIMIT_LINES) {
		limit->users[i].lines++;
		return true;
	}
	limit->users[i].left_out++;
	return false;
}
