/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Records one call of the driver in a traced process.
 *
 * What trace_call (trampoline.S) does before and behind a call, while there is a session or
 * something has to be looked up.
 *
 * What pointers point to is read behind the call, and only if it succeeded: then the driver has
 * read or written it itself, whatever the application passed.
 */

#include <string.h>

#include "shim/driver/driver.h"
#include "trace-event.h"
#include "trace-gpu.h"
#include "tracing.h"

#define SPARE_WORDS 6 /* that are recorded of a function that is not in the table */
#define STRING_MAX 120
#define UNWIND_CLEANUP 2 /* _UA_CLEANUP_PHASE, */
#define UNWIND_GO_ON 8 /* and _URC_CONTINUE_UNWIND, of the C++ ABI */

/* Returns 1 if trace_end is to be called behind the call, else 0. */
uint64_t trace_begin(struct trace_frame *frame);
void trace_end(struct trace_frame *frame);
int trace_personality(int version, int actions, uint64_t class, void *exception, void *context);

/* For a few words: memcpy() takes longer, and the compiler is not to make one of it. */
static inline void copy(uint64_t *to, const uint64_t *from, unsigned count) {
	for (unsigned i = 0; i < count; i++) {
		to[i] = from[i];
		__asm__("" : "+r"(i));
	}
}

/* Of which number of trace.h a function is, and how many words its record has. */
static inline unsigned number_of(uint32_t index) {
	return index < FUNCTION_COUNT ? function_rows[index].number
				      : TRACE_FUNCTION_DYNAMIC + index - FUNCTION_COUNT;
}

static inline bool is_wanted(struct trace_self *thread, uint32_t index) {
	uint64_t sample = __atomic_load_n(&trace_session.sample, __ATOMIC_RELAXED);

	if (!trace_wants(index))
		return false;
	if (__builtin_expect(sample <= 1, 1))
		return true;
	if (!thread->random) /* threads that all do the same do not show the same */
		thread->random = trace_now();
	return trace_is_sampled(&thread->random, sample);
}

uint64_t trace_begin(struct trace_frame *frame) {
	struct trace_self *thread = &trace_mine;
	uint64_t number = trace_session_number();
	uint32_t index = frame->index;
	const uint64_t *stack = (const uint64_t *)(frame + 1) + 2;
	unsigned count = sizeof(frame->stack) / 8;

	if (__builtin_expect(!number || trace_page_changed(), 0))
		number = trace_look(index);
	if ((!number && !thread->passes) || (thread->outermost && frame < thread->outermost))
		return 0;
	if (__builtin_expect(!number, 0))
		thread->passes = false;
	if (__builtin_expect(index < FUNCTION_COUNT, 1)) {
		const struct function_row *row = &function_rows[index];

		count = row->words - row->floats;
		count = count > TRACE_REGISTERS ? count - TRACE_REGISTERS : 0;
	}
	copy(frame->stack, stack, count);
	thread->outermost = frame;
	frame->session = number;
	frame->timing = NULL;
	frame->untimed = false;
	frame->recorded = number && is_wanted(thread, index);
	if (frame->recorded) {
		/* it is in the call while its events are recorded: no kernel begins before it */
		frame->start = trace_now();
		if (__builtin_expect(trace_flag(TRACE_RING_GPU), 0))
			trace_gpu_before(frame);
	}
	return 1;
}

/* How much there is to record of what arguments point to; fills in the lengths. */
static uint32_t size_extras(const struct function_row *row, const struct trace_frame *frame,
			    int32_t result, uint16_t lengths[FUNCTION_EXTRAS_MAX]) {
	uint32_t size = 0;

	for (unsigned i = 0; i < row->extra_count; i++) {
		const struct function_extra *extra = &row->extras[i];
		const char *at = (const char *)trace_word(frame, extra->word);
		bool string = !extra->size;

		/* where the driver looked for a name in vain, it has read it */
		if (!at || (result && !(string && result == DRIVER_ERROR_NOT_FOUND))) {
			lengths[i] = UINT16_MAX;
			continue;
		}
		lengths[i] = string ? (uint16_t)strnlen(at, STRING_MAX) : extra->size;
		size += (uint32_t)sizeof(struct trace_extra) + (lengths[i] + 7u) / 8 * 8;
	}
	return size;
}

/* Returns how many there are. */
static uint8_t write_extras(const struct function_row *row, const struct trace_frame *frame,
			    const uint16_t lengths[FUNCTION_EXTRAS_MAX], uint8_t *to) {
	uint8_t count = 0;

	for (unsigned i = 0; i < row->extra_count; i++) {
		const struct function_extra *extra = &row->extras[i];
		uint32_t padded;

		if (lengths[i] == UINT16_MAX)
			continue;
		padded = (lengths[i] + 7u) / 8 * 8;
		*(struct trace_extra *)to = (struct trace_extra){
			.argument = extra->argument,
			.when = extra->when,
			.size = lengths[i],
		};
		to += sizeof(struct trace_extra);
		memset(to, 0, padded);
		memcpy(to, (const void *)trace_word(frame, extra->word), lengths[i]);
		to += padded;
		count++;
	}
	return count;
}

/* The stack of a call, as its last extra. */
static void write_stack(const uint64_t *stack, uint32_t size, uint8_t *to) {
	*(struct trace_extra *)to = (struct trace_extra){
		.argument = TRACE_STACK_ARGUMENT,
		.size = (uint16_t)size,
	};
	memcpy(to + sizeof(struct trace_extra), stack, size);
}

/* The arguments, in the order of functions.inc; the last ones are floats. */
static inline void write_words(const struct trace_frame *frame, uint64_t *words, unsigned count,
			       unsigned floats) {
	unsigned plain = count - floats;

	if (plain <= TRACE_REGISTERS) {
		copy(words, frame->words, plain);
	} else {
		copy(words, frame->words, TRACE_REGISTERS);
		copy(words + TRACE_REGISTERS, frame->stack, plain - TRACE_REGISTERS);
	}
	for (unsigned i = 0; i < floats; i++)
		words[plain + i] = (uint32_t)frame->floats[i][0];
}

/* Writes the record of a call, inside a session. stack: `depth` addresses, as many as fit. */
static void write_call(struct trace_self *thread, const struct trace_frame *frame, uint64_t end,
		       uint8_t flags, const uint64_t *stack, unsigned depth) {
	bool known = frame->index < FUNCTION_COUNT;
	const struct function_row *row = &function_rows[known ? frame->index : 0];
	int32_t result = (int32_t)frame->result[0];
	uint16_t lengths[FUNCTION_EXTRAS_MAX];
	struct trace_ring_call *call;
	unsigned count = known ? row->words : SPARE_WORDS;
	uint32_t extras = 0, addresses = depth * 8, size;

	thread->sequence++;
	if (trace_flag(TRACE_RING_EXTRAS) && !flags && known && row->extra_count)
		extras = size_extras(row, frame, result, lengths);
	size = (uint32_t)sizeof(*call) + count * 8 + extras;
	if (depth) {
		if (addresses > TRACE_RING_RECORD_MAX - sizeof(struct trace_extra) - size)
			addresses =
				TRACE_RING_RECORD_MAX - (uint32_t)sizeof(struct trace_extra) - size;
		size += (uint32_t)sizeof(struct trace_extra) + addresses;
	}
	call = trace_reserve(thread, size);
	if (__builtin_expect(!call, 0)) {
		trace_lose(thread);
		return;
	}
	*call = (struct trace_ring_call){
		.record = {
			.size = (uint16_t)size,
			.type = TRACE_RING_CALL,
			.flags = flags,
			.sequence = thread->sequence,
		},
		.start = frame->start,
		.end = end,
		.result = result,
		.function = (uint16_t)number_of(frame->index),
		.n_arguments = (uint8_t)count,
	};
	write_words(frame, call->words, count, known ? row->floats : 0);
	if (extras)
		call->n_extras = write_extras(row, frame, lengths, (uint8_t *)&call->words[count]);
	if (depth) {
		write_stack(stack, addresses, (uint8_t *)&call->words[count] + extras);
		call->n_extras++;
	}
	trace_write(thread, size);
}

/* What has to be there before the record. */
static void write_names(struct trace_self *thread, const struct trace_frame *frame, uint8_t flags) {
	uint32_t index = frame->index;

	if (index >= FUNCTION_COUNT) {
		uint64_t bit = UINT64_C(1) << (index - FUNCTION_COUNT);

		if (!(thread->named & bit) &&
		    trace_write_name(thread, TRACE_NAME_FUNCTION, number_of(index),
				     driver_function_name((int)index)))
			thread->named |= bit;
	}
	if (!flags && !(int32_t)frame->result[0] && trace_name_roles[index])
		trace_name_launched(thread, frame);
}

/* Returns whether there is a record now. */
static bool record(struct trace_self *thread, const struct trace_frame *frame, uint64_t end,
		   uint8_t flags) {
	uint64_t number = frame->session, stack[TRACE_STACK_MAX];
	unsigned depth = 0;
	bool on;

	if (__builtin_expect(trace_flag(TRACE_RING_STACKS) && !flags, 0))
		depth = trace_stack(frame, stack);
	if (__builtin_expect(thread->session != number || !thread->slot, 0) &&
	    !trace_claim(thread, number)) {
		thread->sequence++;
		trace_lose_homeless(number);
		return false;
	}
	if (__builtin_expect(!trace_enter(thread, number), 0)) {
		if (thread->user->inside)
			trace_lose(thread); /* a signal handler; its thread is inside: the memory
					       stays mapped */
		return false;
	}
	on = __atomic_load_n(&trace_session.ring->enabled, __ATOMIC_RELAXED);
	if (__builtin_expect(on, 1)) {
		write_names(thread, frame, flags);
		write_call(thread, frame, end, flags, stack, depth);
	} else if (__atomic_load_n(&trace_session.ring->flags, __ATOMIC_RELAXED) &
		   TRACE_RING_REPLACED) {
		trace_pass(frame->index);
	}
	trace_leave(thread);
	if (__builtin_expect(!on, 0))
		trace_end_session(number);
	return on;
}

/* A call that began in a session that is over is recorded in the next one, if that has begun. */
static inline void move_to_session(struct trace_frame *frame) {
	uint64_t number = trace_session_number();

	if (__builtin_expect(frame->session == number, 1))
		return;
	frame->session = number;
	frame->recorded = frame->recorded && number && trace_wants(frame->index);
}

void trace_end(struct trace_frame *frame) {
	struct trace_self *thread = &trace_mine;
	bool written = false;

	move_to_session(frame);
	if (frame->recorded) {
		uint64_t end = trace_now();
		int32_t result = (int32_t)frame->result[0];

		/* what is not ready is no failure */
		if (end - frame->start >=
			    __atomic_load_n(&trace_session.min_duration, __ATOMIC_RELAXED) &&
		    (!trace_flag(TRACE_RING_ERRORS) ||
		     (result && result != DRIVER_ERROR_NOT_READY)))
			written = record(thread, frame, end, 0);
	}
	if (__builtin_expect(trace_flag(TRACE_RING_GPU), 0) || frame->timing)
		trace_gpu_after(thread, frame, written ? thread->sequence : 0);
	if (__builtin_expect(trace_name_roles[frame->index], 0) && !(int32_t)frame->result[0])
		trace_name_changed(thread, frame);
	thread->outermost = NULL;
}

/*
 * Of a call that is left by an exception or by the end of its thread. (A longjmp is not told; see
 * tracing.h.)
 */
int trace_personality(int version, int actions, uint64_t class, void *exception, void *context) {
	struct trace_frame *frame = trace_mine.outermost;

	if ((actions & UNWIND_CLEANUP) && frame) {
		if (frame->timing)
			trace_event_abandon(frame->timing);
		move_to_session(frame);
		if (frame->recorded) {
			frame->result[0] = 0;
			record(&trace_mine, frame, trace_now(), TRACE_CALL_NO_RESULT);
		}
		trace_mine.outermost = NULL;
	}
	return UNWIND_GO_ON;
}
