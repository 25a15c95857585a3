/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A plain read-modify-write, `*v += x`, as compilers write it: a load, an addition or subtraction,
 * a store to where the load was, in one block. On a value of a PERCPU map it means "mine alone, no
 * atomic needed"; an SM runs several warps at once, so here it has to become one atomic addition.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/translator/check/flow.h"

struct rmw {
	size_t add, store; /* where they are */
	uint8_t loaded; /* the register that the load wrote */
	uint8_t stored; /* the register that is stored; may be the same */
	bool subtract; /* the operand is taken from the old value */
	bool immediate; /* the operand is the immediate of `add`, otherwise register `operand` */
	uint8_t operand;
	bool wide; /* the addition was one of 64 bits */
};

/* Whether the load at `pc` begins one that ends before `end`. */
bool rmw_match(const struct bpf_insn *insns, size_t pc, size_t end, struct rmw *rmw);

/*
 * Registers of the block's own frame that are read after the end of each block before they are
 * written: bit i for ri. Returns 0 and an array that the caller frees, or -ENOMEM.
 */
int rmw_live_out(const struct flow *flow, uint16_t **live_out);

/* The same after the instruction at `pc` of a block. */
uint16_t rmw_live_after(const struct flow *flow, uint32_t block, uint16_t live_out, size_t pc);
