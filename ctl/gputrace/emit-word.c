/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What an event on the GPU has: from the context of gpuprobe.bpf.h, or from a helper of
 * proto/helper.h.
 */

#include "emit.h"
#include "words.h"

/* Offsets in struct gpuprobe_launch_ctx and struct gpuprobe_memory_ctx (gpuprobe.bpf.h). */
enum {
	CTX_KERNEL = 0,
	CTX_DEVICE = 8,
	CTX_PID = 16,
	CTX_GRID = 24, /* x | y << 32 */
	CTX_GRID_Z = 32,
	CTX_BLOCK = 40, /* x | y << 16 | z << 32 */
	CTX_SHARED = 48,
	CTX_PARAMS = 64,
	CTX_LAUNCH = 136, /* id, stream, thread, node */
	MEMORY_INSTRUCTION = 0,
	MEMORY_ADDRESS = 8,
	MEMORY_SIZE = 16,
	MEMORY_SPACE = 24,
	MEMORY_KIND = 32,
	MEMORY_VALUE = 40,
	MEMORY_LAUNCH = 48,
};

enum {
	HELPER_BLOCK = 503,
	HELPER_THREAD = 505,
	HELPER_SM = 509,
	HELPER_LANE = 511,
};

/* The offset of a word that is a field of the context, or -1. */
static int field_of(const struct emit *emit, enum word_id id) {
	const bool memory = emit->program->memory;
	const int launch = memory ? MEMORY_LAUNCH : CTX_LAUNCH;

	switch (id) {
	case WORD_KERNEL:
		return memory ? MEMORY_INSTRUCTION : CTX_KERNEL;
	case WORD_LINE:
	case WORD_INSN:
	case WORD_TYPE:
		return MEMORY_INSTRUCTION;
	case WORD_DEVICE:
		return CTX_DEVICE;
	case WORD_PID:
		return CTX_PID;
	case WORD_GRID_Z:
		return CTX_GRID_Z;
	case WORD_SMEM:
		return CTX_SHARED;
	case WORD_ADDR:
		return MEMORY_ADDRESS;
	case WORD_BYTES:
		return MEMORY_SIZE;
	case WORD_VALUE:
		return MEMORY_VALUE;
	case WORD_LAUNCH:
		return launch;
	case WORD_STREAM:
		return launch + 8;
	case WORD_NODE:
		return launch + 24;
	default:
		return -1;
	}
}

bool emit_word_direct(struct emit *emit, const struct node *node, int to) {
	const enum word_id id = node->word->id;
	const int field = field_of(emit, id);

	if (emit->clause->of_warp && !emit->in_lane && id >= WORD_LANES && id <= WORD_BYTES) {
		emit_load(emit, to, BPF_REG_10, emit->words[id - WORD_LANES]);
		return true;
	}
	if (node->word->id == WORD_DURATION)
		emit_load(emit, to, BPF_REG_10, emit->duration);
	else if (field >= 0)
		emit_load(emit, to, BPF_REG_6, field);
	return node->word->id == WORD_DURATION || field >= 0;
}

/* Bits of a field. */
static void part(struct emit *emit, int to, int field, int shift, int bits) {
	emit_load(emit, to, BPF_REG_6, field);
	emit_alu_constant(emit, BPF_LSH, to, 64 - bits - shift);
	emit_alu_constant(emit, BPF_RSH, to, 64 - bits);
}

static void grid(struct emit *emit, int to, int axis) {
	if (axis == 2)
		emit_load(emit, to, BPF_REG_6, CTX_GRID_Z);
	else
		part(emit, to, CTX_GRID, 32 * axis, 32);
}

static void block(struct emit *emit, int to, int axis) {
	part(emit, to, CTX_BLOCK, 16 * axis, 16);
}

/* All three sides multiplied. */
static void volume(struct emit *emit, void (*side)(struct emit *emit, int to, int axis)) {
	side(emit, BPF_REG_0, 0);
	for (int axis = 1; axis < 3; axis++) {
		side(emit, BPF_REG_1, axis);
		emit_alu(emit, BPF_MUL, BPF_REG_0, BPF_REG_1);
	}
}

/* Calls a helper that writes three numbers; returns where the first of them is. */
static int triple(struct emit *emit, int helper) {
	const int place = emit_take(emit, 3);

	for (int axis = 0; axis < 3; axis++) {
		emit_move(emit, BPF_REG_1 + axis, BPF_REG_10);
		emit_alu_constant(emit, BPF_ADD, BPF_REG_1 + axis, place + 8 * axis);
	}
	emit_call(emit, helper);
	return place;
}

static void axis_of(struct emit *emit, int helper, int axis) {
	const int place = triple(emit, helper);

	emit_load(emit, BPF_REG_0, BPF_REG_10, place + 8 * axis);
	emit_give(emit, 3);
}

/* x + width * (y + height * z), of the box that a helper's numbers lie in. */
static void linear(struct emit *emit, int helper,
		   void (*side)(struct emit *emit, int to, int axis)) {
	const int place = triple(emit, helper);

	emit_load(emit, BPF_REG_0, BPF_REG_10, place + 16);
	for (int axis = 1; axis >= 0; axis--) {
		side(emit, BPF_REG_1, axis);
		emit_alu(emit, BPF_MUL, BPF_REG_0, BPF_REG_1);
		emit_load(emit, BPF_REG_1, BPF_REG_10, place + 8 * axis);
		emit_alu(emit, BPF_ADD, BPF_REG_0, BPF_REG_1);
	}
	emit_give(emit, 3);
}

void emit_block_number(struct emit *emit) {
	linear(emit, HELPER_BLOCK, grid);
}

void emit_thread_number(struct emit *emit) {
	linear(emit, HELPER_THREAD, block);
}

void emit_volume(struct emit *emit, bool of_grid) {
	volume(emit, of_grid ? grid : block);
}

void emit_launch_key(struct emit *emit, int place) {
	emit_load(emit, BPF_REG_0, BPF_REG_6, CTX_LAUNCH);
	emit_store(emit, BPF_REG_10, place, BPF_REG_0);
	emit_load(emit, BPF_REG_0, BPF_REG_6, CTX_KERNEL);
	emit_store(emit, BPF_REG_10, place + 8, BPF_REG_0);
}

void emit_word(struct emit *emit, const struct node *node) {
	const enum word_id id = node->word->id;

	if (emit_word_direct(emit, node, BPF_REG_0))
		return;
	switch (id) {
	case WORD_GRID:
		volume(emit, grid);
		break;
	case WORD_GRID_X:
	case WORD_GRID_Y:
		grid(emit, BPF_REG_0, (int)id - WORD_GRID_X);
		break;
	case WORD_BLOCKDIM:
		volume(emit, block);
		break;
	case WORD_BLOCKDIM_X:
	case WORD_BLOCKDIM_Y:
	case WORD_BLOCKDIM_Z:
		block(emit, BPF_REG_0, (int)id - WORD_BLOCKDIM_X);
		break;
	case WORD_BLOCKID:
		emit_block_number(emit);
		break;
	case WORD_BLOCKID_X:
	case WORD_BLOCKID_Y:
	case WORD_BLOCKID_Z:
		axis_of(emit, HELPER_BLOCK, (int)id - WORD_BLOCKID_X);
		break;
	case WORD_THREADID:
		emit_thread_number(emit);
		break;
	case WORD_THREADID_X:
	case WORD_THREADID_Y:
	case WORD_THREADID_Z:
		axis_of(emit, HELPER_THREAD, (int)id - WORD_THREADID_X);
		break;
	case WORD_WARP:
		emit_thread_number(emit);
		emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 5);
		break;
	case WORD_GPUTIME:
		emit_call(emit, HELPER_TIME);
		break;
	case WORD_SM:
		emit_call(emit, HELPER_SM);
		break;
	case WORD_LANE:
		emit_call(emit, HELPER_LANE);
		break;
	default:
		emit_fail(emit, "%s is not on the GPU", node->text);
	}
}

/* ---- which thread a probe means ---- */

static void leave_unless_zero(struct emit *emit) {
	const size_t stay = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);

	emit_exit(emit);
	emit_land(emit, stay);
}

static void filter_space(struct emit *emit) {
	static const char spaces[] = " gsl"; /* global 1, shared 2, local 3 */
	int32_t number = 1;

	while (spaces[number] != *emit->probe->space)
		number++;
	emit_load(emit, BPF_REG_0, BPF_REG_6, MEMORY_SPACE);
	emit_alu_constant(emit, BPF_SUB, BPF_REG_0, number);
	leave_unless_zero(emit);
}

static void filter_access(struct emit *emit) {
	size_t stay;

	emit_load(emit, BPF_REG_1, BPF_REG_6, MEMORY_KIND);
	emit_alu_constant(emit, BPF_AND, BPF_REG_1, 31);
	emit_constant(emit, BPF_REG_0, 1);
	emit_alu(emit, BPF_LSH, BPF_REG_0, BPF_REG_1);
	emit_alu_constant(emit, BPF_AND, BPF_REG_0, (int32_t)emit->probe->access);
	stay = emit_jump_constant(emit, BPF_JNE, BPF_REG_0, 0);
	emit_exit(emit);
	emit_land(emit, stay);
}

void emit_filter(struct emit *emit) {
	int place;

	switch (emit->probe->kind) {
	case PROBE_BLOCK_LEAD:
		place = triple(emit, HELPER_THREAD);
		emit_load(emit, BPF_REG_0, BPF_REG_10, place);
		for (int axis = 1; axis < 3; axis++) {
			emit_load(emit, BPF_REG_1, BPF_REG_10, place + 8 * axis);
			emit_alu(emit, BPF_OR, BPF_REG_0, BPF_REG_1);
		}
		emit_give(emit, 3);
		leave_unless_zero(emit);
		break;
	case PROBE_WARP_LEAD:
		emit_thread_number(emit);
		emit_alu_constant(emit, BPF_AND, BPF_REG_0, 31);
		leave_unless_zero(emit);
		break;
	case PROBE_MEMORY:
	case PROBE_WARP_MEMORY:
		if (emit->probe->space)
			filter_space(emit);
		if (emit->probe->access)
			filter_access(emit);
		break;
	default:
		break;
	}
}

/* ---- durations ---- */

/* The name of a thread of a launch, as a key on the stack. */
static int time_key(struct emit *emit) {
	const int place = emit_take(emit, 4);

	emit_block_number(emit);
	emit_store(emit, BPF_REG_10, place, BPF_REG_0);
	emit_thread_number(emit);
	emit_store(emit, BPF_REG_10, place + 8, BPF_REG_0);
	emit_launch_key(emit, place + 16);
	return place;
}

static void map_and_key(struct emit *emit, uint32_t map, int key) {
	emit_map(emit, BPF_REG_1, map);
	emit_move(emit, BPF_REG_2, BPF_REG_10);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_2, key);
}

/* Launches that are not known by a number can have threads of the same key at once: whose end is
 * whose is not known then, so the time becomes 0, which is none. */
void emit_keep_time(struct emit *emit, uint32_t map) {
	const int key = time_key(emit), time = emit_take(emit, 1);
	size_t kept, full;

	emit_call(emit, HELPER_TIME);
	emit_store(emit, BPF_REG_10, time, BPF_REG_0);
	map_and_key(emit, map, key);
	emit_move(emit, BPF_REG_3, BPF_REG_10);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_3, time);
	emit_constant(emit, BPF_REG_4, BPF_NOEXIST);
	emit_call(emit, BPF_FUNC_map_update_elem);
	kept = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	map_and_key(emit, map, key);
	emit_call(emit, BPF_FUNC_map_lookup_elem);
	full = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_constant(emit, BPF_REG_1, 0);
	emit_store(emit, BPF_REG_0, 0, BPF_REG_1);
	emit_land(emit, kept);
	emit_land(emit, full);
	emit_give(emit, 5);
}

/* What began before it was probed, found no room, or is not known for sure, is lost. */
void emit_take_time(struct emit *emit, uint32_t map) {
	const int key = time_key(emit), start = emit_take(emit, 1);
	size_t missing, known;

	emit_call(emit, HELPER_TIME);
	emit_store(emit, BPF_REG_10, emit->duration, BPF_REG_0);
	emit_constant(emit, BPF_REG_1, 0);
	emit_store(emit, BPF_REG_10, start, BPF_REG_1);
	map_and_key(emit, map, key);
	emit_call(emit, BPF_FUNC_map_lookup_elem);
	missing = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_load(emit, BPF_REG_1, BPF_REG_0, 0);
	emit_store(emit, BPF_REG_10, start, BPF_REG_1);
	map_and_key(emit, map, key);
	emit_call(emit, BPF_FUNC_map_delete_elem);
	emit_land(emit, missing);
	emit_load(emit, BPF_REG_1, BPF_REG_10, start);
	known = emit_jump_constant(emit, BPF_JNE, BPF_REG_1, 0);
	emit_lost(emit, (uint32_t)emit->code->script->n_maps);
	emit_exit(emit);
	emit_land(emit, known);
	emit_load(emit, BPF_REG_1, BPF_REG_10, start);
	emit_load(emit, BPF_REG_2, BPF_REG_10, emit->duration);
	emit_alu(emit, BPF_SUB, BPF_REG_2, BPF_REG_1);
	emit_store(emit, BPF_REG_10, emit->duration, BPF_REG_2);
	emit_give(emit, 5);
}
