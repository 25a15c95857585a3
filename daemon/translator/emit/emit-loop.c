/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for loops whose number of rounds is not known in advance (emitter.h).
 * Each has the bound that Linux gives it. bpf_loop and iterators refuse more than INSN_LOOPS_MAX
 * rounds. All may_goto of a program together jump that often at most in one run.
 */

#include <errno.h>

#include "emitter.h"
#include "lib/bpf/helper-name.h"

void emit_loop_variables(struct emitter *e) {
	for (size_t f = 0; f < e->flow->n_frames; f++) {
		if (!e->flow->frames[f].loop)
			continue;
		e->loops[f].round = LLVMBuildAlloca(e->builder, e->i64, "");
		e->loops[f].rounds = LLVMBuildAlloca(e->builder, e->i64, "");
	}
	for (size_t i = 0; i < e->flow->n_blocks && !e->budget; i++) {
		if (!insn_is_may_goto(e->flow->insns +
				      flow_block_last(e->flow, e->flow->blocks + i)))
			continue;
		e->budget = LLVMBuildAlloca(e->builder, e->i32, "");
		LLVMBuildStore(e->builder, LLVMConstInt(e->i32, INSN_LOOPS_MAX, false), e->budget);
	}
}

/* Calls the callback, or goes on behind bpf_loop. The context stays in the caller's R3. */
static void emit_round(struct emitter *e, const struct flow_block *block, LLVMValueRef again,
		       LLVMValueRef round) {
	uint32_t callee = e->flow->blocks[block->successors[0]].frame;
	uint32_t caller = e->flow->frames[callee].parent;
	LLVMBasicBlockRef enter = emit_new_block(e, "round");

	for (unsigned i = 0; i < 10; i++) {
		LLVMValueRef value = emit_const(e, 0);

		if (i == 1)
			value = round;
		else if (i == 2)
			value = LLVMBuildLoad2(e->builder, e->i64, e->registers[caller][3], "");
		LLVMBuildStore(e->builder, value, e->registers[callee][i]);
	}
	LLVMBuildCondBr(e->builder, again, enter, e->blocks[block->successors[1]]);
	LLVMPositionBuilderAtEnd(e->builder, enter);
	emit_stack_used(e, callee, true);
	LLVMBuildBr(e->builder, e->blocks[block->successors[0]]);
}

/* bpf_loop(rounds, callback, context, flags) */
void emit_loop_begin(struct emitter *e, const struct flow_block *block) {
	struct emit_loop *loop = e->loops + e->flow->blocks[block->successors[0]].frame;
	LLVMValueRef zero = emit_const(e, 0), bad, result,
		     rounds = emit_zext(e, LLVMBuildTrunc(e->builder, emit_get(e, 1), e->i32, ""));

	bad = LLVMBuildICmp(e->builder, LLVMIntUGT, rounds, emit_const(e, INSN_LOOPS_MAX), "");
	result = LLVMBuildSelect(e->builder, bad, emit_const(e, (uint64_t)(int64_t)-E2BIG), zero,
				 "");
	bad = LLVMBuildICmp(e->builder, LLVMIntNE, emit_get(e, 4), zero, "");
	result = LLVMBuildSelect(e->builder, bad, emit_const(e, (uint64_t)(int64_t)-EINVAL), result,
				 "");
	emit_set(e, 0, result);
	rounds = LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, result, zero, ""),
				 rounds, zero, "");
	LLVMBuildStore(e->builder, zero, loop->round);
	LLVMBuildStore(e->builder, rounds, loop->rounds);
	emit_round(e, block, LLVMBuildICmp(e->builder, LLVMIntNE, rounds, zero, ""), zero);
}

/* A callback of bpf_loop returns: 0 to go on. The caller gets the number of rounds so far. */
void emit_loop_next(struct emitter *e, const struct flow_block *block) {
	const struct emit_loop *loop = e->loops + block->frame;
	uint32_t caller = e->flow->frames[block->frame].parent;
	LLVMValueRef round, more, again;

	round = LLVMBuildLoad2(e->builder, e->i64, loop->round, "");
	round = LLVMBuildAdd(e->builder, round, emit_const(e, 1), "");
	LLVMBuildStore(e->builder, round, loop->round);
	LLVMBuildStore(e->builder, round, e->registers[caller][0]);
	more = LLVMBuildICmp(e->builder, LLVMIntULT, round,
			     LLVMBuildLoad2(e->builder, e->i64, loop->rounds, ""), "");
	again = LLVMBuildICmp(e->builder, LLVMIntEQ, emit_get(e, 0), emit_const(e, 0), "");
	emit_stack_used(e, block->frame, false);
	emit_round(e, block, LLVMBuildAnd(e->builder, again, more, ""), round);
}

/* Whether the budget is used up; if not, it is one less. */
LLVMValueRef emit_may_goto(struct emitter *e) {
	LLVMValueRef budget = LLVMBuildLoad2(e->builder, e->i32, e->budget, ""), gone, less;

	gone = LLVMBuildICmp(e->builder, LLVMIntEQ, budget, LLVMConstInt(e->i32, 0, false), "");
	less = LLVMBuildSub(e->builder, budget, LLVMConstInt(e->i32, 1, false), "");
	LLVMBuildStore(e->builder, LLVMBuildSelect(e->builder, gone, budget, less, ""), e->budget);
	return gone;
}

/* A part of the iterator that R1 points to: the number that it gave last, and where it ends. */
static LLVMValueRef iterator_get(struct emitter *e, int64_t offset) {
	struct emit_address from = emit_address(e, 1, offset);

	return emit_load(e, &from, 4);
}

static void iterator_set(struct emitter *e, LLVMValueRef number, LLVMValueRef end) {
	struct emit_address to = emit_address(e, 1, 0);

	emit_store(e, &to, 4, number);
	to = emit_address(e, 1, 4);
	emit_store(e, &to, 4, end);
}

/* bpf_iter_num_new(iterator, start, end). What is refused is empty. */
static void emit_iterator_new(struct emitter *e) {
	LLVMValueRef start = LLVMBuildTrunc(e->builder, emit_get(e, 2), e->i32, ""),
		     end = LLVMBuildTrunc(e->builder, emit_get(e, 3), e->i32, ""),
		     zero = LLVMConstInt(e->i32, 0, false), bad, result, length;

	length = LLVMBuildSub(e->builder, LLVMBuildSExt(e->builder, end, e->i64, ""),
			      LLVMBuildSExt(e->builder, start, e->i64, ""), "");
	bad = LLVMBuildICmp(e->builder, LLVMIntSGT, length, emit_const(e, INSN_LOOPS_MAX), "");
	result = LLVMBuildSelect(e->builder, bad, emit_const(e, (uint64_t)(int64_t)-E2BIG),
				 emit_const(e, 0), "");
	bad = LLVMBuildICmp(e->builder, LLVMIntSGT, start, end, "");
	result = LLVMBuildSelect(e->builder, bad, emit_const(e, (uint64_t)(int64_t)-EINVAL), result,
				 "");
	bad = LLVMBuildICmp(e->builder, LLVMIntNE, result, emit_const(e, 0), "");
	start = LLVMBuildSub(e->builder, start, LLVMConstInt(e->i32, 1, false), "");
	iterator_set(e, LLVMBuildSelect(e->builder, bad, zero, start, ""),
		     LLVMBuildSelect(e->builder, bad, zero, end, ""));
	emit_set(e, 0, result);
}

/* bpf_iter_num_next(iterator): the address of the next number, or NULL. */
static void emit_iterator_next(struct emitter *e) {
	LLVMValueRef number = iterator_get(e, 0), end = iterator_get(e, 4),
		     zero = LLVMConstInt(e->i32, 0, false), done;

	number = LLVMBuildAdd(e->builder, number, LLVMConstInt(e->i32, 1, false), "");
	done = LLVMBuildICmp(e->builder, LLVMIntSGE, number, end, "");
	iterator_set(e, LLVMBuildSelect(e->builder, done, zero, number, ""),
		     LLVMBuildSelect(e->builder, done, zero, end, ""));
	emit_set(e, 0, LLVMBuildSelect(e->builder, done, emit_const(e, 0), emit_get(e, 1), ""));
}

void emit_kfunc(struct emitter *e, const struct bpf_insn *insn) {
	LLVMValueRef zero = LLVMConstInt(e->i32, 0, false);

	if (insn->imm == KFUNC_ITER_NUM_NEW)
		emit_iterator_new(e);
	else if (insn->imm == KFUNC_ITER_NUM_NEXT)
		emit_iterator_next(e);
	else
		iterator_set(e, zero, zero);
}
