/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instructions by name. A row's key is the mnemonic without what goes into sim_insn.mode (rounding,
 * .ftz, .sat) and without what changes nothing here (.approx, .full). Its format has one letter for
 * each operand:
 *   D destination   t source of the instruction's type   i integer source   p predicate source,
 *                   perhaps negated
 * Sources fill a, b, c, e in this order.
 */

#include "sim-thread.h"

struct sim_op_row {
	const char *key;
	sim_op op;
	const char *format;
};

/* Each ends with a row whose key is NULL. */
extern const struct sim_op_row sim_op_integer[];
extern const struct sim_op_row sim_op_bits[];
extern const struct sim_op_row sim_op_float[];
extern const struct sim_op_row sim_op_half[];
extern const struct sim_op_row sim_op_general[]; /* floats with a mode that is not 0 */
extern const struct sim_op_row sim_op_compare[];

/* sim_insn.mode */
enum {
	SIM_ROUND_MASK = 7,
	SIM_RN = 0,
	SIM_RZ = 1,
	SIM_RM = 2,
	SIM_RP = 3,
	SIM_RA = 4, /* to nearest, ties away */
	SIM_FTZ = 8,
	SIM_SAT = 16,
	SIM_NAN = 32, /* min, max: NaN wins */
	SIM_ROUND_INTEGER = 64, /* .rni and the like */
};

/* Comparison operators of setp and set, in mode. */
enum sim_compare {
	SIM_EQ,
	SIM_NE,
	SIM_LT,
	SIM_LE,
	SIM_GT,
	SIM_GE,
	SIM_EQU,
	SIM_NEU,
	SIM_LTU,
	SIM_LEU,
	SIM_GTU,
	SIM_GEU,
	SIM_NUM,
	SIM_NANS,
	SIM_COMPARE_COUNT,
};

enum sim_boolean {
	SIM_BOOL_NONE,
	SIM_BOOL_AND,
	SIM_BOOL_OR,
	SIM_BOOL_XOR
};

/* The op for a comparison (fast ones write one predicate, no boolean). NULL if there is none. */
sim_op sim_op_setp(enum sim_compare compare, enum ptx_type type);
/* d|e = (a compare b) boolean c; mode: compare | boolean << 8 | type << 16; SIM_FTZ << 24 */
sim_op sim_op_setp_general(void);
/* As above, the result being all ones, or 1.0 if bits is 1. */
sim_op sim_op_set(void);

/* NULL if there is none. The instruction's mode is to be SIM_* | to << 8 | from << 16. */
sim_op sim_op_convert(enum ptx_type to, enum ptx_type from, uint32_t mode);

/* Loads and stores. */
enum sim_access {
	SIM_ACCESS_REAL, /* a real address: checked against ranges, or this thread's stack */
	SIM_ACCESS_SHARED, /* an offset in the block's shared memory */
	SIM_ACCESS_FRAME, /* a variable of the frame: offset alone */
};
sim_op sim_op_load(enum sim_access access, enum ptx_type type);
sim_op sim_op_store(enum sim_access access, enum ptx_type type);
/* Vectors: data is a struct sim_vector. */
struct sim_vector {
	int64_t offset;
	uint32_t count, element; /* bytes of an element */
	bool is_signed;
	enum sim_access access;
	uint32_t slots[8];
};
sim_op sim_op_load_vector(void);
sim_op sim_op_store_vector(void);

/* Atomics: "add", "min" ...; e is SIM_ACCESS_*; d may be the sink. NULL if there is none. */
sim_op sim_op_atomic(const char *operation, enum ptx_type type);

/* cp.async, at once: data is a struct sim_copy, a the source. What is not read becomes zeros. */
struct sim_copy {
	int64_t to_offset, from_offset;
	uint32_t size; /* bytes written */
	uint32_t to, read, ignore; /* registers: an offset in shared memory, bytes to read, a
				      predicate that says none */
};
sim_op sim_op_copy(void);

/* Address arithmetic. */
extern const struct sim_op_row sim_op_address[]; /* cvta and isspacep: keys of ours */
sim_op sim_op_frame_address(void); /* d = frame + offset */
sim_op sim_op_copy_register(void); /* d = a */

/* Control. */
struct sim_table {
	uint32_t count;
	const struct sim_insn *targets[];
};
struct sim_argument {
	uint32_t slot; /* of the caller, if is_register */
	int32_t offset; /* from the caller's registers */
	uint32_t size;
	bool is_register;
};
struct sim_call {
	const struct sim_function *target; /* NULL: its address is in register a */
	const struct sim_program *program;
	uint32_t argument_count, return_count;
	struct sim_argument *arguments; /* then the returns */
};

enum sim_control {
	SIM_CONTROL_BRANCH,
	SIM_CONTROL_BRANCH_BACK, /* charges the budget */
	SIM_CONTROL_BRANCH_IF, /* if a is true */
	SIM_CONTROL_BRANCH_UNLESS,
	SIM_CONTROL_BRANCH_INDEX,
	SIM_CONTROL_CALL,
	SIM_CONTROL_RETURN,
	SIM_CONTROL_EXIT,
	SIM_CONTROL_TRAP,
	SIM_CONTROL_END, /* ran off the end of the body */
	SIM_CONTROL_NOP,
	SIM_CONTROL_FENCE,
	SIM_CONTROL_PRINT, /* vprintf */
	SIM_CONTROL_ASSERT, /* __assertfail */
	SIM_CONTROL_CONDITION, /* cudaGraphSetConditional */
	SIM_CONTROL_BARRIER, /* a: number, b: threads (0 as constant: all); mode: sync 0, arrive 1,
				red.popc 2, and 3, or 4; c predicate */
	SIM_CONTROL_WARP, /* mode: enum sim_warp_kind | detail << 8; see sim-op-warp.c */
	SIM_CONTROL_ACTIVEMASK,
	SIM_CONTROL_SPECIAL, /* d = special register `mode` */
	SIM_CONTROL_COUNT,
};
sim_op sim_op_control(enum sim_control control);
/* What a call goes to; NULL: no function has that address. */
const struct sim_function *sim_call_target(struct sim_thread *t, const struct sim_insn *i);

enum sim_special {
	SIM_SREG_TID,
	SIM_SREG_TID_Y,
	SIM_SREG_TID_Z,
	SIM_SREG_NTID,
	SIM_SREG_NTID_Y,
	SIM_SREG_NTID_Z,
	SIM_SREG_CTAID,
	SIM_SREG_CTAID_Y,
	SIM_SREG_CTAID_Z,
	SIM_SREG_NCTAID,
	SIM_SREG_NCTAID_Y,
	SIM_SREG_NCTAID_Z,
	SIM_SREG_LANEID,
	SIM_SREG_WARPID,
	SIM_SREG_NWARPID,
	SIM_SREG_SMID,
	SIM_SREG_NSMID,
	SIM_SREG_GRIDID,
	SIM_SREG_CLOCK,
	SIM_SREG_CLOCK_HI,
	SIM_SREG_CLOCK64,
	SIM_SREG_GLOBALTIMER,
	SIM_SREG_GLOBALTIMER_LO,
	SIM_SREG_GLOBALTIMER_HI,
	SIM_SREG_LANEMASK_EQ,
	SIM_SREG_LANEMASK_LE,
	SIM_SREG_LANEMASK_LT,
	SIM_SREG_LANEMASK_GE,
	SIM_SREG_LANEMASK_GT,
	SIM_SREG_DYNAMIC_SHARED,
	SIM_SREG_TOTAL_SHARED,
	SIM_SREG_ZERO,
	SIM_SREG_ONE,
	SIM_SREG_COUNT,
};
/* "%tid.x" -> a value of enum sim_special, or -1. */
int sim_special_from_name(const char *name, size_t length);

/* sim-op-warp.c: details of the kinds, in mode >> 8 */
enum {
	SIM_SHFL_UP,
	SIM_SHFL_DOWN,
	SIM_SHFL_BFLY,
	SIM_SHFL_IDX
};
enum {
	SIM_VOTE_ALL,
	SIM_VOTE_ANY,
	SIM_VOTE_UNI,
	SIM_VOTE_BALLOT
};
enum {
	SIM_MATCH_ANY,
	SIM_MATCH_ALL
};
enum {
	SIM_REDUX_ADD,
	SIM_REDUX_MIN,
	SIM_REDUX_MAX,
	SIM_REDUX_UMIN,
	SIM_REDUX_UMAX,
	SIM_REDUX_AND,
	SIM_REDUX_OR,
	SIM_REDUX_XOR
};
enum {
	SIM_MATRIX_TRANSPOSED = 4
}; /* with the matrix's number, 0-3; a: offset of a row in shared memory, width is added */
/* a: value (or predicate), b and c: shfl's second and third operands, e: destination predicate;
 * `bits` has the register of the mask */
const struct sim_insn *sim_warp(struct sim_thread *t, const struct sim_insn *i);
/* Completes the group that t belongs to if all lanes of its mask are there. */
void sim_warp_check(struct sim_thread *t);
