/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What trace_call (link/trampoline.S) leaves on the stack of a call that is traced. */

/* Offsets in struct trace_frame. */
#define TRACE_FRAME_STACK 0
#define TRACE_FRAME_WORDS 128
#define TRACE_FRAME_FLOATS 192
#define TRACE_FRAME_RESULT 320
#define TRACE_FRAME_INDEX 352
#define TRACE_FRAME_SIZE 384

#ifndef __ASSEMBLER__

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/functions.h"

struct trace_frame {
	uint64_t stack[16]; /* arguments of the call that it makes */
	uint64_t words[8]; /* registers of arguments */
	uint64_t floats[8][2];
	uint64_t result[2];
	uint64_t float_result[2];
	uint32_t index; /* of the function */
	bool recorded; /* else it is not recorded, but calls inside it are not outermost */
	bool untimed; /* trace-event.h: a launch for which there were no events */
	uint64_t session;
	uint64_t start;
	struct trace_timing *timing; /* trace-event.h */
};

_Static_assert(sizeof(struct trace_frame) == TRACE_FRAME_SIZE &&
		       __builtin_offsetof(struct trace_frame, words) == TRACE_FRAME_WORDS &&
		       __builtin_offsetof(struct trace_frame, floats) == TRACE_FRAME_FLOATS &&
		       __builtin_offsetof(struct trace_frame, result) == TRACE_FRAME_RESULT &&
		       __builtin_offsetof(struct trace_frame, index) == TRACE_FRAME_INDEX,
	       "as trampoline.S has it");

#if defined(__x86_64__)
#define TRACE_REGISTERS 6u
#else
#define TRACE_REGISTERS 8u
#endif

/* An argument of the call that is no float, counted as in functions.inc. */
static inline uint64_t trace_word(const struct trace_frame *frame, unsigned number) {
	return number < TRACE_REGISTERS ? frame->words[number]
					: frame->stack[number - TRACE_REGISTERS];
}

#endif
