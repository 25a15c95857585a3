/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for arithmetic and comparisons (emitter.h).
 *
 * Arithmetic and comparisons. Where LLVM's operations have no defined result (division by 0,
 * INT_MIN / -1, shifts by the width or more), the operand is replaced by one that has, and the
 * result chosen after.
 */

#include <llvm-c/Core.h>

#include "emitter.h"
#include "daemon/translator/check/value.h"

/* The second operand in the operation's width. */
static LLVMValueRef operand(struct emitter *e, const struct bpf_insn *insn, LLVMTypeRef type) {
	if (INSN_SOURCE(insn->code) == BPF_X)
		return LLVMBuildTrunc(e->builder, emit_get(e, insn->src_reg), type, "");
	return LLVMConstInt(type, (uint64_t)(int64_t)insn->imm, true);
}

static LLVMValueRef unsigned_division(struct emitter *e, LLVMValueRef a, LLVMValueRef b,
				      bool modulo) {
	LLVMTypeRef type = LLVMTypeOf(a);
	LLVMValueRef zero = LLVMConstInt(type, 0, false);
	LLVMValueRef by_zero = LLVMBuildICmp(e->builder, LLVMIntEQ, b, zero, "");
	LLVMValueRef divisor =
		LLVMBuildSelect(e->builder, by_zero, LLVMConstInt(type, 1, false), b, "");

	if (modulo)
		return LLVMBuildSelect(e->builder, by_zero, a,
				       LLVMBuildURem(e->builder, a, divisor, ""), "");
	return LLVMBuildSelect(e->builder, by_zero, zero, LLVMBuildUDiv(e->builder, a, divisor, ""),
			       "");
}

static LLVMValueRef signed_division(struct emitter *e, LLVMValueRef a, LLVMValueRef b,
				    bool modulo) {
	LLVMTypeRef type = LLVMTypeOf(a);
	LLVMValueRef zero = LLVMConstInt(type, 0, false), result;
	LLVMValueRef by_zero = LLVMBuildICmp(e->builder, LLVMIntEQ, b, zero, "");
	LLVMValueRef by_minus = LLVMBuildICmp(e->builder, LLVMIntEQ, b, LLVMConstAllOnes(type), "");
	LLVMValueRef special = LLVMBuildOr(e->builder, by_zero, by_minus, "");
	LLVMValueRef divisor =
		LLVMBuildSelect(e->builder, special, LLVMConstInt(type, 1, false), b, "");

	if (modulo) {
		/* x % 1 == x % -1 == 0 */
		result = LLVMBuildSRem(e->builder, a, divisor, "");
		return LLVMBuildSelect(e->builder, by_zero, a, result, "");
	}
	result = LLVMBuildSelect(e->builder, by_minus, LLVMBuildNeg(e->builder, a, ""),
				 LLVMBuildSDiv(e->builder, a, divisor, ""), "");
	return LLVMBuildSelect(e->builder, by_zero, zero, result, "");
}

static LLVMValueRef byte_swap(struct emitter *e, const struct bpf_insn *insn, LLVMValueRef value) {
	LLVMTypeRef type = emit_int(e, (unsigned)insn->imm / 8);
	bool to_little = INSN_CLASS(insn->code) == BPF_ALU && INSN_SOURCE(insn->code) == BPF_TO_LE;

	value = LLVMBuildTrunc(e->builder, value, type, "");
	if (!to_little) {
		unsigned id = LLVMLookupIntrinsicID("llvm.bswap", 10);
		LLVMValueRef intrinsic = LLVMGetIntrinsicDeclaration(e->module, id, &type, 1);

		value = LLVMBuildCall2(e->builder, LLVMIntrinsicGetType(e->context, id, &type, 1),
				       intrinsic, &value, 1, "");
	}
	return emit_zext(e, value);
}

static LLVMValueRef move(struct emitter *e, const struct bpf_insn *insn, LLVMTypeRef type,
			 LLVMValueRef value) {
	if (insn->off == 0)
		return value;
	value = LLVMBuildTrunc(e->builder, value, emit_int(e, (unsigned)insn->off / 8), "");
	return LLVMBuildSExt(e->builder, value, type, "");
}

static LLVMValueRef compute(struct emitter *e, const struct bpf_insn *insn, LLVMTypeRef type,
			    LLVMValueRef a) {
	unsigned width = LLVMGetIntTypeWidth(type);
	LLVMValueRef b;

	if (INSN_OP(insn->code) == BPF_NEG)
		return LLVMBuildNeg(e->builder, a, "");
	b = operand(e, insn, type);
	switch (INSN_OP(insn->code)) {
	case BPF_ADD:
		return LLVMBuildAdd(e->builder, a, b, "");
	case BPF_SUB:
		return LLVMBuildSub(e->builder, a, b, "");
	case BPF_MUL:
		return LLVMBuildMul(e->builder, a, b, "");
	case BPF_DIV:
		return insn->off ? signed_division(e, a, b, false)
				 : unsigned_division(e, a, b, false);
	case BPF_MOD:
		return insn->off ? signed_division(e, a, b, true)
				 : unsigned_division(e, a, b, true);
	case BPF_OR:
		return LLVMBuildOr(e->builder, a, b, "");
	case BPF_AND:
		return LLVMBuildAnd(e->builder, a, b, "");
	case BPF_XOR:
		return LLVMBuildXor(e->builder, a, b, "");
	case BPF_MOV:
		return move(e, insn, type, b);
	}
	b = LLVMBuildAnd(e->builder, b, LLVMConstInt(type, width - 1, false), "");
	switch (INSN_OP(insn->code)) {
	case BPF_LSH:
		return LLVMBuildShl(e->builder, a, b, "");
	case BPF_RSH:
		return LLVMBuildLShr(e->builder, a, b, "");
	default:
		return LLVMBuildAShr(e->builder, a, b, "");
	}
}

void emit_alu(struct emitter *e, const struct bpf_insn *insn) {
	LLVMTypeRef type = INSN_CLASS(insn->code) == BPF_ALU64 ? e->i64 : e->i32;
	LLVMValueRef value = emit_get(e, insn->dst_reg);

	if (insn_is_byte_order(insn)) {
		emit_set(e, insn->dst_reg, byte_swap(e, insn, value));
		return;
	}
	value = LLVMBuildTrunc(e->builder, value, type, "");
	emit_set(e, insn->dst_reg, emit_zext(e, compute(e, insn, type, value)));
}

/*
 * A program looks whether its lookup found something. It is known already, and said better than by
 * the address, of which the compiler cannot know that it is not 0.
 */
static bool is_null_check(const struct emitter *e, const struct bpf_insn *insn) {
	return (insn->code == (BPF_JMP | BPF_JEQ | BPF_K) ||
		insn->code == (BPF_JMP | BPF_JNE | BPF_K)) &&
	       insn->imm == 0 && e->state->registers[insn->dst_reg].kind == VALUE_MAP_VALUE &&
	       e->state->registers[insn->dst_reg].site != 0;
}

/* Whether a number is the address of a value, as what the analysis knows of it lets it be. */
static LLVMValueRef is_address(struct emitter *e, const struct value *value, LLVMValueRef number) {
	LLVMValueRef found = LLVMConstInt(e->i1, 0, false), zero = emit_const(e, 0), inside;
	uint64_t maps = value_maps(value);

	if (value->kind == VALUE_MAP_VALUE)
		return LLVMBuildICmp(e->builder, LLVMIntNE, number, zero, "");
	for (uint32_t i = 0; i < e->analysis->n_maps; i++) {
		if (!(maps >> i & 1))
			continue;
		inside = LLVMBuildICmp(e->builder, LLVMIntULT,
				       LLVMBuildSub(e->builder, number, e->map[i].base, ""),
				       emit_const(e, e->layouts[i].layout.data_size), "");
		inside =
			LLVMBuildAnd(e->builder, inside,
				     LLVMBuildICmp(e->builder, LLVMIntNE, e->map[i].base, zero, ""),
				     "");
		found = LLVMBuildOr(e->builder, found, inside, "");
	}
	return found;
}

/*
 * Whether 32-bit operands are the same. The kernel's verifier takes for granted that the low half
 * of an address is not 0 either, and does not look at what comes if it is; on a GPU memory often
 * begins at such an address. So an address is not the same as 0, but a number may be.
 */
static LLVMValueRef halves_are_equal(struct emitter *e, const struct bpf_insn *insn) {
	const struct value *x = e->state->registers + insn->dst_reg,
			   *y = e->state->registers + insn->src_reg;
	bool reg = INSN_SOURCE(insn->code) == BPF_X;
	LLVMValueRef whole = emit_get(e, insn->dst_reg), zero = LLVMConstInt(e->i32, 0, false);
	LLVMValueRef a = LLVMBuildTrunc(e->builder, whole, e->i32, "");
	LLVMValueRef b = operand(e, insn, e->i32), address;
	LLVMValueRef equal = LLVMBuildICmp(e->builder, LLVMIntEQ, a, b, "");

	if (!(value_maps(x) | (reg ? value_maps(y) : 0)) || (!reg && insn->imm != 0))
		return equal;
	if (x->kind == VALUE_MAP_VALUE && !reg)
		return LLVMBuildICmp(e->builder, LLVMIntEQ, whole, emit_const(e, 0), "");
	address = is_address(e, x, whole);
	if (reg)
		address = LLVMBuildOr(e->builder, address,
				      is_address(e, y, emit_get(e, insn->src_reg)), "");
	address = LLVMBuildAnd(e->builder, address,
			       LLVMBuildICmp(e->builder, LLVMIntEQ, a, zero, ""), "");
	return LLVMBuildAnd(e->builder, equal, LLVMBuildNot(e->builder, address, ""), "");
}

LLVMValueRef emit_condition(struct emitter *e, const struct bpf_insn *insn) {
	static const LLVMIntPredicate predicates[] = {
		[BPF_JEQ >> 4] = LLVMIntEQ,   [BPF_JGT >> 4] = LLVMIntUGT,
		[BPF_JGE >> 4] = LLVMIntUGE,  [BPF_JNE >> 4] = LLVMIntNE,
		[BPF_JSGT >> 4] = LLVMIntSGT, [BPF_JSGE >> 4] = LLVMIntSGE,
		[BPF_JLT >> 4] = LLVMIntULT,  [BPF_JLE >> 4] = LLVMIntULE,
		[BPF_JSLT >> 4] = LLVMIntSLT, [BPF_JSLE >> 4] = LLVMIntSLE,
	};
	LLVMTypeRef type = INSN_CLASS(insn->code) == BPF_JMP ? e->i64 : e->i32;
	LLVMValueRef a, b;

	if (insn_is_may_goto(insn))
		return emit_may_goto(e);
	if (is_null_check(e, insn)) {
		a = LLVMBuildLoad2(e->builder, e->i1,
				   emit_found(e, e->state->registers[insn->dst_reg].site), "");
		return INSN_OP(insn->code) == BPF_JNE ? a : LLVMBuildNot(e->builder, a, "");
	}
	if (type == e->i32 && (INSN_OP(insn->code) == BPF_JEQ || INSN_OP(insn->code) == BPF_JNE)) {
		a = halves_are_equal(e, insn);
		return INSN_OP(insn->code) == BPF_JEQ ? a : LLVMBuildNot(e->builder, a, "");
	}
	a = LLVMBuildTrunc(e->builder, emit_get(e, insn->dst_reg), type, "");
	b = operand(e, insn, type);
	if (INSN_OP(insn->code) == BPF_JSET)
		return LLVMBuildICmp(e->builder, LLVMIntNE, LLVMBuildAnd(e->builder, a, b, ""),
				     LLVMConstInt(type, 0, false), "");
	return LLVMBuildICmp(e->builder, predicates[INSN_OP(insn->code) >> 4], a, b, "");
}
