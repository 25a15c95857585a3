/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of all sessions (session.h).
 *
 * All sessions, and the one timer that drains what they read from. It runs only while there are
 * sessions: every 10 ms, every millisecond when a ring fills. A client is woken when there is a
 * whole reply for it, or some milliseconds after the last one.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/registry/interest-writer.h"
#include "daemon/gpuprobed/base/log.h"
#include "session.h"
#include "session-private.h"
#include "shim-ring.h"

#define TABLE_IDLE_MS 10
#define TABLE_SOME_MS 4
#define TABLE_BUSY_MS 1
#define TABLE_REPLY_NS UINT64_C(4000000) /* between two replies, unless there is a full one */
#define TABLE_WARN_NS UINT64_C(60000000000)
#define TABLE_ALIVE_NS UINT64_C(50000000)
#define TABLE_WORK_TIMES 10
#define TABLE_WORK_AHEAD_NS (TABLE_WORK_TIMES * UINT64_C(5000000000))

static void table_on_timer(uv_timer_t *timer);

int trace_table_new(struct trace_table **tablep, uv_loop_t *loop, struct interest_writer *interest,
		    const struct config *const *config) {
	struct trace_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	table->shared.loop = loop;
	table->interest = interest;
	table->shared.config = config;
	LIST_INIT(&table->rings);
	tsc_clock_init(&table->tsc);
	uv_timer_init(loop, &table->timer);
	table->timer.data = table;
	*tablep = table;
	return 0;
}

void trace_table_stop(struct trace_table *table) {
	if (!table || table->stopping)
		return;
	table->stopping = true;
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		struct trace_session *session = table->sessions[i];

		if (!session)
			continue;
		trace_session_finish(session);
		session->config.wake(session, session->config.userdata);
	}
	uv_close((uv_handle_t *)&table->timer, NULL);
}

bool trace_table_stopping(const struct trace_table *table) {
	return table->stopping;
}

struct trace_table *trace_table_free(struct trace_table *table) {
	if (!table)
		return NULL;
	sink_forget_functions(&table->shared);
	stack_cache_deinit(&table->shared.stacks);
	free(table);
	return NULL;
}

void trace_table_refused(struct trace_table *table, pid_t pid, const char *why) {
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (table->sessions[i])
			session_refused(table->sessions[i], pid, why);
}

struct trace_counters trace_table_counters(const struct trace_table *table) {
	struct trace_counters counters = { .records = table->records,
					   .lost = table->lost,
					   .processes = table->n_rings };

	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		const struct trace_session *session = table->sessions[i];

		counters.sessions += session != NULL;
		counters.records += session ? session->n_records : 0;
		counters.lost += session ? session->n_lost : 0;
	}
	return counters;
}

void trace_table_warn(struct trace_table *table, pid_t pid, const char *format, ...) {
	const uint64_t now = monotonic_now(),
		       before = now > TABLE_WARN_NS ? now - TABLE_WARN_NS : 0;
	char text[256], more[64] = "";
	size_t oldest = 0;
	va_list arguments;

	for (size_t i = 0; i < TABLE_WARNED_MAX; i++) {
		if (table->warned[i].pid == pid && table->warned[i].time > before) {
			table->n_unwarned++;
			return;
		}
		if (table->warned[i].time < table->warned[oldest].time)
			oldest = i;
	}
	if (table->warned[oldest].time > before) {
		table->n_unwarned++;
		return;
	}
	table->warned[oldest].pid = pid;
	table->warned[oldest].time = now;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (table->n_unwarned)
		snprintf(more, sizeof(more), " (before: %llu more such messages)",
			 (unsigned long long)table->n_unwarned);
	table->n_unwarned = 0;
	log_warning("process %d: %s%s", (int)pid, text, more);
}

bool trace_table_may_work(const struct trace_table *table, const struct trace_options *options) {
	const uint64_t now = monotonic_now();

	for (size_t i = 0; i < TABLE_WORK_MAX && !options->all_users; i++)
		if (table->work[i].until > now && table->work[i].uid == options->caller)
			return table->work[i].until - now < TABLE_WORK_AHEAD_NS;
	return true;
}

void trace_table_worked(struct trace_table *table, const struct trace_options *options,
			uint64_t nanoseconds) {
	const uint64_t now = monotonic_now();
	size_t place = 0;

	if (options->all_users)
		return;
	for (size_t i = 0; i < TABLE_WORK_MAX; i++) {
		if (table->work[i].until && table->work[i].uid == options->caller) {
			place = i;
			break;
		}
		if (table->work[i].until < table->work[place].until)
			place = i;
	}
	if (table->work[place].uid != options->caller || table->work[place].until < now)
		table->work[place].until = now;
	table->work[place].uid = options->caller;
	table->work[place].until += TABLE_WORK_TIMES * nanoseconds;
}

size_t trace_table_hooks(const struct trace_table *table, const uid_t *owner,
			 struct trace_hooks *hooks[static TRACE_SESSIONS_MAX]) {
	size_t n = 0;

	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		const struct trace_session *session = table->sessions[i];

		if (session && session->hooks && (!owner || session->options->caller == *owner))
			hooks[n++] = session->hooks;
	}
	return n;
}

/* ---- the interest page ---- */

/* Equal rules once; one more than fit tells that they do not. */
static void rules_add(struct interest_rule *rules, size_t *np, const struct filter *filter) {
	struct interest_rule rule;

	filter_to_rule(filter, &rule);
	for (size_t i = 0; i < *np; i++)
		if (memcmp(&rules[i], &rule, sizeof(rule)) == 0)
			return;
	if (*np <= INTEREST_TRACE_RULES_MAX)
		rules[(*np)++] = rule;
}

/* The rules of a session: never narrower than what it means. wide: who may trace his own processes
 * only gets one for all of these. */
static void session_to_rules(const struct trace_session *session, bool wide,
			     struct interest_rule *rules, size_t *np) {
	const struct trace_options *options = session->options;
	struct filter filter = options->filter;

	if (!options->shim || session->finished)
		return;
	if (options->n_pids || options->follow ||
	    (wide && !options->all_users)) /* children may be anything */
		filter = (struct filter){};
	else if (session->cgroup.has_cgroup)
		filter_set_cgroup(&filter, session->cgroup.cgroup);
	if (!options->all_users) {
		filter.has_uid = true;
		filter.uid = options->caller;
	}
	if (!options->n_pids || options->follow || (wide && !options->all_users)) {
		rules_add(rules, np, &filter);
		return;
	}
	filter.has_pid = true;
	for (size_t i = 0; i < options->n_pids; i++) {
		filter.pid = (pid_t)options->pids[i];
		rules_add(rules, np, &filter);
	}
}

/* Where the page has too few rules for all, everybody would have to ask: users are asked for first.
 */
static size_t table_to_rules(const struct trace_table *table, struct interest_rule *rules) {
	size_t n = 0;

	for (int wide = 0; wide < 2; wide++) {
		n = 0;
		for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
			if (table->sessions[i])
				session_to_rules(table->sessions[i], wide, rules, &n);
		if (n <= INTEREST_TRACE_RULES_MAX)
			break;
	}
	return n;
}

/* Tells processes, and runs the timer if there is somebody to run it for. */
void trace_table_announce(struct trace_table *table) {
	struct interest_rule rules[INTEREST_TRACE_RULES_MAX + 1];
	bool any = false;

	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		any = any || table->sessions[i];
	if (!any)
		sink_forget_functions(&table->shared);
	if (table->interest)
		interest_writer_trace(table->interest, rules, table_to_rules(table, rules));
	if (table->stopping)
		return;
	if (!any)
		uv_timer_stop(&table->timer);
	else if (!uv_is_active((uv_handle_t *)&table->timer))
		uv_timer_start(&table->timer, table_on_timer, TABLE_BUSY_MS, 0);
}

unsigned int trace_table_quota(const struct trace_table *table) {
	return table->shared.config ? (*table->shared.config)->quota_traces
				    : TRACE_SESSIONS_MAX / 2;
}

void trace_table_look_again(struct trace_table *table) {
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (table->sessions[i])
			session_forget_all_facts(table->sessions[i]);
	shim_rings_look_again(table);
}

/* ---- time ---- */

/* Lets a session go on: its end, its losses, its client. */
static void session_turn(struct trace_session *session, uint64_t now, bool look) {
	if (!session->finished) {
		session_drain(session);
		session_tell_counts(session, now);
		session_flush_lost(session);
		session_tell_refused(session, false);
		if ((session->end && now >= session->end) ||
		    (look && session_look_at_targets(session, false)))
			trace_session_finish(session);
	}
	if (!trace_session_waiting(session) && !session->finished)
		return;
	if (!session->finished && session->buffered < TRACE_CHUNK_SIZE &&
	    now - session->last_wake < TABLE_REPLY_NS)
		return;
	session->last_wake = now;
	session->config.wake(session, session->config.userdata);
}

static void table_on_timer(uv_timer_t *timer) {
	struct trace_table *table = timer->data;
	enum shim_rings_load load;
	uint64_t now;
	bool look;

	tsc_clock_update(&table->tsc);
	load = shim_rings_drain(table);
	now = monotonic_now();
	look = now - table->last_alive >= TABLE_ALIVE_NS;
	if (look) {
		table->last_alive = now;
		shim_rings_look_at_processes(table);
	}
	/* before turns, in which the last session may end */
	uv_timer_start(timer, table_on_timer,
		       load == SHIM_RINGS_BUSY   ? TABLE_BUSY_MS
		       : load == SHIM_RINGS_SOME ? TABLE_SOME_MS
						 : TABLE_IDLE_MS,
		       0);
	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++)
		if (table->sessions[i])
			session_turn(table->sessions[i], now, look);
}
