/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One session, that is, one call of Trace (session.h): it holds records until its client takes
 * them.
 *
 * The buffer of a session is a list of chunks, each as large as one reply. Above its bound records
 * are lost, and counted by source, process and thread; LOST records tell that in-band as soon as
 * there is room. Records that others need to be understood (names, processes) have some more room,
 * so that they are lost last. What ends a session writes its last LOST and STOP records in any
 * case.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/wire/process-facts.h"
#include "lib/base/clock.h"
#include "session-private.h"
#include "shim-ring.h"

#define SESSION_UNLIMITED SIZE_MAX
#define MEANT_DRAINS_MAX                                                                     \
	8 /* parts of what hooks saw, more than their ring holds, to find the beginning of a \
	     process */

/* ---- the buffer ---- */

static struct trace_chunk *session_chunk(struct trace_session *session, size_t size) {
	struct trace_chunk *chunk = TAILQ_LAST(&session->chunks, trace_chunk_list);

	if (chunk && sizeof(chunk->bytes) - chunk->n >= size)
		return chunk;
	chunk = session->spare ?: malloc(sizeof(*chunk));
	session->spare = NULL;
	if (!chunk)
		return NULL;
	chunk->n = 0;
	TAILQ_INSERT_TAIL(&session->chunks, chunk, link);
	return chunk;
}

/* Appends a record if no more than limit bytes wait then. */
bool session_put(struct trace_session *session, const struct trace_record *record, size_t limit) {
	const size_t size = record->size;
	struct trace_chunk *chunk;

	if (size > limit || session->buffered > limit - size)
		return false;
	chunk = session_chunk(session, size);
	if (!chunk)
		return false;
	memcpy(chunk->bytes + chunk->n, record, size);
	chunk->n += size;
	session->buffered += size;
	session->n_records++;
	return true;
}

/* Whether others cannot be understood without it. */
static bool record_is_needed(uint16_t type) {
	switch (type) {
	case TRACE_PROCESS:
	case TRACE_THREAD:
	case TRACE_NAME:
	case TRACE_CLOCK:
	case TRACE_STACK:
		return true;
	}
	return false;
}

bool trace_session_emit(struct trace_session *session, const struct trace_record *record,
			uint32_t pid, uint32_t tid) {
	const bool needed = record_is_needed(record->type);

	if (session->finished)
		return false;
	if ((needed || session_within_rate(session, (pid_t)pid)) &&
	    session_put(session, record, session->config.buffer + (needed ? SESSION_RESERVE : 0)))
		return true;
	trace_session_lost(session, record->source, pid, tid, 1);
	return false;
}

size_t trace_session_take(struct trace_session *session, const void **recordsp) {
	struct trace_chunk *chunk = TAILQ_FIRST(&session->chunks);

	if (session->taken && !session->spare)
		session->spare = session->taken;
	else
		free(session->taken);
	session->taken = chunk;
	if (!chunk)
		return 0;
	TAILQ_REMOVE(&session->chunks, chunk, link);
	session->buffered -= chunk->n;
	*recordsp = chunk->bytes;
	return chunk->n;
}

bool trace_session_waiting(const struct trace_session *session) {
	return session->buffered || session->n_troubles < session->n_missing;
}

void session_deinit_buffer(struct trace_session *session) {
	struct trace_chunk *chunk;

	while ((chunk = TAILQ_FIRST(&session->chunks))) {
		TAILQ_REMOVE(&session->chunks, chunk, link);
		free(chunk);
	}
	free(session->taken);
	free(session->spare);
	for (size_t i = 0; i < 4; i++)
		number_map_deinit(&session->lost[i]);
}

/* ---- losses ---- */

void trace_session_lost(struct trace_session *session, enum trace_source source, uint32_t pid,
			uint32_t tid, uint64_t count) {
	struct number_map *lost = &session->lost[source & 3];
	const uint64_t of_all = 1;
	uint64_t key = ((uint64_t)pid << 32 | tid) + 1, *value;

	if (session->finished || !count)
		return;
	session->has_lost = true;
	value = number_map_find(lost, key);
	if (!value &&
	    lost->table.n >=
		    SESSION_LOST_MAX) { /* too many to be told apart: those of all are one */
		key = of_all;
		value = number_map_find(lost, key);
	}
	if (value)
		*value += count;
	else
		number_map_add(lost, key,
			       count); /* without memory for it, not even that is known */
}

/* Tells losses, as far as there is room below the limit. */
static void session_tell_lost(struct trace_session *session, size_t limit) {
	struct trace_lost record = { .record = { .size = sizeof(record), .type = TRACE_LOST } };

	session->has_lost = false;
	record.time = monotonic_now();
	for (uint8_t source = 0; source < 4; source++) {
		struct number_map *lost = &session->lost[source];
		bool left = false;

		record.record.source = source;
		for (size_t i = 0; i < lost->table.n; i++) {
			struct number_entry *entry = number_map_at(lost, i);

			if (!entry->value)
				continue;
			record.pid = (uint32_t)((entry->key - 1) >> 32);
			record.tid = (uint32_t)(entry->key - 1);
			record.count = entry->value;
			if (session_put(session, &record.record, limit)) {
				session->n_lost += entry->value;
				entry->value = 0;
			} else {
				left = true;
			}
		}
		if (!left)
			number_map_deinit(lost);
		session->has_lost = session->has_lost || left;
	}
}

void session_flush_lost(struct trace_session *session) {
	if (session->has_lost)
		session_tell_lost(session, session->config.buffer + 2 * SESSION_RESERVE);
}

/* ---- numbers ---- */

uint16_t trace_session_function(struct trace_session *session, const char *name) {
	const uint16_t number = trace_table_function(session->table, name);
	const size_t bit = number - (size_t)TRACE_FUNCTION_DYNAMIC, n = strlen(name);
	struct {
		struct trace_name name;
		char text[128];
	} record = { .name = { .kind = TRACE_NAME_FUNCTION, .id = number } };

	if (!number || session->functions[bit / 64] >> bit % 64 & 1)
		return number;
	memcpy(record.text, name, n);
	record.name.record =
		(struct trace_record){ .size = (uint32_t)(sizeof(record.name) + (n + 8) / 8 * 8),
				       .type = TRACE_NAME };
	if (trace_session_emit(session, &record.name.record, 0, 0))
		session->functions[bit / 64] |= UINT64_C(1) << bit % 64;
	return number;
}

void trace_session_foresee(struct trace_session *session, pid_t pid) {
	if (session->options->stacks)
		stack_foresee(&session->table->stacks, pid);
}

/* stack_file_fn: tells a file once. One of a name that is too long stays without. */
static void session_tell_file(void *userdata, pid_t pid, uint64_t inode, const char *path) {
	struct trace_session *session = userdata;
	uint64_t key = number_hash((uint64_t)pid << 32) ^ inode;
	size_t n = strlen(path);
	struct {
		struct trace_name name;
		char text[1024];
	} record = { .name = { .pid = (uint32_t)pid, .kind = TRACE_NAME_FILE, .id = inode } };

	key += !key;
	if (n >= sizeof(record.text) || number_map_find(&session->files, key) ||
	    session->files.table.n >= SESSION_FILES_MAX)
		return;
	memcpy(record.text, path, n);
	record.name.record =
		(struct trace_record){ .size = (uint32_t)(sizeof(record.name) + (n + 8) / 8 * 8),
				       .type = TRACE_NAME };
	if (trace_session_emit(session, &record.name.record, (uint32_t)pid, 0))
		number_map_add(&session->files, key, 1);
}

uint32_t trace_session_stack(struct trace_session *session, pid_t pid, const uint64_t *addresses,
			     size_t n) {
	union {
		struct trace_stack stack;
		unsigned char bytes[TRACE_RECORD_MAX];
	} record = {};
	uint64_t hash = (uint64_t)pid, *known;
	size_t text;

	n = n < 64 ? n : 64;
	for (size_t i = 0; i < n; i++)
		hash = number_hash(hash ^ addresses[i]) + i;
	hash += !hash;
	known = number_map_find(&session->stacks, hash);
	if (known || !n)
		return n ? (uint32_t)*known : 0;
	if (session->stacks.table.n >= SESSION_STACKS_MAX ||
	    !number_map_add(&session->stacks, hash, session->last_stack + 1))
		return 0;
	session->last_stack++;
	record.stack.id = session->last_stack;
	record.stack.n = (uint32_t)n;
	memcpy(record.stack.addresses, addresses, n * sizeof(addresses[0]));
	text = sizeof(record.stack) + n * sizeof(addresses[0]);
	text += stack_describe(&session->table->stacks, pid,
			       session->options->all_users ? NULL : &session->options->caller,
			       addresses, n, (char *)record.bytes + text, sizeof(record) - text,
			       session_tell_file, session);
	record.stack.record = (struct trace_record){ .size = (uint32_t)((text + 7) / 8 * 8),
						     .type = TRACE_STACK };
	if (trace_session_emit(session, &record.stack.record, (uint32_t)pid, 0))
		return session->last_stack;
	number_map_remove(&session->stacks, hash); /* it is told when there is room */
	return 0;
}

void trace_session_missing(struct trace_session *session, const char *format, ...) {
	va_list arguments;
	char **grown;

	if (session->n_missing == SESSION_MISSING_MAX)
		return;
	grown = realloc(session->missing, (session->n_missing + 1) * sizeof(*grown));
	if (!grown)
		return;
	session->missing = grown;
	va_start(arguments, format);
	if (vasprintf(&grown[session->n_missing], format, arguments) >= 0)
		session->n_missing++;
	va_end(arguments);
}

size_t trace_session_trouble(struct trace_session *session, const char *const **linesp) {
	const size_t before = session->n_troubles;

	session->n_troubles = session->n_missing;
	*linesp =
		before < session->n_missing ? (const char *const *)session->missing + before : NULL;
	return session->n_missing - before;
}

void trace_session_unknown_ends(struct trace_session *session, uint32_t pid, uint64_t count) {
	const struct trace_lost record = {
		.record = { .size = sizeof(record),
			    .type = TRACE_LOST,
			    .source = TRACE_SOURCE_GPU,
			    .flags = TRACE_LOST_ENDS },
		.time = monotonic_now(),
		.pid = pid,
		.count = count,
	};

	if (!session->finished && count &&
	    !session_put(session, &record.record, session->config.buffer + SESSION_RESERVE))
		trace_session_lost(session, TRACE_SOURCE_GPU, pid, 0,
				   count); /* not even that can be told */
}

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

bool trace_session_meant(struct trace_session *session, pid_t pid, uint64_t time) {
	for (int i = 0; i < MEANT_DRAINS_MAX; i++) {
		if (trace_session_means(session, pid))
			return true;
		if (!session->hooks || time < session->hooks_read)
			return false;
		session_drain_hooks(session);
	}
	return trace_session_means(session, pid);
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
