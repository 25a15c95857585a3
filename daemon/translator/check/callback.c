/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the callback that each call of bpf_loop gets (callback.h).
 *
 * The flow of a program has a copy of each callback, so it must be known before the analysis of
 * values begins. A small analysis of its own finds it: which registers hold the address of which
 * function, before each instruction. Compilers load that address where they need it, or once before
 * a loop; they do not keep it in memory, so memory is not followed.
 */

#include "callback.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "insn.h"

#define UNSEEN (UINT32_MAX - 1) /* of all registers: the instruction is not reached so far */
#define REGISTERS 10

struct registers {
	uint32_t function[REGISTERS]; /* its first instruction, CALLBACK_NONE, or UNSEEN */
};

/* What an instruction does to the registers. */
static void step(struct registers *state, const struct bpf_insn *insn, int64_t pc) {
	uint32_t *to = &state->function[insn->dst_reg % REGISTERS];

	if (insn_is_call(insn)) {
		for (unsigned i = 0; i <= 5; i++)
			state->function[i] = CALLBACK_NONE;
		return;
	}
	if (insn_is_ld_imm64(insn)) {
		*to = insn_is_function(insn) ? (uint32_t)insn_call_target(insn, pc) : CALLBACK_NONE;
		return;
	}
	if (insn->code == (BPF_ALU64 | BPF_MOV | BPF_X) && insn->off == 0)
		*to = insn->src_reg < REGISTERS ? state->function[insn->src_reg] : CALLBACK_NONE;
	else if (insn_is_alu(insn) || INSN_CLASS(insn->code) == BPF_LDX)
		*to = CALLBACK_NONE;
	else if (insn_is_atomic(insn) && insn->imm & BPF_FETCH)
		state->function[insn->imm == BPF_CMPXCHG ? 0 : insn->src_reg % REGISTERS] =
			CALLBACK_NONE;
}

/* Adds what holds on one way to an instruction. True: that changes something. */
static bool join(struct registers *to, const struct registers *from) {
	bool changed = false;

	for (unsigned i = 0; i < REGISTERS; i++) {
		uint32_t joined = from->function[i];

		if (to->function[i] != UNSEEN && to->function[i] != joined)
			joined = CALLBACK_NONE;
		changed |= joined != to->function[i];
		to->function[i] = joined;
	}
	return changed;
}

/* One walk over all instructions. True: something has changed. */
static bool sweep(const struct bpf_insn *insns, size_t n_insns, struct registers *states) {
	bool changed = false;
	size_t slots;

	for (size_t pc = 0; pc < n_insns; pc += slots) {
		const struct bpf_insn *insn = insns + pc;
		struct registers state = states[pc];

		slots = insn_is_ld_imm64(insn) ? 2 : 1;
		if (state.function[0] == UNSEEN)
			continue;
		step(&state, insn, (int64_t)pc);
		if (insn_is_goto(insn) || insn_is_branch(insn))
			changed |= join(states + insn_jump_target(insn, (int64_t)pc), &state);
		if (!insn_is_goto(insn) && !insn_is_exit(insn))
			changed |= join(states + pc + slots, &state);
	}
	return changed;
}

int callback_find(const struct bpf_insn *insns, size_t n_insns, uint32_t **callbacks) {
	struct registers *states;
	bool wanted = false;

	*callbacks = NULL;
	for (size_t pc = 0; pc < n_insns; pc += insn_is_ld_imm64(insns + pc) ? 2 : 1)
		wanted |= insn_is_loop_call(insns + pc);
	if (!wanted)
		return 0;
	states = calloc(n_insns, sizeof(*states));
	*callbacks = calloc(n_insns, sizeof(**callbacks));
	if (!states || !*callbacks) {
		free(states);
		return -ENOMEM;
	}
	for (size_t pc = 0; pc < n_insns; pc++)
		for (unsigned i = 0; i < REGISTERS; i++)
			states[pc].function[i] = UNSEEN;
	/* functions begin without: of arguments nothing is known */
	for (size_t pc = 0, slots; pc < n_insns; pc += slots) {
		slots = insn_is_ld_imm64(insns + pc) ? 2 : 1;
		if (insn_is_bpf_call(insns + pc) || insn_is_function(insns + pc))
			memset(states + insn_call_target(insns + pc, (int64_t)pc), 0xff,
			       sizeof(*states));
	}
	memset(states, 0xff, sizeof(*states));
	while (sweep(insns, n_insns, states))
		;
	for (size_t pc = 0; pc < n_insns; pc += insn_is_ld_imm64(insns + pc) ? 2 : 1)
		(*callbacks)[pc] =
			states[pc].function[2] == UNSEEN ? CALLBACK_NONE : states[pc].function[2];
	free(states);
	return 0;
}
