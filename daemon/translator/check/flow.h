/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control flow of a program with its subprograms inlined. Each call is a *frame* of its own: a
 * copy of the function's blocks with registers and stack of its own. So every later step sees one
 * function, and what a pointer into a caller's stack means is known in the callee.
 */

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define FLOW_NONE UINT32_MAX

struct flow_frame {
	uint32_t parent; /* the caller's frame, or FLOW_NONE */
	uint32_t depth; /* 0: the program itself */
	uint32_t entry; /* block */
	uint32_t return_block; /* of the parent, or FLOW_NONE */
	bool loop; /* bpf_loop calls it, perhaps not at all, perhaps again */
};

/* Instructions [start, end) that run one after the other; control leaves after the last. */
struct flow_block {
	uint32_t frame;
	uint32_t start, end;
	/*
	 * Branch: taken, then not taken. BPF call: the callee's entry. Exit of a callee: the
	 * caller's block after the call. Exit of the program: FLOW_NONE. Call of bpf_loop: the
	 * callback's entry, then the block after the call; exit of a callback: the same two.
	 */
	uint32_t successors[2];
};

struct flow {
	const struct bpf_insn *insns; /* borrowed */
	size_t n_insns;
	struct flow_frame *frames; /* 0 is the program's */
	size_t n_frames;
	struct flow_block *blocks; /* 0 is the program's entry */
	size_t n_blocks;
};

/*
 * Builds the flow of a validated program. Returns 0, TRANSLATE_E_PROGRAM (calls nest too deep, too
 * large) with `fault` filled in, or -ENOMEM. flow_deinit() in any case.
 */
int flow_init(struct flow *flow, const struct bpf_insn *insns, size_t n_insns, struct fault *fault);
void flow_deinit(struct flow *flow);

/* The last instruction of a block; not the second half of a 64-bit load. */
size_t flow_block_last(const struct flow *flow, const struct flow_block *block);
