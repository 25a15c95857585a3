/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Shows the programs of a script and what an event costs (code.h): the longest way through each, in
 * instructions, and what is dear on it. Only what emit.c makes is known here.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "code.h"
#include "proto/helper.h"

/* What one way through a program does. */
struct cost {
	size_t insns, lookups, updates, atomics, helpers;
};

static const char *const operators[] = { "+",  "-", "*", "/", "|", "&",   "<<",
					 ">>", "-", "%", "^", "",  "s>>", "" };
static const char *const conditions[] = { "",    "==", ">", ">=", "&",  "!=", "s>",
					  "s>=", "",   "",  "<",  "<=", "s<", "s<=" };

static bool is_wide(const struct bpf_insn *insn) {
	return insn->code == (BPF_LD | BPF_DW | BPF_IMM);
}

static bool is_jump(const struct bpf_insn *insn) {
	return BPF_CLASS(insn->code) == BPF_JMP && BPF_OP(insn->code) != BPF_CALL &&
	       BPF_OP(insn->code) != BPF_EXIT;
}

/* ---- cost ---- */

static void add_insn(struct cost *cost, const struct bpf_insn *insn) {
	cost->insns++;
	if (insn->code == (BPF_STX | BPF_ATOMIC | BPF_DW))
		cost->atomics++;
	if (insn->code != (BPF_JMP | BPF_CALL))
		return;
	if (insn->imm == BPF_FUNC_map_lookup_elem)
		cost->lookups++;
	else if (insn->imm == BPF_FUNC_map_update_elem || insn->imm == BPF_FUNC_map_delete_elem)
		cost->updates++;
	else
		cost->helpers++;
}

/* The longest way, from the end to the beginning: jumps go forward, but for the rounds of
 * min() and max() of lanes, of which the first one counts. */
static struct cost cost_of(const struct code_program *program) {
	struct cost *from = calloc(program->n_insns + 2, sizeof(*from)), cost = {};

	for (size_t i = program->n_insns; from && i-- > 0;) {
		const struct bpf_insn *insn = &program->insns[i];
		const size_t next = i + 1 + is_wide(insn);

		if (insn->code != (BPF_JMP | BPF_EXIT))
			from[i] = from[next];
		if (is_jump(insn) && insn->off > 0 &&
		    (BPF_OP(insn->code) == BPF_JA ||
		     from[next + (size_t)insn->off].insns > from[i].insns))
			from[i] = from[next + (size_t)insn->off];
		add_insn(&from[i], insn);
	}
	if (from)
		cost = from[0];
	free(from);
	return cost;
}

/* ---- instructions ---- */

static void put_operand(FILE *out, const struct bpf_insn *insn) {
	if (BPF_SRC(insn->code) == BPF_X)
		fprintf(out, "r%u", insn->src_reg);
	else
		fprintf(out, "%d", insn->imm);
}

static void put_jump(FILE *out, const struct bpf_insn *insn, size_t at) {
	const size_t to = (size_t)((ptrdiff_t)at + 1 + insn->off);

	if (BPF_OP(insn->code) == BPF_JA) {
		fprintf(out, "goto %zu\n", to);
		return;
	}
	fprintf(out, "if r%u %s ", insn->dst_reg, conditions[BPF_OP(insn->code) >> 4]);
	put_operand(out, insn);
	fprintf(out, " goto %zu\n", to);
}

static void put_alu(FILE *out, const struct bpf_insn *insn) {
	const uint8_t op = BPF_OP(insn->code);

	if (op == BPF_NEG) {
		fprintf(out, "r%u = -r%u\n", insn->dst_reg, insn->dst_reg);
		return;
	}
	fprintf(out, "r%u %s= ", insn->dst_reg, op == BPF_MOV ? "" : operators[op >> 4]);
	put_operand(out, insn);
	fputc('\n', out);
}

static void put_call(FILE *out, const struct bpf_insn *insn) {
	const struct helper *helper = helper_find(insn->imm);

	fprintf(out, "r0 = %s()\n", helper ? helper->name : "helper");
}

static void put_wide(FILE *out, const struct code *code, const struct code_program *program,
		     size_t at) {
	const struct bpf_insn *insn = &program->insns[at];

	for (size_t i = 0; i < program->n_references; i++)
		if (program->references[i].insn == at) {
			const uint32_t map = program->references[i].map;

			fprintf(out, "r%u = map %s\n", insn->dst_reg,
				map < code->script->n_maps ? code->script->maps[map].name
							   : code->maps[map].name);
			return;
		}
	fprintf(out, "r%u = %" PRId64 "\n", insn->dst_reg,
		(int64_t)((uint64_t)(uint32_t)insn->imm | (uint64_t)(uint32_t)insn[1].imm << 32));
}

static void put_insn(FILE *out, const struct code *code, const struct code_program *program,
		     size_t at) {
	const struct bpf_insn *insn = &program->insns[at];

	fprintf(out, "%6zu: ", at);
	switch (BPF_CLASS(insn->code)) {
	case BPF_LD:
		put_wide(out, code, program, at);
		break;
	case BPF_LDX:
		fprintf(out, "r%u = *(r%u %+d)\n", insn->dst_reg, insn->src_reg, insn->off);
		break;
	case BPF_STX:
		if (insn->code != (BPF_STX | BPF_ATOMIC | BPF_DW))
			fprintf(out, "*(r%u %+d) = r%u\n", insn->dst_reg, insn->off, insn->src_reg);
		else if (insn->imm == BPF_CMPXCHG)
			fprintf(out, "r0 = cmpxchg(r%u %+d, r0, r%u)\n", insn->dst_reg, insn->off,
				insn->src_reg);
		else
			fprintf(out, "lock *(r%u %+d) += r%u\n", insn->dst_reg, insn->off,
				insn->src_reg);
		break;
	case BPF_JMP:
		if (BPF_OP(insn->code) == BPF_EXIT)
			fputs("exit\n", out);
		else if (BPF_OP(insn->code) == BPF_CALL)
			put_call(out, insn);
		else
			put_jump(out, insn, at);
		break;
	default:
		put_alu(out, insn);
	}
}

void code_print(const struct code *code, FILE *out) {
	for (size_t i = 0; i < code->n_programs; i++) {
		const struct code_program *program = &code->programs[i];
		const struct cost cost = cost_of(program);

		fprintf(out, "%s: at most %zu instructions an event", program->section, cost.insns);
		fprintf(out,
			", with %zu lookups and %zu changes of maps, %zu atomics, %zu helpers\n",
			cost.lookups, cost.updates, cost.atomics, cost.helpers);
		for (size_t at = 0; at < program->n_insns; at++) {
			put_insn(out, code, program, at);
			at += is_wide(&program->insns[at]);
		}
	}
}
