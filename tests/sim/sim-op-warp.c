/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). What the lanes of a warp do
 * together: each lane stops and says for whom it waits; the last one of the group computes all
 * results. A lane that has exited, or that the block is too small for, is not waited for.
 */

#include "sim-op.h"

static uint32_t detail_of(const struct sim_insn *i) {
	return i->mode >> 8;
}

/* The group of t: threads by lane, NULL for those that are not in it. False if somebody is still
 * missing. */
static bool gather(struct sim_thread *t, struct sim_thread *lanes[32]) {
	struct sim_block *block = t->block;
	uint32_t first = t->index & ~31u;

	for (uint32_t lane = 0; lane < 32; lane++) {
		struct sim_thread *other =
			first + lane < block->thread_count ? &block->threads[first + lane] : NULL;

		lanes[lane] = NULL;
		if (!(t->warp_mask >> lane & 1) || !other || other->state == SIM_EXITED)
			continue;
		if (other->state != SIM_AT_WARP || other->warp_mask != t->warp_mask ||
		    other->warp_kind != t->warp_kind)
			return false;
		lanes[lane] = other;
	}
	return true;
}

static uint32_t value_of(const struct sim_thread *t) {
	return t->r[t->warp_insn->a];
}

/* c packs the clamp (bits 0-4) and the mask of the segment (bits 8-12). */
static void shuffle(struct sim_thread *lanes[32]) {
	uint32_t values[32] = { 0 }, results[32] = { 0 };
	bool valid[32] = { false };

	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane])
			values[lane] = value_of(lanes[lane]);
	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];
		const struct sim_insn *i;
		int32_t b, clamp, segment, lowest, highest, source;

		if (!t)
			continue;
		i = t->warp_insn;
		b = RD(i->b) & 31;
		clamp = RD(i->c) & 31;
		segment = RD(i->c) >> 8 & 31;
		lowest = lane & segment;
		highest = lowest | (clamp & ~segment);
		switch (detail_of(i)) {
		case SIM_SHFL_UP:
			source = lane - b;
			valid[lane] = source >= highest;
			break;
		case SIM_SHFL_DOWN:
			source = lane + b;
			valid[lane] = source <= highest;
			break;
		case SIM_SHFL_BFLY:
			source = lane ^ b;
			valid[lane] = source <= highest;
			break;
		default:
			source = lowest | (b & ~segment);
			valid[lane] = source <= highest;
		}
		if (!valid[lane])
			source = lane;
		/* a lane that is not there gives what the GPU does not define: here, the own value
		 */
		results[lane] =
			source >= 0 && source < 32 && lanes[source] ? values[source] : values[lane];
	}
	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];

		if (t) {
			RD(t->warp_insn->d) = results[lane];
			RD(t->warp_insn->e) = valid[lane];
		}
	}
}

static void vote(struct sim_thread *lanes[32]) {
	uint32_t ballot = 0, present = 0;

	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane]) {
			present |= UINT32_C(1) << lane;
			ballot |= (uint32_t)!!lanes[lane]->r[lanes[lane]->warp_insn->a] << lane;
		}
	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];

		if (!t)
			continue;
		switch (detail_of(t->warp_insn)) {
		case SIM_VOTE_ALL:
			RD(t->warp_insn->d) = ballot == present;
			break;
		case SIM_VOTE_ANY:
			RD(t->warp_insn->d) = ballot != 0;
			break;
		case SIM_VOTE_UNI:
			RD(t->warp_insn->d) = ballot == present || !ballot;
			break;
		default:
			RD(t->warp_insn->d) = ballot;
		}
	}
}

static void match(struct sim_thread *lanes[32]) {
	uint64_t values[32] = { 0 };
	uint32_t present = 0;

	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane]) {
			struct sim_thread *t = lanes[lane];

			present |= UINT32_C(1) << lane;
			values[lane] = t->warp_insn->width == 8 ? RD(t->warp_insn->a)
								: (uint32_t)RD(t->warp_insn->a);
		}
	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];
		uint32_t same = 0;

		if (!t)
			continue;
		for (int other = 0; other < 32; other++)
			if (lanes[other] && values[other] == values[lane])
				same |= UINT32_C(1) << other;
		if (detail_of(t->warp_insn) == SIM_MATCH_ALL) {
			RD(t->warp_insn->e) = same == present;
			same = same == present ? present : 0;
		}
		RD(t->warp_insn->d) = same;
	}
}

static uint32_t reduce(uint32_t a, uint32_t b, uint32_t operation) {
	switch (operation) {
	case SIM_REDUX_ADD:
		return a + b;
	case SIM_REDUX_MIN:
		return (int32_t)a < (int32_t)b ? a : b;
	case SIM_REDUX_MAX:
		return (int32_t)a > (int32_t)b ? a : b;
	case SIM_REDUX_UMIN:
		return a < b ? a : b;
	case SIM_REDUX_UMAX:
		return a > b ? a : b;
	case SIM_REDUX_AND:
		return a & b;
	case SIM_REDUX_OR:
		return a | b;
	default:
		return a ^ b;
	}
}

static void redux(struct sim_thread *lanes[32]) {
	uint32_t result = 0;
	bool first = true;

	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane]) {
			result = first ? value_of(lanes[lane])
				       : reduce(result, value_of(lanes[lane]),
						detail_of(lanes[lane]->warp_insn));
			first = false;
		}
	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane])
			lanes[lane]->r[lanes[lane]->warp_insn->d] = result;
}

static void elect(struct sim_thread *lanes[32]) {
	int leader = 0;

	while (leader < 31 && !lanes[leader])
		leader++;
	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane]) {
			lanes[lane]->r[lanes[lane]->warp_insn->d] = leader;
			lanes[lane]->r[lanes[lane]->warp_insn->e] = lane == leader;
		}
}

/*
 * One 8x8 matrix of ldmatrix, of 16-bit elements: lane 8 * matrix + row has the address of a row,
 * each lane gets two elements. False after a fault.
 */
static bool load_matrix(struct sim_thread *lanes[32]) {
	uint16_t rows[8][8] = { 0 };

	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];
		const void *row;

		if (!t || (uint32_t)lane / 8 != (detail_of(t->warp_insn) & 3))
			continue;
		row = sim_shared_address(t, t->warp_insn, RD(t->warp_insn->a) + t->warp_insn->width,
					 sizeof(rows[0]));
		if (!row)
			return false;
		memcpy(rows[lane % 8], row, sizeof(rows[0]));
	}
	for (int lane = 0; lane < 32; lane++) {
		struct sim_thread *t = lanes[lane];
		uint32_t i = lane / 4, j = lane % 4 * 2;

		if (t)
			RD(t->warp_insn->d) = detail_of(t->warp_insn) & SIM_MATRIX_TRANSPOSED
						      ? rows[j][i] | (uint32_t)rows[j + 1][i] << 16
						      : rows[i][j] | (uint32_t)rows[i][j + 1] << 16;
	}
	return true;
}

void sim_warp_check(struct sim_thread *t) {
	struct sim_thread *lanes[32];

	if (!gather(t, lanes))
		return;
	switch (t->warp_kind) {
	case SIM_WARP_SHFL:
		shuffle(lanes);
		break;
	case SIM_WARP_VOTE:
		vote(lanes);
		break;
	case SIM_WARP_MATCH:
		match(lanes);
		break;
	case SIM_WARP_REDUX:
		redux(lanes);
		break;
	case SIM_WARP_ELECT:
		elect(lanes);
		break;
	case SIM_WARP_MATRIX:
		if (!load_matrix(lanes))
			return;
		break;
	}
	for (int lane = 0; lane < 32; lane++)
		if (lanes[lane]) {
			lanes[lane]->next = lanes[lane]->warp_insn + 1;
			lanes[lane]->state = SIM_READY;
		}
}

const struct sim_insn *sim_warp(struct sim_thread *t, const struct sim_insn *i) {
	uint32_t mask = RD(i->bits);

	if (!(mask >> (t->index & 31) & 1))
		return sim_fault(t, i, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				 "lane %u is not in its own mask 0x%x", t->index & 31, mask);
	t->warp_mask = mask;
	t->warp_kind = i->mode & 0xff;
	t->warp_insn = i;
	t->next = i;
	t->state = SIM_AT_WARP;
	sim_warp_check(t);
	if (t->state == SIM_READY) { /* the last one goes on at once */
		return t->next;
	}
	return NULL;
}
