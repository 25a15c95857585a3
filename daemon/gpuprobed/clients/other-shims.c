/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds programs that run with the shim of another version (other-shims.h), and counts them.
 *
 * A program keeps the shim that it was started with. After an upgrade that shim may speak an older
 * version of the protocol than the daemon, and before the restart that follows an upgrade a newer
 * one: it greets, and is not understood; or it does not even greet, because the interest page is of
 * another version. What such a program counts for attachments of before goes on, in memory that the
 * daemon has (keep.c); all else is for the operator to know, so those that greeted are remembered
 * here, and those that an earlier daemon knew and that did not come back are found among the
 * processes.
 *
 * Anybody can greet so: there is a bound for each user, one line in a while, and a look at who has
 * ended now and then, however many greet.
 */

#include "other-shims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "client.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/wire/shim-wire.h"

#define OTHER_SHIMS_MAX 512
#define OTHER_SHIMS_UID_MAX 128
#define OTHER_SHIMS_SHOWN 8 /* in a line */
#define OTHER_SHIMS_FIRST_MS 2000
#define OTHER_SHIMS_NEXT_MS 60000
#define OTHER_SHIMS_SILENT_MS \
	5000 /* a process that carries probes looks for the daemon each second */
#define OTHER_SHIMS_FRESH_MS 500 /* as old may be what is known of who has ended */

struct other_shim {
	LIST_ENTRY(other_shim) link;
	pid_t pid;
	uid_t uid;
	uint64_t start_time; /* with the pid it names a process */
	uint16_t version;
	bool logged;
};

struct other_shims {
	struct client_context *context;
	uv_timer_t timer;
	uint64_t looked; /* uv_now(): when the ended were let go last */
	uint64_t began;
	bool silent_logged, again; /* was logged before: not so soon again */
	LIST_HEAD(, other_shim) list;
	unsigned int n;
};

/* What a line is about: how many, and the first of them. */
struct other_shims_line {
	char pids[OTHER_SHIMS_SHOWN * 12 + 32];
	unsigned int n;
};

static void other_shims_add_pid(struct other_shims_line *line, pid_t pid) {
	const size_t at = strlen(line->pids);

	if (line->n < OTHER_SHIMS_SHOWN)
		snprintf(line->pids + at, sizeof(line->pids) - at, "%s%d", line->n ? ", " : "",
			 (int)pid);
	else if (line->n == OTHER_SHIMS_SHOWN)
		snprintf(line->pids + at, sizeof(line->pids) - at, ", ...");
	line->n++;
}

/* One line, if it is about anybody. */
static void other_shims_take(const struct other_shims_line *line, const char *who, const char *what,
			     void (*take)(const char *line, void *userdata), void *userdata) {
	char text[512];

	if (!line->n)
		return;
	snprintf(text, sizeof(text), "%s: %u (process %s): %s", who, line->n, line->pids, what);
	take(text, userdata);
}

static void other_shim_free(struct other_shims *others, struct other_shim *shim) {
	LIST_REMOVE(shim, link);
	others->n--;
	free(shim);
}

/* Lets go of who has ended. */
static void other_shims_look(struct other_shims *others) {
	const uint64_t now = uv_now(others->context->image->loop);
	struct other_shim *shim, *next;
	struct process_facts facts;

	if (others->looked && now - others->looked < OTHER_SHIMS_FRESH_MS)
		return;
	others->looked = now;
	for (shim = LIST_FIRST(&others->list); shim; shim = next) {
		next = LIST_NEXT(shim, link);
		if (process_facts_read(&facts, shim->pid, -1) < 0 ||
		    facts.start_time != shim->start_time)
			other_shim_free(others, shim);
	}
}

static const struct other_shim *other_shims_find(const struct other_shims *others, pid_t pid,
						 uint64_t start_time) {
	const struct other_shim *shim;

	LIST_FOREACH(shim, &others->list, link)
		if (shim->pid == pid && shim->start_time == start_time)
			return shim;
	return NULL;
}

/* Carries probes of an earlier daemon, and has not come back in a time in which it should have. */
static bool other_shims_is_silent(const struct other_shims *others, const struct process *process) {
	return process->watch && !process->n_connections &&
	       uv_now(others->context->image->loop) - others->began > OTHER_SHIMS_SILENT_MS &&
	       !other_shims_find(others, process->facts.pid, process->facts.start_time);
}

/* Tells what is so; with unlogged: of whom nothing was logged yet, and all that was told of then
 * was. */
static void other_shims_tell(struct other_shims *others, bool unlogged,
			     void (*take)(const char *line, void *userdata), void *userdata) {
	struct other_shims_line older = {}, newer = {}, silent = {};
	const struct process *process;
	struct other_shim *shim;

	other_shims_look(others);
	LIST_FOREACH(shim, &others->list, link) {
		if (unlogged && shim->logged)
			continue;
		shim->logged |= unlogged;
		other_shims_add_pid(shim->version < WIRE_VERSION ? &older : &newer, shim->pid);
	}
	LIST_FOREACH(process, &others->context->image->processes->list, link)
		if (!(unlogged && others->silent_logged) && other_shims_is_silent(others, process))
			other_shims_add_pid(&silent, process->facts.pid);
	others->silent_logged |= unlogged && silent.n;
	other_shims_take(&older, "programs that run with an older shim than this daemon's",
			 "they count for what was attached before, and nothing else reaches them; "
			 "restart them",
			 take, userdata);
	other_shims_take(
		&newer, "programs that run with a newer shim than this daemon's",
		others->context->image->config->session
			? "they are not probed; restart the daemon"
			: "they are not probed; restart the daemon: systemctl restart gpuprobed",
		take, userdata);
	other_shims_take(&silent,
			 "programs that carry probes and have not come back to this daemon",
			 "they are stopped, or have a shim of another version; what they count is "
			 "read, to change it restart them",
			 take, userdata);
}

static void other_shims_log(const char *line, void *userdata) {
	log_warning("%s", line);
}

static void other_shims_on_timer(uv_timer_t *timer) {
	struct other_shims *others = timer->data;
	const uint64_t past = uv_now(others->context->image->loop) - others->began;

	others->again = !LIST_EMPTY(&others->list);
	other_shims_tell(others, true, other_shims_log, NULL);
	if (past <= OTHER_SHIMS_SILENT_MS)
		uv_timer_start(timer, other_shims_on_timer, OTHER_SHIMS_SILENT_MS + 1 - past, 0);
}

/* At the end of the time in which processes come back; and later when somebody new has greeted. */
static void other_shims_wait(struct other_shims *others) {
	const uint64_t wait_ms = others->again ? OTHER_SHIMS_NEXT_MS : OTHER_SHIMS_FIRST_MS;

	if (!uv_is_active((uv_handle_t *)&others->timer) ||
	    uv_timer_get_due_in(&others->timer) > wait_ms)
		uv_timer_start(&others->timer, other_shims_on_timer, wait_ms, 0);
}

int other_shims_new(struct other_shims **othersp, struct client_context *context) {
	struct other_shims *others = calloc(1, sizeof(*others));

	if (!others)
		return -ENOMEM;
	others->context = context;
	others->began = uv_now(context->image->loop);
	LIST_INIT(&others->list);
	uv_timer_init(context->image->loop, &others->timer);
	others->timer.data = others;
	if (!LIST_EMPTY(&context->image->processes->list))
		uv_timer_start(&others->timer, other_shims_on_timer, OTHER_SHIMS_SILENT_MS + 1, 0);
	*othersp = others;
	return 0;
}

static void other_shims_closed(uv_handle_t *handle) {
	free(handle->data);
}

struct other_shims *other_shims_free(struct other_shims *others) {
	if (!others)
		return NULL;
	while (!LIST_EMPTY(&others->list))
		other_shim_free(others, LIST_FIRST(&others->list));
	uv_close((uv_handle_t *)&others->timer, other_shims_closed);
	return NULL;
}

/* Whether there is room for one more of the user, who comes last among those of which one is let
 * go. */
static bool other_shims_has_room(const struct other_shims *others, uid_t uid) {
	const struct other_shim *shim;
	unsigned int n = 0;

	LIST_FOREACH(shim, &others->list, link)
		n += shim->uid == uid;
	return n < OTHER_SHIMS_UID_MAX && others->n < OTHER_SHIMS_MAX;
}

void other_shims_greeted(struct other_shims *others, const struct shim_connection *connection,
			 const struct shim_greeting *greeting) {
	struct process_facts facts;
	struct other_shim *shim;
	char why[192];

	if (process_facts_read(&facts, connection->pid, connection->pidfd) < 0 ||
	    other_shims_find(others, facts.pid, facts.start_time))
		return;
	if (!other_shims_has_room(others, connection->uid))
		other_shims_look(others);
	shim = other_shims_has_room(others, connection->uid) ? calloc(1, sizeof(*shim)) : NULL;
	if (!shim)
		return;
	*shim = (struct other_shim){ .pid = facts.pid,
				     .uid = connection->uid,
				     .start_time = facts.start_time,
				     .version = greeting->version };
	LIST_INSERT_HEAD(&others->list, shim, link);
	others->n++;
	snprintf(why, sizeof(why),
		 "its shim is of version %s (protocol %u, this daemon's is %u): restart %s",
		 greeting->shim_version, greeting->version, WIRE_VERSION,
		 greeting->version < WIRE_VERSION ? "the program" : "the daemon");
	outcome_tell(others->context->image->outcomes, &facts, OUTCOME_FAILED,
		     &(struct outcome_subject){}, why);
	other_shims_wait(others);
}

void other_shims_each(struct other_shims *others, void (*take)(const char *line, void *userdata),
		      void *userdata) {
	if (others)
		other_shims_tell(others, false, take, userdata);
}
