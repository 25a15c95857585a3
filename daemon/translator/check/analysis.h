/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What each register and each slot of the BPF stack holds, before each instruction: enough to know
 * that an access goes to the stack at a constant offset (then it becomes a register), or to a value
 * of a certain map (then it is an access to global memory), and to know everything that a program
 * does with a map's values. What is read from .rodata at a constant place is a constant, and of a
 * branch on constants only one way is followed, as the kernel's verifier has it: what a program
 * would do if it were configured otherwise does not matter.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "flow.h"
#include "insn.h"
#include "daemon/translator/translate.h"

_Static_assert(INSN_THREAD == TRANSLATE_THREAD, "one number");

enum value_kind {
	VALUE_SCALAR, /* anything, pointers that we lost track of included */
	VALUE_CONST,
	VALUE_STACK, /* an address in a frame's stack */
	VALUE_MAP, /* a map, as helpers take it; or what may be one (VALUE_ANY_MAP) */
	VALUE_MAP_VALUE, /* an address in a value of a map, or NULL */
	VALUE_CONTEXT, /* an address in the context, at a constant offset */
	VALUE_RECORD, /* an address in a record that was reserved in a ring, or NULL */
	VALUE_THREAD, /* an address in the variables of a thread */
	VALUE_LOST, /* what may be one of the last three: nothing can be done with it */
};

/*
 * Whether a number is the same in all lanes of a warp that can be together where it is used. Lanes
 * may come together though one is a turn of a loop ahead of another, or has taken another branch.
 * So a number is uniform if it is computed of nothing but what is the same for the whole launch or
 * place, by instructions that give the same whenever they run; where two such numbers meet that
 * come from different instructions, what comes of it is not uniform.
 */
enum value_uniform {
	VALUE_VARYING,
	VALUE_PLACE_UNIFORM, /* if the program's POINT_UNIFORM is 1 */
	VALUE_ALWAYS_UNIFORM,
};

struct value {
	uint8_t kind;
	uint8_t align; /* SCALAR, inexact address: number of low bits known to be 0, at most 3 */
	uint8_t known; /* CONST: mask of known bytes; all of them, but in a stack slot. SCALAR: enum
			  value_uniform */
	bool exact; /* addresses: the offset (from r10; in the map, the record) is a constant */
	uint32_t ref; /* STACK: frame; MAP, MAP_VALUE, RECORD: map; uniform SCALAR: which of those
			 that its site makes */
	uint32_t site; /* MAP_VALUE: of the lookup that gave it last; 0: not known. RECORD: its own.
			  Uniform SCALAR: of the instruction that made it */
	uint32_t size; /* RECORD, THREAD: bytes of all; else 0, so that values compare as bytes */
	uint64_t bits; /* CONST: the value; exact address: offset; SCALAR, LOST: maps it may point
			  into */
};

/*
 * As ref of VALUE_MAP: a map we do not know which, or something else (bits: as of SCALAR). Nothing
 * is read through it: the kernel's maps can be read, and its verifier allows that.
 */
#define VALUE_ANY_MAP UINT32_MAX

/* What stands for the addresses of a context, of records and of a thread's variables: programs
 * compare them with NULL. */
#define ANALYSIS_CONTEXT_ADDRESS UINT64_C(0x110000)
#define ANALYSIS_RECORD_ADDRESS UINT64_C(0x220000)
#define ANALYSIS_THREAD_ADDRESS UINT64_C(0x330000)

#define ANALYSIS_REGISTERS 11
#define ANALYSIS_SLOTS (INSN_STACK_SIZE / 8)

/* One frame. A state is an array of them, from the program's to the current one's. */
struct analysis_frame {
	struct value registers[ANALYSIS_REGISTERS];
	struct value slots[ANALYSIS_SLOTS]; /* 0 is r10 - 512 */
};

/* What programs do with the values of a map. */
enum {
	MAP_USE_ANY = 1, /* refers to it */
	MAP_USE_ADD32 = 2, /* atomic additions of 4 bytes whose result is not used */
	MAP_USE_ADD64 = 4,
	MAP_USE_OTHER = 8, /* reads, writes, or loses track of an address */
	MAP_USE_DIRECT = 16, /* its address is a constant of the program */
	MAP_USE_UPDATE = 32, /* stores a value whole, with flags that are constant and let it */
	MAP_USE_DELETE = 64, /* deletes elements, of a hash */
};

struct analysis {
	const struct flow *flow;
	const struct translate_map *maps;
	size_t n_maps;
	const struct translate_thread *thread;
	struct fault *fault; /* while analysis_init() and analysis_step() run */
	struct analysis_frame **entry; /* state at the start of each block; NULL: never reached */
	uint8_t uses[TRANSLATE_MAPS_MAX]; /* MAP_USE_ of each map */
	uint32_t context; /* bit i: field i of the context is read, or POINT_UNIFORM is */
	uint32_t words; /* bit i: word i of the thread's variables is used */
	bool process; /* something of the process slot is read */
	unsigned sm; /* the least architecture that has the helpers that it calls; 0: any */
	bool takes_memory;
	bool recording; /* entry[] is final, what is above is being taken */
};

/*
 * Computes `entry` and `uses`. Returns 0, TRANSLATE_E_PROGRAM or -ENOMEM. analysis_deinit() in any
 * case.
 */
int analysis_init(struct analysis *analysis, const struct flow *flow,
		  const struct translate_map *maps, size_t n_maps,
		  const struct translate_thread *thread, bool takes_memory, struct fault *fault);
void analysis_deinit(struct analysis *analysis);

/* The effect of one instruction that is no jump, BPF call or exit on the state of a frame. */
int analysis_step(struct analysis *analysis, struct analysis_frame *state, uint32_t frame,
		  size_t pc);

/* Whether a load of `n` bytes at `base` + `offset` always gives the same, and what. */
bool analysis_constant(const struct analysis *analysis, const struct value *base, int64_t offset,
		       unsigned n, bool sign, uint64_t *bits);

/* Which way control always goes: 1 if a branch is taken, 0 if not; -1 if it may do either. */
int analysis_way(const struct analysis_frame *state, const struct bpf_insn *insn);

static inline size_t analysis_state_size(const struct flow *flow, uint32_t frame) {
	return (flow->frames[frame].depth + 1) * sizeof(struct analysis_frame);
}

/* The number of low bits of a value that are known to be 0, at most 3. */
unsigned value_align(const struct value *value);

/* Whether it is the same in all lanes. */
enum value_uniform value_uniform(const struct value *value);

static inline bool value_is_const(const struct value *value, uint64_t bits) {
	return value->kind == VALUE_CONST && value->known == 0xff && value->bits == bits;
}

/* Names a lookup or a reservation: the instruction, in that frame. Not 0. */
static inline uint32_t analysis_site(uint32_t frame, size_t pc) {
	return frame * TRANSLATE_INSNS_MAX + (uint32_t)pc + 1;
}

/* Slot of a constant offset from r10. */
static inline size_t analysis_slot(int64_t offset) {
	return (size_t)(offset + INSN_STACK_SIZE) / 8;
}
