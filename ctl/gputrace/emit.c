/* SPDX-License-Identifier: Apache-2.0 */

/* Instructions of eBPF, one by one (emit.h). */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

void emit_fail(struct emit *emit, const char *format, ...) {
	struct code *code = emit->code;
	va_list arguments;
	int n;

	if (code->failed)
		return;
	code->failed = true;
	n = snprintf(code->error, sizeof(code->error), "%.100s:%d:%d: ", code->script->name,
		     emit->place.line, emit->place.column);
	va_start(arguments, format);
	vsnprintf(code->error + n, sizeof(code->error) - (size_t)n, format, arguments);
	va_end(arguments);
}

void emit_insn(struct emit *emit, struct bpf_insn insn) {
	struct code_program *program = emit->program;

	if (emit->code->failed)
		return;
	if (program->n_insns == CODE_INSNS_MAX) {
		emit_fail(emit, "this probe is too long for the GPU: more than %d instructions",
			  CODE_INSNS_MAX);
		return;
	}
	if (program->n_insns == emit->insns_room) {
		const size_t room = emit->insns_room ? 2 * emit->insns_room : 64;
		struct bpf_insn *more = reallocarray(program->insns, room, sizeof(*more));

		if (!more) {
			emit_fail(emit, "out of memory");
			return;
		}
		program->insns = more;
		emit->insns_room = room;
	}
	program->insns[program->n_insns++] = insn;
}

void emit_move(struct emit *emit, int to, int from) {
	if (to != from)
		emit_alu(emit, BPF_MOV, to, from);
}

void emit_constant(struct emit *emit, int to, int64_t value) {
	if (value == (int32_t)value) {
		emit_alu_constant(emit, BPF_MOV, to, (int32_t)value);
		return;
	}
	emit_insn(emit, (struct bpf_insn){ .code = BPF_LD | BPF_DW | BPF_IMM,
					   .dst_reg = to & 0xf,
					   .imm = (int32_t)value });
	emit_insn(emit, (struct bpf_insn){ .imm = (int32_t)(value >> 32) });
}

void emit_alu(struct emit *emit, int op, int to, int from) {
	emit_insn(emit, (struct bpf_insn){ .code = (uint8_t)(BPF_ALU64 | BPF_X | op),
					   .dst_reg = to & 0xf,
					   .src_reg = from & 0xf });
}

void emit_alu_constant(struct emit *emit, int op, int to, int32_t value) {
	emit_insn(emit, (struct bpf_insn){ .code = (uint8_t)(BPF_ALU64 | BPF_K | op),
					   .dst_reg = to & 0xf,
					   .imm = value });
}

void emit_load(struct emit *emit, int to, int from, int offset) {
	emit_insn(emit, (struct bpf_insn){ .code = BPF_LDX | BPF_MEM | BPF_DW,
					   .dst_reg = to & 0xf,
					   .src_reg = from & 0xf,
					   .off = (int16_t)offset });
}

void emit_store(struct emit *emit, int to, int offset, int from) {
	emit_insn(emit, (struct bpf_insn){ .code = BPF_STX | BPF_MEM | BPF_DW,
					   .dst_reg = to & 0xf,
					   .src_reg = from & 0xf,
					   .off = (int16_t)offset });
}

void emit_call(struct emit *emit, int helper) {
	emit_insn(emit, (struct bpf_insn){ .code = BPF_JMP | BPF_CALL, .imm = helper });
}

void emit_map(struct emit *emit, int to, uint32_t map) {
	struct code_program *program = emit->program;

	if (program->n_references == emit->references_room) {
		const size_t room = emit->references_room ? 2 * emit->references_room : 16;
		struct code_reference *more =
			reallocarray(program->references, room, sizeof(*more));

		if (!more) {
			emit_fail(emit, "out of memory");
			return;
		}
		program->references = more;
		emit->references_room = room;
	}
	program->references[program->n_references++] =
		(struct code_reference){ (uint32_t)program->n_insns, map };
	emit_insn(emit, (struct bpf_insn){ .code = BPF_LD | BPF_DW | BPF_IMM,
					   .dst_reg = to & 0xf,
					   .src_reg = BPF_PSEUDO_MAP_FD });
	emit_insn(emit, (struct bpf_insn){});
}

void emit_atomic_add(struct emit *emit, int offset) {
	emit_insn(emit, (struct bpf_insn){ .code = BPF_STX | BPF_ATOMIC | BPF_DW,
					   .dst_reg = BPF_REG_0,
					   .src_reg = BPF_REG_1,
					   .off = (int16_t)offset,
					   .imm = BPF_ADD });
}

void emit_exit(struct emit *emit) {
	emit_constant(emit, BPF_REG_0, 0);
	emit_insn(emit, (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT });
}

size_t emit_jump(struct emit *emit, int op, int a, int b) {
	emit_insn(emit, (struct bpf_insn){
				.code = (uint8_t)(BPF_JMP | op | (op == BPF_JA ? BPF_K : BPF_X)),
				.dst_reg = a & 0xf,
				.src_reg = b & 0xf });
	return emit->program->n_insns;
}

size_t emit_jump_constant(struct emit *emit, int op, int a, int32_t value) {
	emit_insn(emit, (struct bpf_insn){ .code = (uint8_t)(BPF_JMP | BPF_K | op),
					   .dst_reg = a & 0xf,
					   .imm = value });
	return emit->program->n_insns;
}

void emit_land(struct emit *emit, size_t jump) {
	if (!emit->code->failed)
		emit->program->insns[jump - 1].off = (int16_t)(emit->program->n_insns - jump);
}

void emit_jump_back(struct emit *emit, int op, int a, int32_t value, size_t to) {
	const size_t jump = emit_jump_constant(emit, op, a, value);

	if (!emit->code->failed)
		emit->program->insns[jump - 1].off = (int16_t)((ptrdiff_t)to - (ptrdiff_t)jump);
}

int emit_take(struct emit *emit, size_t words) {
	emit->stack += 8 * words;
	if (emit->stack > CODE_STACK_MAX) {
		emit_fail(emit,
			  "this probe needs more than the %d bytes that a program on the GPU "
			  "has for variables and intermediate results",
			  CODE_STACK_MAX);
		return -8;
	}
	return -(int)emit->stack;
}

void emit_give(struct emit *emit, size_t words) {
	emit->stack -= 8 * words;
}
