/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs for tests of the translator, and how its text is looked at. */

#include <string.h>

#include "daemon/translator/check/insn.h"
#include "translate.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define MOVR(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define ADD(d, i) INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define ADDR(d, s) INSN(BPF_ALU64 | BPF_ADD | BPF_X, d, s, 0, 0)
#define LOAD(size, d, s, o) INSN(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define STORE(size, d, s, o) INSN(BPF_STX | BPF_MEM | (size), d, s, o, 0)
#define STOREI(size, d, o, i) INSN(BPF_ST | BPF_MEM | (size), d, 0, o, i)
#define ATOMIC(size, op, d, s, o) INSN(BPF_STX | INSN_MODE_ATOMIC | (size), d, s, o, op)
#define JEQ0(d, o) INSN(BPF_JMP | BPF_JEQ | BPF_K, d, 0, o, 0)
#define CALL(i) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, i)
#define EXIT INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define LD64(d, s, low, high) INSN(INSN_LD_IMM64, d, s, 0, low), INSN(0, 0, 0, 0, high)
#define MAP(d, i) LD64(d, INSN_PSEUDO_MAP_IDX, i, 0)
/* r0 = value for the constant key of map `m`, leave the program if there is none; `n` instructions
 * follow before the end */
#define LOOKUP(m, key, n) \
	STOREI(BPF_W, 10, -4, key), MOVR(2, 10), ADD(2, -4), MAP(1, m), CALL(1), JEQ0(0, n)
#define END MOV(0, 0), EXIT
/* the key at r10 - 4, the value at r10 - 16 */
#define UPDATE(flags) \
	MOVR(2, 10), ADD(2, -4), MOVR(3, 10), ADD(3, -16), MOV(4, flags), MAP(1, 0), CALL(2)

static const struct bpf_insn counter[] = {
	LOOKUP(0, 0, 2),
	MOV(1, 1),
	ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
	END,
};

static const struct translate_map array8 = { "counter", BPF_MAP_TYPE_ARRAY, 4, 8,
					     1,         "__gpuprobe_o1_m0" };

static inline size_t occurrences(const char *text, const char *what) {
	size_t n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}
