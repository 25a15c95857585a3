/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whole blocks, warps and grids: of their threads the first that enters and the last that leaves is
 * the event. A hash has what runs now: when it began, how many threads have entered, how many have
 * left. A grid counts its blocks, each of which counts its threads.
 *
 * The lowest of the lanes that come together counts for all of them.
 */

#include "emit.h"

enum {
	ELEMENT_START = 0,
	ELEMENT_ENTERED = 8,
	ELEMENT_LEFT = 16,
	ELEMENT_WORDS = 3,
};

static void address_of(struct emit *emit, int to, int place) {
	emit_move(emit, to, BPF_REG_10);
	emit_alu_constant(emit, BPF_ADD, to, place);
}

static void lookup(struct emit *emit, uint32_t map, int key) {
	emit_map(emit, BPF_REG_1, map);
	address_of(emit, BPF_REG_2, key);
	emit_call(emit, BPF_FUNC_map_lookup_elem);
}

/* The key of a part on the stack: block, warp, launch, kernel. */
static int part_key(struct emit *emit, enum probe_kind part) {
	const int key = emit_take(emit, 4);

	emit_launch_key(emit, key + 16);
	emit_constant(emit, BPF_REG_0, 0);
	emit_store(emit, BPF_REG_10, key, BPF_REG_0);
	emit_store(emit, BPF_REG_10, key + 8, BPF_REG_0);
	if (part == PROBE_WHOLE_GRID)
		return key;
	emit_block_number(emit);
	emit_store(emit, BPF_REG_10, key, BPF_REG_0);
	if (part != PROBE_WHOLE_WARP)
		return key;
	emit_thread_number(emit);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 5);
	emit_store(emit, BPF_REG_10, key + 8, BPF_REG_0);
	return key;
}

/* How many enter and leave: threads of the block or warp, blocks of the grid; onto the stack. */
static void put_size(struct emit *emit, enum probe_kind part, int key, int to) {
	size_t fewer;

	emit_volume(emit, part == PROBE_WHOLE_GRID);
	if (part == PROBE_WHOLE_WARP) {
		emit_load(emit, BPF_REG_1, BPF_REG_10, key + 8);
		emit_alu_constant(emit, BPF_LSH, BPF_REG_1, 5);
		emit_alu(emit, BPF_SUB, BPF_REG_0, BPF_REG_1);
		fewer = emit_jump_constant(emit, BPF_JLE, BPF_REG_0, 32);
		emit_constant(emit, BPF_REG_0, 32);
		emit_land(emit, fewer);
	}
	emit_store(emit, BPF_REG_10, to, BPF_REG_0);
}

/* So many enter. All but the first leave the program. */
static void enter(struct emit *emit, uint32_t map, enum probe_kind part, int lanes) {
	const int key = part_key(emit, part), first = emit_take(emit, 1),
		  value = emit_take(emit, ELEMENT_WORDS);
	size_t full, stay;

	emit_call(emit, HELPER_TIME);
	emit_store(emit, BPF_REG_10, value + ELEMENT_START, BPF_REG_0);
	emit_constant(emit, BPF_REG_0, 0);
	emit_store(emit, BPF_REG_10, value + ELEMENT_ENTERED, BPF_REG_0);
	emit_store(emit, BPF_REG_10, value + ELEMENT_LEFT, BPF_REG_0);
	emit_map(emit, BPF_REG_1, map);
	address_of(emit, BPF_REG_2, key);
	address_of(emit, BPF_REG_3, value);
	emit_constant(emit, BPF_REG_4, BPF_NOEXIST);
	emit_call(emit, BPF_FUNC_map_update_elem);
	emit_store(emit, BPF_REG_10, first, BPF_REG_0);
	lookup(emit, map, key);
	full = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_load(emit, BPF_REG_1, BPF_REG_10, lanes);
	emit_atomic_add(emit, ELEMENT_ENTERED);
	emit_land(emit, full);
	emit_load(emit, BPF_REG_0, BPF_REG_10, first);
	stay = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_exit(emit);
	emit_land(emit, stay);
	emit_give(emit, 4 + 1 + ELEMENT_WORDS);
}

static void leave_unknown(struct emit *emit) {
	emit_lost(emit, (uint32_t)emit->code->script->n_maps);
	emit_exit(emit);
}

/* So many leave. All but the last ones leave the program, too. The duration is known then. What
 * began before it was probed, found no room, or was mixed up with another launch, is not known. */
static void leave(struct emit *emit, uint32_t map, enum probe_kind part, int lanes) {
	const int key = part_key(emit, part), size = emit_take(emit, 1), start = emit_take(emit, 1),
		  entered = emit_take(emit, 1);
	size_t found, last, known;

	put_size(emit, part, key, size);
	lookup(emit, map, key);
	found = emit_jump_constant(emit, BPF_JNE, BPF_REG_0, 0);
	leave_unknown(emit);
	emit_land(emit, found);
	emit_load(emit, BPF_REG_1, BPF_REG_10, lanes);
	emit_insn(emit, (struct bpf_insn){ .code = BPF_STX | BPF_ATOMIC | BPF_DW,
					   .dst_reg = BPF_REG_0,
					   .src_reg = BPF_REG_1,
					   .off = ELEMENT_LEFT,
					   .imm = BPF_ADD | BPF_FETCH });
	emit_load(emit, BPF_REG_2, BPF_REG_10, lanes);
	emit_alu(emit, BPF_ADD, BPF_REG_1, BPF_REG_2);
	emit_load(emit, BPF_REG_2, BPF_REG_10, size);
	last = emit_jump(emit, BPF_JEQ, BPF_REG_1, BPF_REG_2);
	emit_exit(emit);
	emit_land(emit, last);
	emit_load(emit, BPF_REG_1, BPF_REG_0, ELEMENT_START);
	emit_store(emit, BPF_REG_10, start, BPF_REG_1);
	emit_load(emit, BPF_REG_1, BPF_REG_0, ELEMENT_ENTERED);
	emit_store(emit, BPF_REG_10, entered, BPF_REG_1);
	emit_map(emit, BPF_REG_1, map);
	address_of(emit, BPF_REG_2, key);
	emit_call(emit, BPF_FUNC_map_delete_elem);
	emit_load(emit, BPF_REG_1, BPF_REG_10, entered);
	emit_load(emit, BPF_REG_2, BPF_REG_10, size);
	known = emit_jump(emit, BPF_JEQ, BPF_REG_1, BPF_REG_2);
	leave_unknown(emit);
	emit_land(emit, known);
	emit_call(emit, HELPER_TIME);
	emit_load(emit, BPF_REG_1, BPF_REG_10, start);
	emit_alu(emit, BPF_SUB, BPF_REG_0, BPF_REG_1);
	emit_store(emit, BPF_REG_10, emit->duration, BPF_REG_0);
	emit_give(emit, 4 + 3);
}

void emit_part(struct emit *emit, uint32_t map, bool leaves) {
	const enum probe_kind kind = emit->probe->kind;
	const int lanes = emit_take(emit, 1);
	void (*const some)(struct emit *emit, uint32_t map, enum probe_kind part, int lanes) =
		leaves ? leave : enter;

	emit_lowest(emit, lanes); /* lanes of a warp are in one block */
	if (kind == PROBE_WHOLE_GRID) {
		some(emit, map + 1, PROBE_WHOLE_BLOCK, lanes);
		emit_constant(emit, BPF_REG_0, 1); /* a block of the grid */
		emit_store(emit, BPF_REG_10, lanes, BPF_REG_0);
	}
	some(emit, map, kind, lanes);
	emit_give(emit, 1);
}
