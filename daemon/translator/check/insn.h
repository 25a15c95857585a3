/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The instruction set of RFC 9669, because <linux/bpf.h> of the build machine may be too old for
 * it.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/helper.h"

#define INSN_CLASS(code) ((code) & 0x07)
#define INSN_OP(code) ((code) & 0xf0)
#define INSN_SOURCE(code) ((code) & 0x08)
#define INSN_SIZE(code) ((code) & 0x18)
#define INSN_MODE(code) ((code) & 0xe0)

#define INSN_MODE_IMM 0x00
#define INSN_MODE_MEM 0x60
#define INSN_MODE_MEMSX 0x80
#define INSN_MODE_ATOMIC 0xc0

#define INSN_JCOND 0xe0 /* may_goto */
#define INSN_LD_IMM64 0x18

/* Values of src_reg in a 64-bit immediate load, beyond those of old headers. */
#define INSN_PSEUDO_MAP_FD 1
#define INSN_PSEUDO_MAP_VALUE 2
#define INSN_PSEUDO_BTF_ID 3
#define INSN_PSEUDO_FUNC 4
#define INSN_PSEUDO_MAP_IDX 5
#define INSN_PSEUDO_MAP_IDX_VALUE 6

/* In place of a map's index: the variables of a thread. */
#define INSN_THREAD 64

/* Values of src_reg in a call. */
#define INSN_CALL_HELPER 0
#define INSN_CALL_BPF 1
#define INSN_CALL_KFUNC 2

#define INSN_STACK_SIZE 512
#define INSN_FRAMES_MAX 8

/* The kernel's BPF_MAX_LOOPS: of a bpf_loop, of a bpf_iter_num, and of all may_goto of a program.
 */
#define INSN_LOOPS_MAX (8 * 1024 * 1024)

/* Bytes that a memory instruction moves. */
static inline unsigned insn_bytes(uint8_t code) {
	switch (INSN_SIZE(code)) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

static inline bool insn_is_alu(const struct bpf_insn *insn) {
	return INSN_CLASS(insn->code) == BPF_ALU || INSN_CLASS(insn->code) == BPF_ALU64;
}

static inline bool insn_is_jump_class(const struct bpf_insn *insn) {
	return INSN_CLASS(insn->code) == BPF_JMP || INSN_CLASS(insn->code) == BPF_JMP32;
}

static inline bool insn_is_exit(const struct bpf_insn *insn) {
	return insn->code == (BPF_JMP | BPF_EXIT);
}

static inline bool insn_is_call(const struct bpf_insn *insn) {
	return insn->code == (BPF_JMP | BPF_CALL);
}

static inline bool insn_is_bpf_call(const struct bpf_insn *insn) {
	return insn_is_call(insn) && insn->src_reg == INSN_CALL_BPF;
}

static inline bool insn_is_kfunc_call(const struct bpf_insn *insn) {
	return insn_is_call(insn) && insn->src_reg == INSN_CALL_KFUNC;
}

/* A call of bpf_loop, which calls a function of the program. */
static inline bool insn_is_loop_call(const struct bpf_insn *insn) {
	return insn_is_call(insn) && insn->src_reg == INSN_CALL_HELPER &&
	       insn->imm == HELPER_ID_LOOP;
}

/* may_goto: falls through as long as the program's budget lasts, then jumps. */
static inline bool insn_is_may_goto(const struct bpf_insn *insn) {
	return insn->code == (BPF_JMP | INSN_JCOND);
}

/* A jump that is always taken, `ja` with 16 bits of offset or 32 (gotol). */
static inline bool insn_is_goto(const struct bpf_insn *insn) {
	return insn->code == (BPF_JMP | BPF_JA) || insn->code == (BPF_JMP32 | BPF_JA);
}

/* A jump that may fall through. */
static inline bool insn_is_branch(const struct bpf_insn *insn) {
	return insn_is_jump_class(insn) && !insn_is_goto(insn) && !insn_is_exit(insn) &&
	       !insn_is_call(insn);
}

static inline bool insn_is_ld_imm64(const struct bpf_insn *insn) {
	return insn->code == INSN_LD_IMM64;
}

static inline bool insn_is_atomic(const struct bpf_insn *insn) {
	return INSN_CLASS(insn->code) == BPF_STX && INSN_MODE(insn->code) == INSN_MODE_ATOMIC;
}

/* Where a jump at `pc` leads; valid for goto and branch. */
static inline int64_t insn_jump_target(const struct bpf_insn *insn, int64_t pc) {
	return pc + 1 +
	       (insn->code == (BPF_JMP32 | BPF_JA) ? (int64_t)insn->imm : (int64_t)insn->off);
}

/* Where a BPF-to-BPF call at `pc` leads. */
static inline int64_t insn_call_target(const struct bpf_insn *insn, int64_t pc) {
	return pc + 1 + (int64_t)insn->imm;
}

/* A 64-bit load of the address of a function of the program. */
static inline bool insn_is_function(const struct bpf_insn *insn) {
	return insn_is_ld_imm64(insn) && insn->src_reg == INSN_PSEUDO_FUNC;
}

/* A 64-bit load of an address in the variables of a thread. */
static inline bool insn_is_thread(const struct bpf_insn *insn) {
	return insn_is_ld_imm64(insn) && insn->src_reg == INSN_PSEUDO_MAP_IDX_VALUE &&
	       insn->imm == INSN_THREAD;
}

/* The number that stands for a function's address: not 0, as the verifier knows of the address. */
static inline uint64_t insn_function_number(const struct bpf_insn *insn, int64_t pc) {
	return (uint64_t)insn_call_target(insn, pc) + 1;
}

static inline uint64_t insn_imm64(const struct bpf_insn *insn) {
	return (uint32_t)insn[0].imm | (uint64_t)(uint32_t)insn[1].imm << 32;
}

/* Bits to swap or keep in a byte-order instruction. */
static inline bool insn_is_byte_order(const struct bpf_insn *insn) {
	return insn_is_alu(insn) && INSN_OP(insn->code) == BPF_END;
}
