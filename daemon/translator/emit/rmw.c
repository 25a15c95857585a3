/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Recognizes read-modify-write sequences such as `*v += x` in a program (rmw.h).
 *
 * Between load and store there may be arithmetic that has nothing to do with it, as compilers mix
 * instructions; nothing that touches memory, and nothing that reads the loaded value but the
 * addition.
 */

#include "rmw.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/translator/check/insn.h"

#define BIT(reg) ((uint16_t)(1u << (reg)))

static uint16_t insn_reads(const struct bpf_insn *insn) {
	uint16_t dst = BIT(insn->dst_reg), src = BIT(insn->src_reg);

	if (insn_is_ld_imm64(insn))
		return 0;
	if (insn_is_exit(insn))
		return BIT(0);
	if (insn_is_call(insn))
		return BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5);
	switch (INSN_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		if (INSN_OP(insn->code) == BPF_NEG || INSN_OP(insn->code) == BPF_END)
			return dst;
		if (INSN_SOURCE(insn->code) == BPF_K)
			return INSN_OP(insn->code) == BPF_MOV ? 0 : dst;
		return INSN_OP(insn->code) == BPF_MOV ? src : dst | src;
	case BPF_LDX:
		return src;
	case BPF_ST:
		return dst;
	case BPF_STX:
		return dst | src | (insn_is_atomic(insn) && insn->imm == BPF_CMPXCHG ? BIT(0) : 0);
	default:
		if (insn_is_goto(insn) || insn_is_may_goto(insn))
			return 0;
		return INSN_SOURCE(insn->code) == BPF_X ? dst | src : dst;
	}
}

static uint16_t insn_writes(const struct bpf_insn *insn) {
	if (insn_is_ld_imm64(insn))
		return BIT(insn->dst_reg);
	if (insn_is_call(insn))
		return BIT(0) | BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5);
	switch (INSN_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
	case BPF_LDX:
		return BIT(insn->dst_reg);
	case BPF_STX:
		if (!insn_is_atomic(insn) || !(insn->imm & BPF_FETCH))
			return 0;
		return insn->imm == BPF_CMPXCHG ? BIT(0) : BIT(insn->src_reg);
	default:
		return 0;
	}
}

/* The addition of something to the loaded register, or the subtraction of something from it. */
static bool match_add(const struct bpf_insn *insn, struct rmw *rmw) {
	uint8_t op = INSN_OP(insn->code);
	bool reg = INSN_SOURCE(insn->code) == BPF_X;

	if (!insn_is_alu(insn) || (op != BPF_ADD && op != BPF_SUB))
		return false;
	rmw->subtract = op == BPF_SUB;
	rmw->immediate = !reg;
	rmw->wide = INSN_CLASS(insn->code) == BPF_ALU64;
	rmw->stored = insn->dst_reg;
	if (insn->dst_reg == rmw->loaded) {
		rmw->operand = insn->src_reg;
		return !reg || insn->src_reg != rmw->loaded;
	}
	/* operand += loaded: the operand's register becomes the sum */
	rmw->operand = insn->dst_reg;
	return reg && insn->src_reg == rmw->loaded && op == BPF_ADD;
}

bool rmw_match(const struct bpf_insn *insns, size_t pc, size_t end, struct rmw *rmw) {
	const struct bpf_insn *load = insns + pc, *insn;
	uint16_t reserved;
	size_t i;

	if (INSN_CLASS(load->code) != BPF_LDX || INSN_MODE(load->code) != INSN_MODE_MEM ||
	    insn_bytes(load->code) < 4 || load->dst_reg == load->src_reg)
		return false;
	*rmw = (struct rmw){ .loaded = load->dst_reg };

	/* what else stands before the addition may not touch the loaded register or write the
	 * address */
	for (i = pc + 1; i < end; i++) {
		insn = insns + i;
		if (!insn_is_alu(insn))
			return false;
		if (insn_reads(insn) & BIT(rmw->loaded))
			break;
		if (insn_writes(insn) & (BIT(rmw->loaded) | BIT(load->src_reg)))
			return false;
	}
	if (i >= end || !match_add(insns + i, rmw) || rmw->stored == load->src_reg)
		return false;
	if (!rmw->wide && insn_bytes(load->code) == 8) /* the upper half becomes 0 */
		return false;
	rmw->add = i;

	/* and after it, nothing may see that the addition has not happened yet */
	reserved = BIT(rmw->loaded) | BIT(rmw->stored);
	for (i++; i < end && insn_is_alu(insns + i); i++) {
		if (insn_reads(insns + i) & reserved)
			return false;
		if (insn_writes(insns + i) & (reserved | BIT(load->src_reg)))
			return false;
		if (!rmw->immediate && insn_writes(insns + i) & BIT(rmw->operand))
			return false;
	}
	insn = insns + i;
	if (i >= end || INSN_CLASS(insn->code) != BPF_STX ||
	    INSN_MODE(insn->code) != INSN_MODE_MEM ||
	    INSN_SIZE(insn->code) != INSN_SIZE(load->code) || insn->dst_reg != load->src_reg ||
	    insn->off != load->off || insn->src_reg != rmw->stored)
		return false;
	rmw->store = i;
	return true;
}

uint16_t rmw_live_after(const struct flow *flow, uint32_t number, uint16_t live_out, size_t pc) {
	const struct flow_block *block = flow->blocks + number;
	uint16_t live = live_out;

	for (size_t i = block->end; i-- > block->start && i > pc;) {
		const struct bpf_insn *insn = flow->insns + i;

		/* the second half of a 64-bit load has code 0: it reads and writes nothing */
		if (insn->code == 0)
			continue;
		live = (uint16_t)((live & ~insn_writes(insn)) | insn_reads(insn));
	}
	return live;
}

/* Registers that are read from the start of a block on. */
static uint16_t live_in(const struct flow *flow, uint32_t number, uint16_t live_out) {
	const struct flow_block *block = flow->blocks + number;
	const struct bpf_insn *first = flow->insns + block->start;
	uint16_t live = rmw_live_after(flow, number, live_out, block->start);

	return (uint16_t)((live & ~insn_writes(first)) | insn_reads(first));
}

int rmw_live_out(const struct flow *flow, uint16_t **live_out) {
	uint16_t *out = calloc(flow->n_blocks, sizeof(*out));
	bool changed;

	if (!out)
		return -ENOMEM;
	do {
		changed = false;
		for (uint32_t i = (uint32_t)flow->n_blocks; i-- > 0;) {
			const struct flow_block *block = flow->blocks + i;
			uint16_t live = 0;

			for (unsigned s = 0; s < 2; s++) {
				uint32_t to = block->successors[s];

				if (to == FLOW_NONE)
					continue;
				if (flow->blocks[to].frame == block->frame)
					live |= live_in(flow, to, out[to]);
				else if (flow->frames[flow->blocks[to].frame].parent ==
					 block->frame)
					live |= live_in(flow, i + 1,
							out[i + 1]); /* after the call */
			}
			if (live != out[i]) {
				out[i] = live;
				changed = true;
			}
		}
	} while (changed);
	*live_out = out;
	return 0;
}
