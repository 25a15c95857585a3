/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the instructions of a program before any other step of the translator (validate.h).
 *
 * Each instruction by itself first (is it one, and can it be translated), then where control goes.
 * The kernel's verifier has seen verified programs already; this is what keeps the translator
 * itself safe when it has not.
 */

#include "validate.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/bpf/helper-name.h"
#include "insn.h"

struct validation {
	const struct bpf_insn *insns;
	size_t n_insns;
	size_t n_maps;
	bool thread; /* there are variables of a thread */
	struct fault *fault;
	uint8_t *marks; /* one each: MARK_ */
};

enum {
	MARK_SECOND_HALF = 1, /* of a 64-bit load */
	MARK_FUNCTION = 2, /* a function begins here */
};

static int validate_alu(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;
	bool wide = INSN_CLASS(insn->code) == BPF_ALU64;
	bool reg = INSN_SOURCE(insn->code) == BPF_X;
	uint8_t op = INSN_OP(insn->code);

	if (insn->dst_reg == 10)
		return fault_at(v->fault, pc, "writes r10, the frame pointer");
	if (op > BPF_END)
		return fault_at(v->fault, pc, "unknown instruction 0x%02x", insn->code);
	if (op == BPF_END) {
		if (wide && reg)
			return fault_at(v->fault, pc, "unknown instruction 0x%02x", insn->code);
		if (insn->imm != 16 && insn->imm != 32 && insn->imm != 64)
			return fault_at(v->fault, pc, "byte swap of %d bits", insn->imm);
		if (insn->off != 0 || insn->src_reg != 0)
			return fault_at(v->fault, pc, "byte swap with reserved fields set");
		return 0;
	}
	if (op == BPF_NEG) {
		if (reg || insn->off != 0 || insn->src_reg != 0 || insn->imm != 0)
			return fault_at(v->fault, pc, "negation with reserved fields set");
		return 0;
	}
	if (reg ? insn->imm != 0 : insn->src_reg != 0)
		return fault_at(v->fault, pc, "arithmetic with reserved fields set");

	switch (op) {
	case BPF_DIV:
	case BPF_MOD:
		if (insn->off != 0 && insn->off != 1)
			return fault_at(v->fault, pc, "division with an unknown offset %d",
					insn->off);
		break;
	case BPF_MOV:
		if (insn->off == 0)
			break;
		if (reg && (insn->off == 8 || insn->off == 16 || (insn->off == 32 && wide)))
			break;
		if (reg && wide && insn->off == 1)
			return fault_at(v->fault, pc,
					"address space cast (arena) is not available on the GPU");
		return fault_at(v->fault, pc, "move with an unknown offset %d", insn->off);
	default:
		if (insn->off != 0)
			return fault_at(v->fault, pc, "arithmetic with reserved fields set");
	}
	return 0;
}

static int validate_call(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;
	int64_t target;

	if (INSN_SOURCE(insn->code) == BPF_X)
		return fault_at(v->fault, pc,
				"call through a register is not available on the GPU");
	if (insn->dst_reg != 0 || insn->off != 0)
		return fault_at(v->fault, pc, "call with reserved fields set");
	switch (insn->src_reg) {
	case INSN_CALL_HELPER:
		return 0;
	case INSN_CALL_BPF:
		target = insn_call_target(insn, (int64_t)pc);
		if (target < 0 || (uint64_t)target >= v->n_insns)
			return fault_at(v->fault, pc,
					"call out of the program (to instruction %lld)",
					(long long)target);
		v->marks[target] |= MARK_FUNCTION;
		return 0;
	case INSN_CALL_KFUNC:
		return kfunc_name(insn->imm)
			       ? 0
			       : fault_at(v->fault, pc,
					  "call of a kernel function is not available on the GPU");
	default:
		return fault_at(v->fault, pc, "call of an unknown kind %u", insn->src_reg);
	}
}

static int validate_jump(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;
	bool narrow = INSN_CLASS(insn->code) == BPF_JMP32;
	bool reg = INSN_SOURCE(insn->code) == BPF_X;

	switch (INSN_OP(insn->code)) {
	case BPF_JA:
		if (reg || insn->dst_reg != 0 || insn->src_reg != 0 ||
		    (narrow ? insn->off : insn->imm) != 0)
			return fault_at(v->fault, pc, "jump with reserved fields set");
		return 0;
	case BPF_CALL:
		if (narrow)
			break;
		return validate_call(v, pc);
	case BPF_EXIT:
		if (narrow || reg)
			break;
		if (insn->dst_reg != 0 || insn->src_reg != 0 || insn->off != 0 || insn->imm != 0)
			return fault_at(v->fault, pc, "exit with reserved fields set");
		return 0;
	case INSN_JCOND:
		if (narrow || reg)
			break;
		if (insn->dst_reg != 0 || insn->src_reg != 0 || insn->imm != 0)
			return fault_at(v->fault, pc, "may_goto with reserved fields set");
		return 0;
	case 0xf0:
		break;
	default:
		if (reg ? insn->imm != 0 : insn->src_reg != 0)
			return fault_at(v->fault, pc, "jump with reserved fields set");
		return 0;
	}
	return fault_at(v->fault, pc, "unknown instruction 0x%02x", insn->code);
}

static int validate_atomic(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;

	if (INSN_SIZE(insn->code) != BPF_W && INSN_SIZE(insn->code) != BPF_DW)
		return fault_at(v->fault, pc, "atomic operation on %u bytes",
				insn_bytes(insn->code));
	switch (insn->imm) {
	case BPF_ADD:
	case BPF_OR:
	case BPF_AND:
	case BPF_XOR:
		return 0;
	case BPF_ADD | BPF_FETCH:
	case BPF_OR | BPF_FETCH:
	case BPF_AND | BPF_FETCH:
	case BPF_XOR | BPF_FETCH:
	case BPF_XCHG:
		if (insn->src_reg == 10)
			return fault_at(v->fault, pc, "writes r10, the frame pointer");
		return 0;
	case BPF_CMPXCHG:
		return 0;
	default:
		return fault_at(v->fault, pc, "unknown atomic operation 0x%x", (unsigned)insn->imm);
	}
}

static int validate_memory(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;
	uint8_t class = INSN_CLASS(insn->code), mode = INSN_MODE(insn->code);

	if (class == BPF_STX && mode == INSN_MODE_ATOMIC)
		return validate_atomic(v, pc);
	if (mode != INSN_MODE_MEM &&
	    !(class == BPF_LDX && mode == INSN_MODE_MEMSX && INSN_SIZE(insn->code) != BPF_DW))
		return fault_at(v->fault, pc, "unknown instruction 0x%02x", insn->code);
	if (class == BPF_LDX && insn->dst_reg == 10)
		return fault_at(v->fault, pc, "writes r10, the frame pointer");
	if (class == BPF_ST ? insn->src_reg != 0 : insn->imm != 0)
		return fault_at(v->fault, pc, "load or store with reserved fields set");
	return 0;
}

static int validate_ld_imm64(struct validation *v, size_t pc) {
	const struct bpf_insn *insn = v->insns + pc;

	if (pc + 1 >= v->n_insns)
		return fault_at(v->fault, pc, "64-bit load without its second half");
	if (insn[1].code != 0 || insn[1].dst_reg != 0 || insn[1].src_reg != 0 || insn[1].off != 0)
		return fault_at(v->fault, pc, "64-bit load with a malformed second half");
	if (insn->off != 0)
		return fault_at(v->fault, pc, "64-bit load with reserved fields set");
	if (insn->dst_reg == 10)
		return fault_at(v->fault, pc, "writes r10, the frame pointer");
	v->marks[pc + 1] |= MARK_SECOND_HALF;

	switch (insn->src_reg) {
	case 0:
		return 0;
	case INSN_PSEUDO_MAP_IDX:
	case INSN_PSEUDO_MAP_IDX_VALUE:
		if (insn_is_thread(insn) && v->thread)
			return 0;
		if (insn->imm < 0 || (size_t)insn->imm >= v->n_maps)
			return fault_at(v->fault, pc, "refers to map %d of %zu", insn->imm,
					v->n_maps);
		if (insn->src_reg == INSN_PSEUDO_MAP_IDX && insn[1].imm != 0)
			return fault_at(v->fault, pc, "64-bit load with reserved fields set");
		return 0;
	case INSN_PSEUDO_MAP_FD:
	case INSN_PSEUDO_MAP_VALUE:
		return fault_at(v->fault, pc,
				"refers to a map by descriptor; an index is expected here");
	case INSN_PSEUDO_BTF_ID:
		return fault_at(v->fault, pc,
				"address of a kernel symbol is not available on the GPU");
	case INSN_PSEUDO_FUNC:
		if (insn_call_target(insn, (int64_t)pc) < 0 ||
		    (uint64_t)insn_call_target(insn, (int64_t)pc) >= v->n_insns || insn[1].imm != 0)
			return fault_at(v->fault, pc, "takes the address of no function");
		v->marks[insn_call_target(insn, (int64_t)pc)] |= MARK_FUNCTION;
		return 0;
	default:
		return fault_at(v->fault, pc, "64-bit load of an unknown kind %u", insn->src_reg);
	}
}

/* One instruction by itself. Returns 0 and the number of slots it takes in `slots`, or a fault. */
static int validate_insn(struct validation *v, size_t pc, size_t *slots) {
	const struct bpf_insn *insn = v->insns + pc;

	*slots = 1;
	if (insn->dst_reg > 10 || insn->src_reg > 10)
		return fault_at(v->fault, pc, "register r%u does not exist",
				insn->dst_reg > 10 ? insn->dst_reg : insn->src_reg);
	switch (INSN_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return validate_alu(v, pc);
	case BPF_JMP:
	case BPF_JMP32:
		return validate_jump(v, pc);
	case BPF_LDX:
	case BPF_ST:
	case BPF_STX:
		return validate_memory(v, pc);
	default:
		if (insn_is_ld_imm64(insn)) {
			*slots = 2;
			return validate_ld_imm64(v, pc);
		}
		if (INSN_MODE(insn->code) == BPF_ABS || INSN_MODE(insn->code) == BPF_IND)
			return fault_at(v->fault, pc,
					"legacy packet access is not available on the GPU");
		return fault_at(v->fault, pc, "unknown instruction 0x%02x", insn->code);
	}
}

/* Jumps of the function at [start, end) stay inside it, and nothing falls out at its end. */
static int validate_function(struct validation *v, size_t start, size_t end) {
	size_t last = start;

	for (size_t pc = start; pc < end; pc++) {
		const struct bpf_insn *insn = v->insns + pc;
		int64_t target;

		if (v->marks[pc] & MARK_SECOND_HALF)
			continue;
		last = pc;
		if (!insn_is_goto(insn) && !insn_is_branch(insn))
			continue;
		target = insn_jump_target(insn, (int64_t)pc);
		if (target < (int64_t)start || target >= (int64_t)end)
			return fault_at(v->fault, pc,
					"jump out of its function (to instruction %lld)",
					(long long)target);
		if (v->marks[target] & MARK_SECOND_HALF)
			return fault_at(v->fault, pc, "jump into the middle of a 64-bit load");
	}
	if (!insn_is_exit(v->insns + last) && !insn_is_goto(v->insns + last))
		return fault_at(v->fault, last, "control falls off the end of the %s",
				end == v->n_insns ? "program" : "function");
	return 0;
}

static int validate_run(struct validation *v) {
	size_t slots, start = 0;
	int r;

	v->marks[0] |= MARK_FUNCTION;
	for (size_t pc = 0; pc < v->n_insns; pc += slots) {
		r = validate_insn(v, pc, &slots);
		if (r)
			return r;
	}
	for (size_t pc = 0; pc < v->n_insns; pc++)
		if (v->marks[pc] == (MARK_FUNCTION | MARK_SECOND_HALF))
			return fault_at(v->fault, pc, "called in the middle of a 64-bit load");
	for (size_t end = 1; end <= v->n_insns; end++) {
		if (end < v->n_insns && !(v->marks[end] & MARK_FUNCTION))
			continue;
		r = validate_function(v, start, end);
		if (r)
			return r;
		start = end;
	}
	return 0;
}

int validate_program(const struct bpf_insn *insns, size_t n_insns, size_t n_maps, bool thread,
		     struct fault *fault) {
	struct validation v = { .insns = insns,
				.n_insns = n_insns,
				.n_maps = n_maps,
				.thread = thread,
				.fault = fault };
	int r;

	if (n_insns == 0)
		return fault_whole(fault, "no instructions");
	v.marks = calloc(n_insns, 1);
	if (!v.marks)
		return -ENOMEM;
	r = validate_run(&v);
	free(v.marks);
	return r;
}
