/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Begins and ends a session, that is, one call of Trace (session.h), and attaches its sources. The
 * last LOST and STOP records are written whether there is room or not.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/trace/hook/hook.h"
#include "daemon/gpuprobed/trace/source/source.h"
#include "session.h"
#include "session-private.h"
#include "shim-ring.h"

#define SESSION_UNLIMITED SIZE_MAX

/* ---- beginning and end ---- */

/* The version of the kernel's driver; empty: there is none. "NVRM version: NVIDIA UNIX Open Kernel
 * Module for x86_64  580.159.04  Release Build" */
static void read_driver(char *version, size_t size) {
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[512], *word, *rest = line;

	if (!file)
		return;
	if (fgets(line, sizeof(line), file))
		while ((word = strsep(&rest, " \t\n")))
			if (*word >= '1' && *word <= '9' && strchr(word, '.') &&
			    strspn(word, "0123456789.") == strlen(word)) {
				snprintf(version, size, "%s", word);
				break;
			}
	fclose(file);
}

static void session_put_start(struct trace_session *session) {
	struct trace_start start = { .record = { .size = sizeof(start), .type = TRACE_START },
				     .magic = TRACE_MAGIC,
				     .version = TRACE_VERSION };
	struct utsname name;

	start.monotonic = session->began = monotonic_now();
	start.realtime = clock_ns(CLOCK_REALTIME);
	if (uname(&name) == 0)
		memcpy(start.host, name.nodename, strnlen(name.nodename, sizeof(start.host) - 1));
	read_driver(start.driver, sizeof(start.driver));
	_Static_assert(sizeof(PROJECT_VERSION) <= sizeof(start.daemon), "it fits");
	memcpy(start.daemon, PROJECT_VERSION, sizeof(PROJECT_VERSION));
	session_put(session, &start.record, SESSION_UNLIMITED);
}

/* Attaches what asks the kernel. What cannot be had is a line of `missing`. */
static void session_attach(struct trace_session *session) {
	const struct trace_options *options = session->options;

#if TRACE_HAS_HOOKS
	if (options->kernel || options->n_probes || options->follow)
		trace_hooks_new(&session->hooks, session, options);
#else
	if (options->kernel || options->n_probes)
		trace_session_missing(session, "kernel: this gpuprobed was built without hooks");
#endif
#if TRACE_HAS_UPROBE
	if (options->bpf && trace_uprobe_new(&session->uprobe, session, options) == 0 &&
	    !process_facts_of_all())
		trace_session_missing(
			session,
			"bpf: processes of other users than the daemon's: it has no "
			"CAP_SYS_PTRACE, and cannot see which libcuda they have; " PROJECT_DROP_INS
			"/host-tracing.conf gives it, and says what that costs (gpuprobed(8))");
#else
	if (options->bpf)
		trace_session_missing(session, "bpf: this gpuprobed was built without uprobes");
#endif
}

static void session_detach(struct trace_session *session) {
	const uint64_t began = monotonic_now();

#if TRACE_HAS_UPROBE
	if (session->uprobe)
		session->uprobe = trace_uprobe_free(session->uprobe);
#endif
#if TRACE_HAS_HOOKS
	if (session->hooks)
		session->hooks = trace_hooks_free(session->hooks);
#endif
	trace_table_worked(session->table, session->options, monotonic_now() - began);
}

static void session_drain_hooks(struct trace_session *session) {
#if TRACE_HAS_HOOKS
	const uint64_t now = monotonic_now();

	if (session->hooks && trace_hooks_drain(session->hooks))
		session->hooks_read = now;
#endif
}

bool trace_session_ready(const struct trace_session *session) {
#if TRACE_HAS_HOOKS
	return session->finished || !session->hooks || trace_hooks_ready(session->hooks);
#else
	return true;
#endif
}

/* Beginnings of processes and programs come before what these have called since. */
void session_drain(struct trace_session *session) {
	session_drain_hooks(session);
#if TRACE_HAS_UPROBE
	if (session->uprobe)
		trace_uprobe_drain(session->uprobe);
#endif
}

/* How many sessions there may be for one more of a user who has n_mine. */
static unsigned int session_room(uid_t caller, unsigned int n_mine) {
	if (caller == 0 || caller == geteuid())
		return TRACE_SESSIONS_MAX;
	return TRACE_SESSIONS_MAX - TRACE_KEPT_FOR_ROOT - (n_mine ? TRACE_KEPT_FOR_NEW : 0);
}

/* Takes a place in the table. 0, TRACE_E_SESSIONS or TRACE_E_USER. */
static int session_link(struct trace_session *session, struct trace_table *table) {
	unsigned int n = 0, n_mine = 0, place = TRACE_SESSIONS_MAX;
	const uid_t caller = session->options->caller;

	for (unsigned int i = 0; i < TRACE_SESSIONS_MAX; i++) {
		if (!table->sessions[i])
			place = place < i ? place : i;
		else
			n++;
		n_mine += table->sessions[i] && table->sessions[i]->options->caller == caller;
	}
	if (n >= session_room(caller, n_mine))
		return TRACE_E_SESSIONS;
	if (n_mine >= trace_table_quota(table))
		return TRACE_E_USER;
	session->table = table;
	session->shared = &table->shared;
	session->catch_up = session_drain_hooks;
	session->index = place;
	table->sessions[place] = session;
	return 0;
}

int trace_session_new(struct trace_session **sessionp, struct trace_table *table,
		      const struct trace_config *config, uint32_t *bad_pid) {
	struct trace_session *session;
	uint64_t began;
	int r;

	if (table->stopping)
		return -ESHUTDOWN;
	if (!trace_table_may_work(table, &config->options))
		return TRACE_E_WORK;
	session = calloc(1, sizeof(*session));
	if (!session)
		return -ENOMEM;
	TAILQ_INIT(&session->chunks);
	session->config = *config;
	session->config.buffer = config->buffer ?: TRACE_BUFFER_DEFAULT;
	session->options = &session->config.options;
	if (config->options.cgroup &&
	    !filter_set_cgroup(&session->cgroup, config->options.cgroup) &&
	    strcmp(config->options.cgroup, "/") != 0) {
		free(session);
		return -EINVAL;
	}
	r = session_link(session, table);
	if (r) {
		free(session);
		return r;
	}
	session_put_start(session);
	tsc_clock_start(&table->tsc);
	r = session_add_targets(session, bad_pid);
	if (r) {
		trace_session_free(session);
		return r;
	}
	began = monotonic_now();
	session_attach(session);
	trace_table_worked(table, session->options, monotonic_now() - began);
	if (config->duration)
		session->end = monotonic_now() + config->duration;
	shim_rings_join(table, session);
	trace_table_announce(table);
	shim_rings_replace(table, session);
	*sessionp = session;
	return 0;
}

void trace_session_finish(struct trace_session *session) {
	struct trace_stop stop = { .record = { .size = sizeof(stop), .type = TRACE_STOP } };

	if (session->finished)
		return;
	session->ending = true;
	shim_rings_leave(session->table, session);
	session_drain(session);
	session_tell_counts(session, monotonic_now());
	session_detach(session);
	session_look_at_targets(session, true);
	session_tell_refused(session, true);
	session_tell_lost(session, SESSION_UNLIMITED);
	stop.time = monotonic_now();
	stop.records = session->n_records;
	stop.lost = session->n_lost;
	session_put(session, &stop.record, SESSION_UNLIMITED);
	session->finished = true;
	trace_table_announce(session->table);
}

bool trace_session_finished(const struct trace_session *session) {
	return session->finished;
}

struct trace_session *trace_session_free(struct trace_session *session) {
	struct trace_table *table;

	if (!session)
		return NULL;
	table = session->table;
	if (!session->finished) {
		shim_rings_leave(table, session);
		session_detach(session);
		session->finished = true;
	}
	table->sessions[session->index] = NULL;
	table->records += session->n_records;
	table->lost += session->n_lost;
	trace_table_announce(table);
	session_deinit_processes(session);
	session_deinit_counts(session);
	session_deinit_buffer(session);
	number_map_deinit(&session->stacks);
	number_map_deinit(&session->files);
	for (size_t i = 0; i < session->n_missing; i++)
		free(session->missing[i]);
	free(session->missing);
	free(session);
	return NULL;
}
