/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for atomic instructions (emitter.h).
 *
 * Atomic instructions. On a stack, in a record or in a thread's variables nobody else sees them, so
 * they are plain there and may become registers; in map values they are instructions on global
 * memory; anywhere else the device library finds out when it runs.
 */

#include <stdio.h>

#include "emitter.h"

static const char *operation_name(int32_t imm) {
	switch (imm & ~BPF_FETCH) {
	case BPF_ADD:
		return "add";
	case BPF_OR:
		return "or";
	case BPF_AND:
		return "and";
	case BPF_XOR:
		return "xor";
	case BPF_XCHG & ~BPF_FETCH:
		return "xchg";
	default:
		return "cmpxchg";
	}
}

/* What a plain operation stores. */
static LLVMValueRef stored_value(struct emitter *e, int32_t imm, LLVMValueRef old,
				 LLVMValueRef expected, LLVMValueRef operand) {
	switch (imm & ~BPF_FETCH) {
	case BPF_ADD:
		return LLVMBuildAdd(e->builder, old, operand, "");
	case BPF_OR:
		return LLVMBuildOr(e->builder, old, operand, "");
	case BPF_AND:
		return LLVMBuildAnd(e->builder, old, operand, "");
	case BPF_XOR:
		return LLVMBuildXor(e->builder, old, operand, "");
	case BPF_XCHG & ~BPF_FETCH:
		return operand;
	default:
		return LLVMBuildSelect(e->builder,
				       LLVMBuildICmp(e->builder, LLVMIntEQ, old, expected, ""),
				       operand, old, "");
	}
}

void emit_map_add(struct emitter *e, const struct emit_address *address, unsigned bytes,
		  LLVMValueRef operand, enum value_uniform uniform) {
	static const char *const forms[][2] = {
		[VALUE_VARYING] = { "varying", "uniform" },
		[VALUE_PLACE_UNIFORM] = { "varying_place", "uniform_place" },
		[VALUE_ALWAYS_UNIFORM] = { "varying_constant", "constant" },
	};
	LLVMValueRef args[3] = { address->pointer,
				 LLVMBuildTrunc(e->builder, operand, emit_int(e, bytes), "") };
	bool place = uniform == VALUE_PLACE_UNIFORM && !address->own;
	char name[64];

	if (place)
		args[2] = LLVMBuildICmp(e->builder, LLVMIntNE, e->fields[POINT_UNIFORM / 8],
					emit_const(e, 0), "");
	snprintf(name, sizeof(name), "gpuprobe_add%u_%s%s", bytes * 8,
		 address->own ? "own" : forms[uniform][address->exact],
		 address->system ? "_sys" : "");
	emit_call(e, name, args, place ? 3 : 2);
}

void emit_atomic(struct emitter *e, const struct bpf_insn *insn) {
	unsigned bytes = insn_bytes(insn->code), n = 0;
	LLVMTypeRef type = emit_int(e, bytes);
	struct emit_address address = emit_address(e, insn->dst_reg, insn->off);
	LLVMValueRef operand = LLVMBuildTrunc(e->builder, emit_get(e, insn->src_reg), type, "");
	LLVMValueRef expected = LLVMBuildTrunc(e->builder, emit_get(e, 0), type, "");
	LLVMValueRef old, args[3];
	bool fetch = insn->imm & BPF_FETCH, global = address.kind == VALUE_MAP_VALUE;
	char name[64];

	if (address.kind == VALUE_STACK || address.kind == VALUE_RECORD ||
	    address.kind == VALUE_THREAD) {
		old = emit_load(e, &address, bytes);
		emit_store(e, &address, bytes, stored_value(e, insn->imm, old, expected, operand));
	} else if (global && insn->imm == BPF_ADD) {
		emit_map_add(e, &address, bytes, operand,
			     value_uniform(e->state->registers + insn->src_reg));
		return;
	} else {
		args[n++] = address.pointer;
		if (insn->imm == BPF_CMPXCHG)
			args[n++] = expected;
		args[n++] = operand;
		if (insn->imm != BPF_CMPXCHG && (fetch || !global))
			args[n++] = LLVMConstInt(e->i1, fetch, false);
		snprintf(name, sizeof(name), "gpuprobe_%s%s%u%s",
			 !global ? "generic_"
			 : fetch ? "fetch_"
				 : "",
			 operation_name(insn->imm), bytes * 8, address.system ? "_sys" : "");
		old = emit_call(e, name, args, n);
	}
	if (fetch)
		emit_set(e, insn->imm == BPF_CMPXCHG ? 0 : insn->src_reg, emit_zext(e, old));
}
