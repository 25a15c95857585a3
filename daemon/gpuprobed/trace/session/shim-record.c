/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks records that traced processes wrote and turns them into records of a trace
 * (shim-ring-private.h).
 *
 * Records of rings become records of traces. Each one is a copy that its process can no longer
 * change; whatever in it has a range is checked here before it is used. Times may not lie in the
 * future: they would disturb the order of others' events.
 */

#include <stdlib.h>
#include <string.h>

#include "shim-ring-private.h"

#define RESULT_NOT_READY 600 /* no failure */
#define RECORD_FUTURE_NS UINT64_C(1000000000) /* clocks of processors may differ a little */
#define RECORD_PAIR_NS UINT64_C(50000000) /* a pair that took longer says nothing */
#define RECORD_DRIFT                                                                             \
	UINT64_C(10000) /* by one in so many a GPU's clock may drift, till pairs say by how much \
			 */

static uint64_t ring_nanoseconds(const struct shim_ring *ring, uint64_t time) {
	return ring->tsc ? tsc_clock_nanoseconds(&ring->table->tsc, time) : time;
}

/* Whether a time of the ring's clock lies in the future. */
static bool ring_future(const struct shim_ring *ring, uint64_t time, uint64_t now) {
	uint64_t slack =
		ring->tsc ? tsc_clock_steps(&ring->table->tsc, RECORD_FUTURE_NS) : RECORD_FUTURE_NS;

	return time > now && time - now > slack;
}

/* ---- calls ---- */

struct call_parts {
	size_t n_words; /* bytes */
	size_t n_extras; /* bytes, without the stack */
	unsigned int extras;
	const uint64_t *stack;
	size_t n_stack; /* addresses */
};

/* Measures the parts of a call. NULL, or what is wrong. */
static const char *call_check(const struct trace_ring_call *call, struct call_parts *parts) {
	const unsigned char *bytes = (const void *)call->words;
	size_t room = call->record.size - sizeof(*call), at;

	if (call->function >= TRACE_FUNCTION_MAX)
		return "a function out of range";
	if (call->n_arguments > TRACE_WORDS_MAX || (size_t)call->n_arguments * 8 > room)
		return "more arguments than there is room for";
	if (call->end < call->start)
		return "a call that ends before it begins";
	at = parts->n_words = (size_t)call->n_arguments * 8;
	for (unsigned int i = 0; i < call->n_extras; i++) {
		struct trace_extra extra;

		if (room - at < sizeof(extra))
			return "an extra that does not fit";
		memcpy(&extra, bytes + at, sizeof(extra));
		if (extra.size > room - at - sizeof(extra) || extra.when > TRACE_EXTRA_RETURN ||
		    extra.reserved)
			return "an extra that does not fit";
		if (extra.argument == 255) {
			if (i + 1 != call->n_extras || extra.size % 8)
				return "a stack that is none";
			parts->stack = (const void *)(bytes + at + sizeof(extra));
			parts->n_stack = extra.size / 8;
			return NULL;
		}
		if (extra.argument >= call->n_arguments)
			return "an extra of no argument";
		at += sizeof(extra) + (extra.size + 7u) / 8 * 8;
		if (at > room)
			return "an extra that does not fit";
		parts->n_extras = at - parts->n_words;
		parts->extras++;
	}
	return NULL;
}

/* Whether a session asked for this call: the ring's options are the union of all sessions'. */
static bool session_wants_call(const struct trace_session *session, struct shim_ring *ring,
			       const struct trace_ring_call *call, uint64_t duration) {
	const struct trace_options *options = session->options;
	unsigned int bit =
		call->function < TRACE_FUNCTION_DYNAMIC ? call->function : TRACE_FUNCTION_DYNAMIC;

	if (!(options->functions[bit / 64] >> bit % 64 & 1) || duration < options->min_duration ||
	    (options->errors && (call->result == 0 || call->result == RESULT_NOT_READY)))
		return false;
	return options->sample <= 1 || options->sample == ring->sample ||
	       trace_is_sampled(&ring->random, options->sample);
}

static const char *ring_take_call(struct shim_ring *ring, struct ring_slot *slot,
				  const struct trace_ring_call *call, uint64_t now) {
	union {
		struct trace_call call;
		unsigned char bytes[sizeof(struct trace_call) + TRACE_RING_RECORD_MAX];
	} out;
	struct call_parts parts = {};
	struct trace_session *session;
	const char *why;

	if (call->record.size < sizeof(*call))
		return "a call that is too short";
	why = call_check(call, &parts);
	if (why)
		return why;
	if (ring_future(ring, call->end, now))
		return "a call of the future";
	out.call.start = ring_nanoseconds(ring, call->start);
	out.call.end = ring_nanoseconds(ring, call->end);
	out.call.pid = (uint32_t)ring->pid;
	out.call.tid = slot->tid;
	out.call.sequence = call->record.sequence;
	out.call.result = call->result;
	out.call.n_arguments = call->n_arguments;
	memcpy(out.call.words, call->words, parts.n_words + parts.n_extras);
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++) {
		size_t n_extras;

		if (!session_wants_call(session, ring, call, out.call.end - out.call.start))
			continue;
		n_extras = session->options->extras ? parts.n_extras : 0;
		out.call.n_extras = (uint8_t)(session->options->extras ? parts.extras : 0);
		out.call.function = call->function;
		if (call->function >= TRACE_FUNCTION_DYNAMIC)
			out.call.function =
				ring->functions[call->function - TRACE_FUNCTION_DYNAMIC];
		out.call.record = (struct trace_record){ .size = sizeof(out.call),
							 .source = TRACE_SOURCE_SHIM,
							 .flags = call->record.flags };
		if (session->options->aggregate && session_count_call(session, &out.call))
			continue;
		out.call.stack = session->options->stacks && parts.n_stack
					 ? trace_session_stack(session, ring->pid, parts.stack,
							       parts.n_stack)
					 : 0;
		out.call.record = (struct trace_record){
			.size = (uint32_t)(sizeof(out.call) + parts.n_words + n_extras),
			.type = TRACE_CALL,
			.source = TRACE_SOURCE_SHIM,
			.flags = call->record.flags
		};
		trace_session_emit(session, &out.call.record, out.call.pid, out.call.tid);
	}
	return NULL;
}

/* ---- names ---- */

/* Keeps a name for sessions to come. The record as it is sent; NULL: it is known already. */
static struct trace_name *ring_keep_name(struct shim_ring *ring, const struct trace_ring_name *name,
					 size_t n, struct trace_name *fallback) {
	struct trace_name *kept = fallback, *old = number_map_pointer(&ring->names, name->id);
	size_t size = sizeof(*kept) + (n + 8) / 8 * 8;

	if (old) {
		if (strlen(old->name) == n && memcmp(old->name, name->name, n) == 0)
			return NULL; /* of another thread */
		ring->names_bytes -= old->record.size;
		free(old);
		number_map_remove(&ring->names, name->id);
	}
	if (name->id && ring->names.table.n < RING_NAMES_MAX &&
	    ring->names_bytes + size <= RING_NAMES_BYTES_MAX) {
		kept = malloc(size);
		if (kept && number_map_add_pointer(&ring->names, name->id, kept)) {
			ring->names_bytes += size;
		} else {
			free(kept);
			kept = fallback;
		}
	}
	memset(kept, 0, size);
	kept->record = (struct trace_record){ .size = (uint32_t)size,
					      .type = TRACE_NAME,
					      .source = TRACE_SOURCE_SHIM };
	kept->pid = (uint32_t)ring->pid;
	kept->kind = TRACE_NAME_KERNEL;
	kept->id = name->id;
	memcpy(kept->name, name->name, n);
	return kept;
}

static const char *ring_take_name(struct shim_ring *ring, const struct trace_ring_name *name) {
	union {
		struct trace_name name;
		unsigned char bytes[sizeof(struct trace_name) + TRACE_RING_RECORD_MAX + 8];
	} fallback;
	const struct trace_name *record;
	struct trace_session *session;
	char text[TRACE_RING_RECORD_MAX + 1] = "";
	size_t n;

	if (name->record.size <= sizeof(*name) || name->reserved)
		return "a name that is too short";
	n = strnlen(name->name, name->record.size - sizeof(*name));
	if (name->kind == TRACE_NAME_FUNCTION) {
		if (name->id < TRACE_FUNCTION_DYNAMIC || name->id >= TRACE_FUNCTION_MAX)
			return "the name of a function out of range";
		memcpy(text, name->name, n);
		ring->functions[name->id - TRACE_FUNCTION_DYNAMIC] =
			sink_function(&ring->table->shared, text);
		for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
			trace_session_function(session, text);
		return NULL;
	}
	if (name->kind != TRACE_NAME_KERNEL)
		return "a name of an unknown kind";
	record = ring_keep_name(ring, name, n, &fallback.name);
	for (unsigned int i = 0; record && (session = ring_session(ring, &i)); i++)
		trace_session_emit(session, &record->record, record->pid, 0);
	return NULL;
}

/* ---- the GPU ---- */

static void ring_tell_clock(const struct shim_ring *ring, uint32_t device,
			    struct trace_session *session) {
	const struct gpu_clock *clock = ring->clocks[device];
	struct trace_clock record = {
		.record = { .size = sizeof(record),
			    .type = TRACE_CLOCK,
			    .source = TRACE_SOURCE_GPU },
		.pid = (uint32_t)ring->pid,
		.device = device,
		.gpu_time = clock->base_gpu,
		.host_time = clock->base_host,
		.drift = gpu_clock_drift_ppb(clock),
		.error = clock->error,
	};

	if (session->options->gpu)
		trace_session_emit(session, &record.record, record.pid, 0);
}

static void ring_lose_kernels(const struct shim_ring *ring, uint32_t tid, uint64_t count) {
	struct trace_session *session;

	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
		if (session->options->gpu)
			trace_session_lost(session, TRACE_SOURCE_GPU, (uint32_t)ring->pid, tid,
					   count);
}

/* By how much the clock may be wrong at a time of it. */
static uint64_t ring_clock_error(const struct gpu_clock *clock, uint64_t time) {
	const uint64_t since =
		time > clock->base_gpu ? time - clock->base_gpu : clock->base_gpu - time;

	return clock->error + (clock->drift == 0 ? since / RECORD_DRIFT : 0);
}

/*
 * A kernel of a device whose clock is known, or whose times are the host's. One of the future is
 * lost, no lie: a GPU's clock may have jumped since its last pair, as when the machine slept.
 * Whoever converted it to the host's knew of that no more than we do.
 */
static void ring_give_kernel(const struct shim_ring *ring, const struct ring_kernel *kernel) {
	const bool host = kernel->record.record.flags & TRACE_RING_KERNEL_HOST;
	const struct gpu_clock *clock = ring->clocks[kernel->record.device];
	const uint64_t error =
		kernel->record.error + (host ? 0 : ring_clock_error(clock, kernel->record.end));
	struct trace_kernel record = {
		.record = { .size = sizeof(record),
			    .type = TRACE_KERNEL,
			    .source = TRACE_SOURCE_GPU },
		.start = host ? kernel->record.start
			      : gpu_clock_nanoseconds(clock, kernel->record.start),
		.pid = (uint32_t)ring->pid,
		.tid = kernel->tid,
		.sequence = kernel->sequence,
		.device = kernel->record.device,
		.context = kernel->record.context,
		.stream = kernel->record.stream,
		.function = kernel->record.function,
		.error = error < UINT32_MAX ? (uint32_t)error : UINT32_MAX,
	};
	struct trace_session *session;

	record.end = record.start + (kernel->record.end - kernel->record.start);
	if (record.end < record.start || record.end > monotonic_now() + RECORD_FUTURE_NS) {
		ring_lose_kernels(ring, kernel->tid, 1);
		return;
	}
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++) {
		if (!session->options->gpu)
			continue;
		trace_session_thread(session, ring->pid, (pid_t)kernel->tid);
		trace_session_emit(session, &record.record, record.pid, record.tid);
	}
}

static const char *ring_take_kernel(struct shim_ring *ring,
				    const struct trace_ring_kernel *record) {
	const bool host = record->record.flags & TRACE_RING_KERNEL_HOST;
	struct ring_kernel kernel = { .sequence = record->record.sequence, .record = *record };

	if (record->record.size != sizeof(*record))
		return "a kernel of another size";
	if (record->device >= SHIM_DEVICES_MAX || record->end < record->start || record->reserved)
		return "a kernel out of range";
	kernel.tid = ring_tid(ring, record->tid);
	if (host || ring->clocks[record->device]) {
		ring_give_kernel(ring, &kernel);
		return NULL;
	}
	if (!ring->pending)
		ring->pending = malloc(RING_PENDING_MAX * sizeof(*ring->pending));
	if (ring->pending && ring->n_pending < RING_PENDING_MAX)
		ring->pending[ring->n_pending++] = kernel;
	else
		ring_lose_kernels(ring, kernel.tid, 1);
	return NULL;
}

void ring_drop_pending(struct shim_ring *ring) {
	ring_lose_kernels(ring, 0, ring->n_pending);
	ring->n_pending = 0;
}

static const char *ring_take_pair(struct shim_ring *ring, const struct trace_ring_clock_pair *pair,
				  uint64_t now) {
	struct trace_session *session;
	uint64_t before, after;
	size_t n = 0;
	bool first;

	if (pair->record.size != sizeof(*pair) || pair->reserved)
		return "a clock pair of another size";
	if (pair->device >= SHIM_DEVICES_MAX || pair->after < pair->before ||
	    ring_future(ring, pair->after, now))
		return "a clock pair out of range";
	before = ring_nanoseconds(ring, pair->before);
	after = ring_nanoseconds(ring, pair->after);
	first = !ring->clocks[pair->device];
	if (!first && after - before > RECORD_PAIR_NS)
		return NULL;
	if (first)
		ring->clocks[pair->device] = calloc(1, sizeof(*ring->clocks[0]));
	if (!ring->clocks[pair->device])
		return NULL;
	gpu_clock_add(ring->clocks[pair->device], pair->gpu, before + (after - before) / 2,
		      (after - before + 1) / 2);
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
		ring_tell_clock(ring, pair->device, session);
	for (size_t i = 0; first && i < ring->n_pending; i++) {
		if (ring->pending[i].record.device == pair->device)
			ring_give_kernel(ring, &ring->pending[i]);
		else
			ring->pending[n++] = ring->pending[i];
	}
	ring->n_pending = first ? n : ring->n_pending;
	return NULL;
}

static const char *ring_take_note(const struct shim_ring *ring,
				  const struct trace_ring_note *note) {
	union {
		struct trace_note note;
		unsigned char bytes[sizeof(struct trace_note) + TRACE_RING_RECORD_MAX];
	} out;
	size_t n = note->record.size - sizeof(*note);
	struct trace_session *session;

	if (!n)
		return "a note that is too short";
	out.note = (struct trace_note){ .record = { .size = (uint32_t)(sizeof(out.note) + n),
						    .type = TRACE_NOTE,
						    .source = TRACE_SOURCE_SHIM },
					.time = monotonic_now(),
					.pid = (uint32_t)ring->pid };
	memcpy(out.note.text, note->text, n);
	for (unsigned int i = 0; (session = ring_session(ring, &i)); i++)
		trace_session_emit(session, &out.note.record, out.note.pid, 0);
	return NULL;
}

/* ---- all ---- */

const char *ring_take(struct shim_ring *ring, struct ring_slot *slot,
		      const struct trace_ring_record *record, uint64_t now) {
	switch (record->type) {
	case TRACE_RING_PAD:
		return NULL;
	case TRACE_RING_CALL:
		return ring_take_call(ring, slot, (const void *)record, now);
	case TRACE_RING_NAME:
		return ring_take_name(ring, (const void *)record);
	case TRACE_RING_KERNEL:
		return ring_take_kernel(ring, (const void *)record);
	case TRACE_RING_CLOCK_PAIR:
		return ring_take_pair(ring, (const void *)record, now);
	case TRACE_RING_NOTE:
		return ring_take_note(ring, (const void *)record);
	}
	return "a record of an unknown type";
}

void ring_tell(const struct shim_ring *ring, struct trace_session *session) {
	trace_session_process(session, ring->pid);
	trace_session_foresee(session, ring->pid);
	for (size_t i = 0; i < ring->names.table.n; i++) {
		const struct trace_name *name = number_map_at(&ring->names, i)->pointer;

		trace_session_emit(session, &name->record, name->pid, 0);
	}
	for (size_t i = 0; i < TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC; i++)
		if (ring->functions[i])
			trace_session_function(
				session,
				ring->table->shared
					.functions[ring->functions[i] - TRACE_FUNCTION_DYNAMIC]);
	for (uint32_t device = 0; device < SHIM_DEVICES_MAX; device++)
		if (ring->clocks[device])
			ring_tell_clock(ring, device, session);
}
