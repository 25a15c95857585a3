/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Takes records from the sources of a session and holds them until its client takes them (sink.h).
 *
 * The buffer of a session is a list of chunks, each as large as one reply. Above its bound records
 * are lost, and counted by source, process and thread; LOST records tell that in-band as soon as
 * there is room. Records that others need to be understood (names, processes) have some more room,
 * so that they are lost last.
 */

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink-private.h"

#define SINK_FUNCTIONS (TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC)

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

void session_tell_lost(struct trace_session *session, size_t limit) {
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

uint16_t sink_function(struct sink_shared *shared, const char *name) {
	size_t n = strlen(name), i;

	if (!n || n > 119)
		return 0;
	for (i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return 0;
	for (i = 0; i < SINK_FUNCTIONS && shared->functions[i]; i++)
		if (strcmp(shared->functions[i], name) == 0)
			return (uint16_t)(TRACE_FUNCTION_DYNAMIC + i);
	if (i == SINK_FUNCTIONS)
		return 0;
	shared->functions[i] = strdup(name);
	return shared->functions[i] ? (uint16_t)(TRACE_FUNCTION_DYNAMIC + i) : 0;
}

void sink_forget_functions(struct sink_shared *shared) {
	for (size_t i = 0; i < SINK_FUNCTIONS && shared->functions[i]; i++) {
		free(shared->functions[i]);
		shared->functions[i] = NULL;
	}
}

uint16_t trace_session_function(struct trace_session *session, const char *name) {
	const uint16_t number = sink_function(session->shared, name);
	const size_t bit = number - (size_t)TRACE_FUNCTION_DYNAMIC;

	if (number && !(session->functions[bit / 64] >> bit % 64 & 1) &&
	    trace_session_name(session, TRACE_SOURCE_DAEMON, TRACE_NAME_FUNCTION, 0, number, name,
			       strlen(name)))
		session->functions[bit / 64] |= UINT64_C(1) << bit % 64;
	return number;
}

void trace_session_foresee(struct trace_session *session, pid_t pid) {
	if (session->options->stacks)
		stack_foresee(&session->shared->stacks, pid);
}

/* stack_file_fn: tells a file once. One of a name that is too long stays without. */
static void session_tell_file(void *userdata, pid_t pid, uint64_t inode, const char *path) {
	struct trace_session *session = userdata;
	uint64_t key = number_hash((uint64_t)pid << 32) ^ inode;
	size_t n = strlen(path);

	key += !key;
	if (n < 1024 && !number_map_find(&session->files, key) &&
	    session->files.table.n < SESSION_FILES_MAX &&
	    trace_session_name(session, TRACE_SOURCE_DAEMON, TRACE_NAME_FILE, (uint32_t)pid, inode,
			       path, n))
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
	text += stack_describe(&session->shared->stacks, pid,
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
