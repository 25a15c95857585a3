/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The lattice of values: which value results where two ways of control meet, or from an operation.
 */

#include "analysis.h"

struct value value_scalar(unsigned align, uint64_t maps);
struct value value_const(uint64_t bits);

/* A number that is uniform, unless it varies: `which` of those that the instruction `site` makes.
 */
struct value value_same(enum value_uniform uniform, uint32_t site, uint32_t which);

/* The maps that a value may point into. */
uint64_t value_maps(const struct value *value);

/*
 * A symbolic address, which is not in memory. It can be kept, passed on, and used for what it
 * stands for.
 */
bool value_is_symbolic(const struct value *value);

/* What holds if either holds. `slot`: of the stack, where single bytes may be known. */
struct value value_join(const struct value *a, const struct value *b, bool slot);

/* The result of an arithmetic instruction (BPF_OP of `insn`), which is `site`, on two values. */
struct value value_alu(const struct bpf_insn *insn, uint32_t site, const struct value *a,
		       const struct value *b);

/* Whether a branch (BPF_OP of `insn`) on two constants is taken. */
bool value_branches(const struct bpf_insn *insn, uint64_t a, uint64_t b);

/* Reads `n` bytes at byte `at` of a slot, widened as the instruction says. */
struct value value_slot_read(const struct value *slot, unsigned at, unsigned n, bool sign);

/* Writes the low `n` bytes of a value to byte `at` of a slot. */
void value_slot_write(struct value *slot, unsigned at, unsigned n, const struct value *value);
