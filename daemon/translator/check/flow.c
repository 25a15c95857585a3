/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Builds the control flow of a program with its subprograms inlined (flow.h).
 *
 * First the program as it stands: where blocks begin, which belong to which function. Then copies:
 * one of the entry function, and wherever a block ends in a call, one of the callee. A recursive
 * program is one whose frames nest without end, so the limit of the kernel (8) catches it; the
 * number of instructions bounds the copies.
 */

#include "flow.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "callback.h"
#include "insn.h"
#include "daemon/translator/translate.h"

struct flow_builder {
	struct flow *flow;
	struct fault *fault;
	bool *leaders; /* one an instruction: a block begins here */
	bool *functions; /* a function begins here */
	uint32_t *callbacks; /* of each call of bpf_loop, see callback.h; NULL: there is none */
	uint32_t *block_of; /* of a leader: number of its block within its function */
	size_t frames_allocated, blocks_allocated;
	size_t n_expanded; /* instructions in all copies */
};

static void builder_deinit(struct flow_builder *b) {
	free(b->leaders);
	free(b->functions);
	free(b->block_of);
	free(b->callbacks);
}

static size_t insn_slots(const struct bpf_insn *insn) {
	return insn_is_ld_imm64(insn) ? 2 : 1;
}

static void mark_leaders(struct flow_builder *b) {
	const struct flow *f = b->flow;

	b->leaders[0] = b->functions[0] = true;
	for (size_t pc = 0; pc < f->n_insns; pc += insn_slots(f->insns + pc)) {
		const struct bpf_insn *insn = f->insns + pc;
		bool ends = true;

		if (insn_is_bpf_call(insn) || insn_is_function(insn)) {
			b->functions[insn_call_target(insn, (int64_t)pc)] = true;
			b->leaders[insn_call_target(insn, (int64_t)pc)] = true;
			ends = insn_is_call(insn);
		} else if (insn_is_goto(insn) || insn_is_branch(insn)) {
			b->leaders[insn_jump_target(insn, (int64_t)pc)] = true;
		} else {
			ends = insn_is_exit(insn) || insn_is_loop_call(insn);
		}
		if (ends && pc + 1 < f->n_insns)
			b->leaders[pc + 1] = true;
	}
}

static void number_blocks(struct flow_builder *b) {
	uint32_t number = 0;

	for (size_t pc = 0; pc < b->flow->n_insns; pc++) {
		if (b->functions[pc])
			number = 0;
		if (b->leaders[pc])
			b->block_of[pc] = number++;
	}
}

static int reserve_block(struct flow_builder *b) {
	struct flow *f = b->flow;
	size_t n = b->blocks_allocated ? 2 * b->blocks_allocated : 64;
	struct flow_block *blocks;

	if (f->n_blocks < b->blocks_allocated)
		return 0;
	blocks = reallocarray(f->blocks, n, sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	f->blocks = blocks;
	b->blocks_allocated = n;
	return 0;
}

static int reserve_frame(struct flow_builder *b) {
	struct flow *f = b->flow;
	size_t n = b->frames_allocated ? 2 * b->frames_allocated : 8;
	struct flow_frame *frames;

	if (f->n_frames < b->frames_allocated)
		return 0;
	frames = reallocarray(f->frames, n, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	f->frames = frames;
	b->frames_allocated = n;
	return 0;
}

/* The blocks of the function at `start`, without what leaves them. */
static int copy_blocks(struct flow_builder *b, size_t start, uint32_t frame) {
	struct flow *f = b->flow;
	size_t end = start, pc;
	int r;

	do {
		r = reserve_block(b);
		if (r)
			return r;
		for (pc = end, end++; end < f->n_insns && !b->leaders[end]; end++)
			;
		f->blocks[f->n_blocks++] = (struct flow_block){
			.frame = frame,
			.start = (uint32_t)pc,
			.end = (uint32_t)end,
			.successors = { FLOW_NONE, FLOW_NONE },
		};
	} while (end < f->n_insns && !b->functions[end]);
	b->n_expanded += end - start;
	if (b->n_expanded > TRANSLATE_INSNS_MAX)
		return fault_whole(b->fault, "more than %u instructions once its calls are inlined",
				   TRANSLATE_INSNS_MAX);
	return 0;
}

size_t flow_block_last(const struct flow *f, const struct flow_block *block) {
	size_t pc = block->start, last = pc;

	for (; pc < block->end; pc += insn_slots(f->insns + pc))
		last = pc;
	return last;
}

/*
 * Copies the function at `start`, which the call at `call_pc` calls, and what it calls. Recursion
 * is bounded by the depth of frames.
 */
static int copy_function(struct flow_builder *b, size_t start, size_t call_pc, uint32_t parent,
			 uint32_t return_block);

/* What follows a block that ends in a call: a copy of the callee, and then block `after`. */
static int copy_callee(struct flow_builder *b, size_t pc, uint32_t frame, uint32_t after,
		       uint32_t to[static 2]) {
	struct flow *f = b->flow;
	size_t start = (size_t)insn_call_target(f->insns + pc, (int64_t)pc);

	to[0] = (uint32_t)f->n_blocks;
	if (insn_is_loop_call(f->insns + pc)) {
		if (b->callbacks[pc] == CALLBACK_NONE)
			return fault_at(b->fault, pc,
					"bpf_loop (%d): R2 is not always the same function of the "
					"program",
					HELPER_ID_LOOP);
		start = b->callbacks[pc];
		to[1] = after;
	}
	return copy_function(b, start, pc, frame, after);
}

static int copy_function(struct flow_builder *b, size_t start, size_t call_pc, uint32_t parent,
			 uint32_t return_block) {
	struct flow *f = b->flow;
	uint32_t depth = parent == FLOW_NONE ? 0 : f->frames[parent].depth + 1;
	uint32_t entry = (uint32_t)f->n_blocks, frame = (uint32_t)f->n_frames, end;
	int r;

	if (depth >= INSN_FRAMES_MAX)
		return fault_at(b->fault, call_pc, "calls nest deeper than %d frames",
				INSN_FRAMES_MAX);
	r = reserve_frame(b);
	if (r)
		return r;
	f->frames[f->n_frames++] = (struct flow_frame){
		.parent = parent,
		.depth = depth,
		.entry = entry,
		.return_block = return_block,
		.loop = depth && insn_is_loop_call(f->insns + call_pc),
	};
	r = copy_blocks(b, start, frame);
	if (r)
		return r;

	end = (uint32_t)f->n_blocks;
	for (uint32_t i = entry; i < end; i++) {
		size_t pc = flow_block_last(f, f->blocks + i);
		const struct bpf_insn *insn = f->insns + pc;
		uint32_t to[2] = { FLOW_NONE, FLOW_NONE };

		if (insn_is_exit(insn)) {
			to[f->frames[frame].loop] = return_block;
			if (f->frames[frame].loop)
				to[0] = entry;
		} else if (insn_is_bpf_call(insn) || insn_is_loop_call(insn)) {
			r = copy_callee(b, pc, frame, i + 1, to);
			if (r)
				return r;
		} else if (insn_is_goto(insn) || insn_is_branch(insn)) {
			to[0] = entry + b->block_of[insn_jump_target(insn, (int64_t)pc)];
			if (insn_is_branch(insn))
				to[1] = i + 1;
		} else {
			to[0] = i + 1;
		}
		memcpy(f->blocks[i].successors, to, sizeof(to));
	}
	return 0;
}

int flow_init(struct flow *flow, const struct bpf_insn *insns, size_t n_insns,
	      struct fault *fault) {
	struct flow_builder b = { .flow = flow, .fault = fault };
	int r;

	*flow = (struct flow){ .insns = insns, .n_insns = n_insns };
	b.leaders = calloc(n_insns, sizeof(*b.leaders));
	b.functions = calloc(n_insns, sizeof(*b.functions));
	b.block_of = calloc(n_insns, sizeof(*b.block_of));
	if (!b.leaders || !b.functions || !b.block_of) {
		builder_deinit(&b);
		return -ENOMEM;
	}
	mark_leaders(&b);
	number_blocks(&b);
	r = callback_find(insns, n_insns, &b.callbacks);
	if (!r)
		r = copy_function(&b, 0, 0, FLOW_NONE, FLOW_NONE);
	builder_deinit(&b);
	return r;
}

void flow_deinit(struct flow *flow) {
	free(flow->frames);
	free(flow->blocks);
	*flow = (struct flow){ 0 };
}
