/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The daemon's end of a trace's ring on whatever a process writes. The input is
 * commands: bytes that are put where the next record belongs, and the head moved behind them; bytes
 * anywhere in the memory; reading; a second session that comes and goes. What comes out is
 * well-formed, and the daemon's own side stays in order.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/image/process.h"
#include "daemon/gpuprobed/wire/shim-server.h"
#include "daemon/gpuprobed/trace/session/session.h"
#include "daemon/gpuprobed/trace/session/shim-ring-private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct command {
	uint8_t what; /* 0-3 record, 4 anywhere, 5 read, 6 a session comes, 7 it goes */
	uint8_t n; /* bytes that follow, in eights */
	uint16_t place; /* of "anywhere", in eights */
};

static struct {
	uv_loop_t loop;
	struct trace_table *table;
	struct process process;
	uint64_t n_inputs;
} fuzz;

static void on_wake(struct trace_session *session, void *userdata) {
}

static void check_call(const struct trace_call *call) {
	const unsigned char *at = (const void *)(call->words + call->n_arguments),
			    *end = (const unsigned char *)call + call->record.size;

	if (call->end < call->start || call->function >= TRACE_FUNCTION_MAX)
		abort();
	for (unsigned int i = 0; i < call->n_extras; i++) {
		struct trace_extra extra;

		if (end - at < (ptrdiff_t)sizeof(extra))
			abort();
		memcpy(&extra, at, sizeof(extra));
		at += sizeof(extra) + (extra.size + 7u) / 8 * 8;
		if (extra.argument >= call->n_arguments || at > end)
			abort();
	}
	if (at != end)
		abort();
}

static void take(struct trace_session *session) {
	const void *records;
	size_t n;

	session_flush_lost(session);
	while ((n = trace_session_take(session, &records)))
		for (size_t at = 0; at < n;) {
			const struct trace_record *record =
				(const void *)((const unsigned char *)records + at);

			if (record->size < 8 || record->size % 8 ||
			    record->size > TRACE_RECORD_MAX || record->size > n - at)
				abort();
			if (record->type == TRACE_CALL)
				check_call((const void *)record);
			if (record->type == TRACE_NAME &&
			    !memchr(((const struct trace_name *)record)->name, 0,
				    record->size - sizeof(struct trace_name)))
				abort();
			at += record->size;
		}
}

static struct trace_session *start(bool all) {
	struct trace_config config = { .wake = on_wake, .buffer = 1 << 20 };
	struct trace_session *session;
	uint32_t bad_pid;

	config.options.caller = getuid();
	config.options.shim = true;
	config.options.all_users = config.options.extras = config.options.gpu = all;
	config.options.sample = all ? 1 : 3;
	config.options.buffer = 4096;
	memset(config.options.functions, all ? 0xff : 0x0f, sizeof(config.options.functions));
	if (trace_session_new(&session, fuzz.table, &config, &bad_pid))
		abort();
	return session;
}

static void put(struct trace_ring *ring, const struct shim_ring *known, const uint8_t *bytes,
		size_t n) {
	struct trace_slot *slot = (void *)((unsigned char *)ring + known->slots_offset);
	unsigned char *area = (unsigned char *)(slot + 1);

	slot->state = TRACE_SLOT_USED;
	for (size_t i = 0; i < n; i++)
		area[(slot->head + i) % known->slot_bytes] = bytes[i];
	slot->head += n;
}

static void run(const uint8_t *data, size_t size, struct trace_session *session,
		struct shim_connection *connection) {
	struct trace_session *other = NULL;
	struct shim_ring *known;
	struct trace_ring *ring;
	uint64_t ring_size;
	int fd;

	if (shim_rings_ask(fuzz.table, &fuzz.process, 0, connection, &fd, &ring_size) || fd < 0)
		abort();
	known = LIST_FIRST(&fuzz.table->rings);
	ring = mmap(NULL, ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		abort();
	while (size >= sizeof(struct command)) {
		struct command command;
		size_t n;

		memcpy(&command, data, sizeof(command));
		data += sizeof(command);
		size -= sizeof(command);
		n = command.n * (size_t)8 < size ? command.n * (size_t)8 : size;
		if (command.what % 8 < 4) {
			put(ring, known, data, n);
		} else if (command.what % 8 == 4) {
			memcpy((unsigned char *)ring +
				       (command.place * (size_t)8) % (ring_size - n - 8),
			       data, n);
		} else if (command.what % 8 == 6 && !other) {
			other = start(false);
		} else if (command.what % 8 == 7) {
			other = trace_session_free(other);
		}
		data += command.what % 8 <= 4 ? n : 0;
		size -= command.what % 8 <= 4 ? n : 0;
		shim_rings_drain(fuzz.table);
		take(session);
		if (other)
			take(other);
	}
	trace_session_free(other);
	munmap(ring, ring_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct shim_connection connection = { .state = SHIM_CLOSED, .pidfd = -1 };
	struct trace_session *session;

	if (!fuzz.table) {
		/* what it says of liars is not for the terminal; replay.c and libFuzzer say nothing
		 * there that is missed */
		if (uv_loop_init(&fuzz.loop) ||
		    trace_table_new(&fuzz.table, &fuzz.loop, NULL, NULL) ||
		    process_facts_read(&fuzz.process.facts, getpid(), -1) < 0)
			abort();
		fuzz.process.uid = getuid();
	}
	fuzz.process.number = ++fuzz.n_inputs;
	fuzz.table->n_liars = 0; /* it begins anew as another process */
	memset(fuzz.table->liars, 0, sizeof(fuzz.table->liars));
	session = start(true);
	run(data, size, session, &connection);
	shim_rings_closed(fuzz.table, &connection);
	if (fuzz.table->n_rings)
		abort();
	take(session);
	trace_session_free(session);
	return 0;
}
