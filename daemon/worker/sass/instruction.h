/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One machine instruction: 128 bits. What is in it that a rewriter needs: opcode, predicates,
 * control bits, fields that name registers, targets of branches, offsets into constant banks.
 *
 * Which fields of an opcode name registers says the table of its architecture, which is made by
 * changing fields and asking NVIDIA's disassembler (make-table.py). An opcode without a row is not
 * understood.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SASS_WORD_SIZE 16
#define SASS_ZERO_REGISTER 255 /* RZ: reads as 0 */
#define SASS_ZERO_UNIFORM 63 /* URZ */
#define SASS_TRUE_PREDICATE 7 /* PT, UPT */
#define SASS_NO_SCOREBOARD 7
#define SASS_ALL_SCOREBOARDS 0x3f /* as a mask of those to wait for */

struct sass_word {
	uint64_t lo, hi;
};

/* Fields of 8 bits that may name a register, by their first bit. */
enum sass_field {
	SASS_F16,
	SASS_F24,
	SASS_F32,
	SASS_F40,
	SASS_F64,
	_SASS_FIELDS,
};

/* Fields of 3 bits that may name a predicate, a bit each; results are in 81 and 84. */
#define SASS_P68 (1 << 0)
#define SASS_P77 (1 << 1)
#define SASS_P81 (1 << 2)
#define SASS_P84 (1 << 3)
#define SASS_P87 (1 << 4)

/* What an instruction is. */
enum sass_flag {
	SASS_VARIABLE =
		1 << 0, /* its time varies: scoreboards tell when sources are read, results there */
	SASS_ASYNC = 1 << 1, /* goes on behind scoreboards, with up to 128 registers in a row */
	SASS_WIDE = 1 << 2, /* reads more than four uniform registers in a row */
	SASS_GLOBAL = 1 << 3, /* memory; bits 73-75 are the size */
	SASS_CONSTANT = 1 << 4, /* reads a constant bank: bank in bits 54-58, offset in 38-53 */
	SASS_UGUARD = 1 << 5, /* guarded by a uniform predicate */
	SASS_URB91 = 1 << 6, /* its uniform register is one only where bit 91 is set */
	SASS_PROBE = 1 << 7, /* may be in a probe */
	SASS_BRANCH = 1 << 8,
	SASS_CALL = 1 << 9,
	SASS_RETURN = 1 << 10,
	SASS_INDIRECT = 1 << 11, /* branches by a table */
	SASS_SYNC = 1 << 12, /* BSSY: names where threads meet again */
	SASS_EXIT = 1 << 13,
	SASS_NOP = 1 << 14,
	SASS_SETMAXREG = 1 << 15, /* changes how many registers the warp has */
	SASS_LANES = 1 << 16, /* its uniform result depends on which threads are active */
	SASS_SIZED =
		1 << 18, /* an access: address in F24, and a value whose size is in bits 73-75 */
	SASS_LATE = 1 << 19, /* its result may come after a branch was taken */
	SASS_ALL = 1 << 20, /* reads or writes any predicates */
	SASS_NO_RESULT = 1 << 21, /* F16 is a source, as in no other instruction */
	SASS_SWITCH = 1 << 17, /* other threads of the warp may run before those behind it */
};

struct sass_opcode {
	uint16_t opcode;
	uint8_t registers; /* 1 << enum sass_field: fields that name registers, */
	uint8_t uniform; /* uniform registers, */
	uint8_t barriers; /* convergence barriers (4 bits) */
	uint8_t predicates; /* fields that name predicates (SASS_P68 and its like), */
	uint8_t uniform_predicates; /* and uniform ones */
	uint32_t flags; /* enum sass_flag */
	char name[14];
};

/* How a target is written: so many bits from `low_at`, the others from `high_at`. It is relative to
 * the next instruction, in units of so many bytes. */
struct sass_target {
	uint8_t low_at, low_bits, high_at, high_bits, unit;
};

/* An instruction that moves a number of 32 bits, from bit 32 on, into a register, if some of its
 * fields are RZ. */
struct sass_number {
	uint16_t opcode; /* 0: behind the last one */
	bool zero_f24, zero_f64;
};

struct sass_arch {
	uint32_t sm; /* 90 */
	const struct sass_opcode *opcodes; /* by number */
	size_t n_opcodes;
	struct sass_target branch, sync;
	struct sass_word first; /* every kernel's first instruction, without control bits */
	struct sass_word bra, bssy, bsync, exit, nop; /* unpredicated, with plain control bits */
	const struct sass_number *numbers;
	uint16_t mark; /* opcode of PMTRIG, which ends probes (probe.h) */
	uint64_t exit_lo, exit_hi; /* bits of an EXIT that may differ: predicates and control */
	uint32_t parameters; /* where parameters begin in constant bank 0 */
	uint32_t registers; /* the largest count; a count has two more than may be named */
	uint32_t granule; /* registers of a thread are handed out in so many */
	uint32_t file; /* registers of a multiprocessor */
	bool has_run; /* twins for it have run on a GPU: they may be made without being asked for */
};

/* NULL: machine code for it is not understood here. */
const struct sass_arch *sass_arch_find(uint32_t sm);

/* The row of a word. NULL: it is not understood. */
const struct sass_opcode *sass_opcode_find(const struct sass_arch *arch, struct sass_word word);

struct sass_word sass_read(const uint8_t *text, uint64_t offset);
void sass_write(uint8_t *text, uint64_t offset, struct sass_word word);

/* A field of at most 64 bits, which may lie across the middle. */
uint64_t sass_bits(struct sass_word word, unsigned at, unsigned n);
struct sass_word sass_set_bits(struct sass_word word, unsigned at, unsigned n, uint64_t value);

/* The value of a field that may name a register; for uniform registers without their two upper
 * bits. */
unsigned sass_field(struct sass_word word, enum sass_field field);
struct sass_word sass_set_field(struct sass_word word, enum sass_field field, unsigned value);

/* Whether the uniform registers of its row are meant in this word (SASS_URB91). */
bool sass_has_uniform(const struct sass_opcode *opcode, struct sass_word word);

/* The predicates that a word names in some fields, or as its guard, a bit each; and uniform ones.
 */
unsigned sass_predicates(const struct sass_opcode *opcode, struct sass_word word, unsigned fields);
unsigned sass_guard(const struct sass_opcode *opcode, struct sass_word word);
unsigned sass_uniform_predicates(const struct sass_opcode *opcode, struct sass_word word);

/* Gives predicates that a word names, its guard among them, other numbers. */
struct sass_word sass_map_predicates(const struct sass_opcode *opcode, struct sass_word word,
				     const uint8_t numbers[8]);

/* The same for uniform ones. */
struct sass_word sass_map_uniform_predicates(const struct sass_opcode *opcode,
					     struct sass_word word, const uint8_t numbers[8]);

/* Control bits. */
static inline unsigned sass_stall(struct sass_word word) {
	return word.hi >> 41 & 15;
}

static inline unsigned sass_write_scoreboard(struct sass_word word) {
	return word.hi >> 46 & 7;
}

static inline unsigned sass_read_scoreboard(struct sass_word word) {
	return word.hi >> 49 & 7;
}

static inline unsigned sass_wait_mask(struct sass_word word) {
	return word.hi >> 52 & 0x3f;
}

struct sass_word sass_with_wait(struct sass_word word, unsigned mask);

/* Whether a branch or call names its target by a distance, and where it then is. */
bool sass_target(const struct sass_arch *arch, const struct sass_opcode *opcode,
		 struct sass_word word, uint64_t at, uint64_t *target);

/* An unpredicated branch, and one in place of an EXIT, with its predicates and control bits. */
struct sass_word sass_branch(const struct sass_arch *arch, uint64_t at, uint64_t target);
struct sass_word sass_branch_for_exit(const struct sass_arch *arch, struct sass_word exit,
				      uint64_t at, uint64_t target);

/* BSSY and BSYNC of a convergence barrier. */
struct sass_word sass_bssy(const struct sass_arch *arch, unsigned barrier, uint64_t at,
			   uint64_t target);
struct sass_word sass_bsync(const struct sass_arch *arch, unsigned barrier, unsigned wait);

/* Constant operands. */
static inline unsigned sass_constant_bank(struct sass_word word) {
	return word.lo >> 54 & 0x1f;
}

static inline unsigned sass_constant_offset(struct sass_word word) {
	return word.lo >> 38 & 0xffff;
}

struct sass_word sass_with_constant_offset(struct sass_word word, unsigned offset);
