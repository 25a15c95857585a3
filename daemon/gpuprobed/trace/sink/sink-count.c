/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Counts calls for a trace with `aggregate` (sink-private.h).
 *
 * Calls that are counted (`aggregate`). For each source, process and function there is what was
 * told last; what comes next is told as the difference, as soon as there is room, so that a slow
 * client gets fewer records and loses no calls. Calls of the shim come as records of its rings and
 * are added up here; programs of the kernel bring sums (uprobe-count.c), and would bring those of a
 * process that is gone again: only they say when one can be forgotten.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/trace/bpf/tally.h"
#include "lib/function.h"
#include "sink-private.h"

#define COUNT_PERIOD UINT64_C(200000000) /* nanoseconds */
#define TALLIES_MAX 16384
#define RESULT_NOT_READY 600 /* no failure */

struct session_tally {
	struct trace_tally told;
	struct trace_tally *sum; /* of a source that brings calls; else NULL */
	uint64_t time; /* when it was told */
};

static uint64_t tally_key(enum trace_source source, uint32_t pid, uint16_t function) {
	return (uint64_t)pid << 16 | (unsigned int)(source & 3) << 12 |
	       (function & (TRACE_FUNCTION_MAX - 1));
}

static void tally_free(struct session_tally *tally) {
	free(tally->sum);
	free(tally);
}

/* Tells what is new in `now`. False: there is no room. */
static bool tally_tell(struct trace_session *session, struct session_tally *tally, uint64_t key,
		       const struct trace_tally *now) {
	union {
		struct trace_counts counts;
		unsigned char bytes[sizeof(struct trace_counts) +
				    TRACE_BUCKETS * sizeof(struct trace_bucket)];
	} record;
	struct trace_counts *counts = &record.counts;

	*counts = (struct trace_counts){
		.start = tally->time,
		.end = monotonic_now(),
		.pid = (uint32_t)(key >> 16),
		.function = key & (TRACE_FUNCTION_MAX - 1),
		.errors = now->errors - tally->told.errors,
		.time = now->time - tally->told.time,
		.min = ~now->least,
		.max = now->max,
		.bytes = now->bytes - tally->told.bytes,
		.bytes_done = now->bytes_done - tally->told.bytes_done,
	};
	for (uint32_t i = 0; i < TRACE_BUCKETS; i++) {
		const uint32_t calls = now->buckets[i] - tally->told.buckets[i];

		if (calls)
			counts->buckets[counts->n_buckets++] = (struct trace_bucket){ i, calls };
		counts->calls += calls;
	}
	if (!counts->calls)
		return true;
	counts->record = (struct trace_record){
		.size = (uint32_t)(sizeof(*counts) +
				   counts->n_buckets * sizeof(counts->buckets[0])),
		.type = TRACE_COUNTS,
		.source = key >> 12 & 3
	};
	if (!session_put(session, &counts->record,
			 session->ending ? SIZE_MAX : session->config.buffer + SESSION_RESERVE))
		return false;
	tally->told = *now;
	tally->time = counts->end;
	return true;
}

/* Makes room: forgets what was counted here of processes that are gone, and has been told. */
static void session_prune_tallies(struct trace_session *session) {
	struct hash_table *table = &session->tallies.table;

	session->pruned = monotonic_now();
	for (size_t i = table->n; i-- > 0;) {
		struct number_entry *entry = hash_table_at(table, i);
		struct session_tally *tally = entry->pointer;
		const pid_t pid = (pid_t)(entry->key >> 16);

		if (tally->sum && kill(pid, 0) < 0 && errno == ESRCH &&
		    tally_tell(session, tally, entry->key, tally->sum)) {
			tally_free(tally);
			hash_table_remove(table, entry);
		}
	}
}

/* NULL: no room. */
static struct session_tally *session_find_tally(struct trace_session *session, uint64_t key) {
	struct session_tally *tally = number_map_pointer(&session->tallies, key);

	if (tally)
		return tally;
	if (session->tallies.table.n >= TALLIES_MAX &&
	    monotonic_now() - session->pruned >= COUNT_PERIOD)
		session_prune_tallies(session);
	tally = session->tallies.table.n < TALLIES_MAX ? calloc(1, sizeof(*tally)) : NULL;
	if (!tally || !number_map_add_pointer(&session->tallies, key, tally)) {
		free(tally);
		return NULL;
	}
	tally->time = session->began;
	return tally;
}

bool trace_session_counts(struct trace_session *session, enum trace_source source, uint32_t pid,
			  uint16_t function, const struct trace_tally *now) {
	const uint64_t key = tally_key(source, pid, function);
	struct session_tally *tally = session_find_tally(session, key);

	return tally && tally_tell(session, tally, key, now);
}

void trace_session_counts_anew(struct trace_session *session, enum trace_source source,
			       uint32_t pid, uint16_t function) {
	const uint64_t key = tally_key(source, pid, function);
	struct session_tally *tally = number_map_pointer(&session->tallies, key);

	if (!tally)
		return;
	tally_free(tally);
	number_map_remove(&session->tallies, key);
}

/* One of a call's words; false: it is not there. */
static bool call_word(const struct trace_call *call, const struct function_argument *argument,
		      uint64_t *value) {
	if (argument->word >= call->n_arguments)
		return false;
	*value = argument->type->size == 4 ? (uint32_t)call->words[argument->word]
					   : call->words[argument->word];
	return true;
}

/* How many bytes a call is about. */
static uint64_t call_size(const struct function *function, const struct trace_call *call) {
	struct function_size_words words;
	uint64_t size, rows = 1;

	if (!function || !function_size_words(function, &words) ||
	    !call_word(call, words.size, &size) ||
	    (words.rows && !call_word(call, words.rows, &rows)) ||
	    __builtin_mul_overflow(size, function->size_unit, &size) ||
	    __builtin_mul_overflow(size, rows, &size))
		return 0;
	return size;
}

bool session_count_call(struct trace_session *session, const struct trace_call *call) {
	const struct function *function = function_by_number(call->function);
	const uint64_t duration = call->end - call->start;
	struct session_tally *tally;
	struct trace_tally *sum;
	uint64_t size;
	bool failed;

	if (call->record.flags & (TRACE_CALL_OPEN | TRACE_CALL_NO_RESULT) ||
	    (function && function_describes_size(function)))
		return false;
	tally = session_find_tally(session,
				   tally_key(call->record.source, call->pid, call->function));
	if (tally && !tally->sum)
		tally->sum = calloc(1, sizeof(*tally->sum));
	if (!tally || !tally->sum)
		return false;
	sum = tally->sum;
	size = call_size(function, call);
	failed = call->result && call->result != RESULT_NOT_READY;
	sum->errors += failed;
	sum->time += duration;
	sum->max = duration > sum->max ? duration : sum->max;
	sum->least = ~duration > sum->least ? ~duration : sum->least;
	sum->bytes += size;
	sum->bytes_done += failed ? 0 : size;
	sum->buckets[trace_bucket_of(duration)]++;
	return true;
}

void session_tell_counts(struct trace_session *session, uint64_t now) {
	if (!session->ending && now - session->counted < COUNT_PERIOD)
		return;
	session->counted = now;
	for (size_t i = 0; i < session->tallies.table.n; i++) {
		const struct number_entry *entry = number_map_at(&session->tallies, i);
		struct session_tally *tally = entry->pointer;

		if (tally->sum)
			tally_tell(session, tally, entry->key, tally->sum);
	}
}

void session_deinit_counts(struct trace_session *session) {
	for (size_t i = 0; i < session->tallies.table.n; i++)
		tally_free(number_map_at(&session->tallies, i)->pointer);
	number_map_deinit(&session->tallies);
}
