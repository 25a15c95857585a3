/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for arrays (emitter.h).
 *
 * Lookups and updates of arrays and of arrays with a value for each thread. The device library has
 * the arithmetic; what touches the program's memory (keys, values) is done here, where it is known
 * that the memory is a stack that can become registers.
 */

#include <errno.h>

#include "emitter.h"

#define COPY_UNROLLED_MAX 128 /* bytes of a value that is stored without a loop */

/* Where the value for the key that R2 points to is. */
struct place {
	LLVMValueRef base; /* of the instance; 0: not armed */
	LLVMValueRef fits; /* the map has such a value */
	LLVMValueRef found; /* and the instance is armed */
	LLVMValueRef address; /* of the value, if found */
};

/* An array: the shard of the SM. */
static void place_array(struct emitter *e, const struct map_layout *layout, LLVMValueRef index,
			struct place *place) {
	LLVMValueRef args[5] = { place->base, index, emit_const(e, layout->value_stride),
				 LLVMConstInt(e->i32, layout->shards - 1, false),
				 emit_const(e, layout->shard_stride) };

	place->address = emit_call(e, "gpuprobe_array_address", args, 5);
}

/* A value for each thread: this one's. */
static void place_threads(struct emitter *e, const struct map_layout *layout, LLVMValueRef index,
			  struct place *place) {
	LLVMValueRef thread = emit_call(e, "gpuprobe_thread_number", NULL, 0), number;

	place->fits = LLVMBuildAnd(e->builder, place->fits,
				   LLVMBuildICmp(e->builder, LLVMIntULT, thread,
						 emit_const(e, layout->threads), ""),
				   "");
	number = LLVMBuildMul(e->builder, emit_zext(e, index), emit_const(e, layout->threads), "");
	number = LLVMBuildAdd(e->builder, number, thread, "");
	number = LLVMBuildMul(e->builder, number, emit_const(e, layout->value_stride), "");
	place->address = LLVMBuildAdd(e->builder, place->base, number, "");
}

static struct place find_place(struct emitter *e, uint32_t map) {
	const struct map_layout *layout = &e->layouts[map].layout;
	struct emit_address key = emit_address(e, 2, 0);
	LLVMValueRef index = emit_load(e, &key, 4);
	struct place place = { .base = emit_base(e, map) };

	place.fits = LLVMBuildICmp(e->builder, LLVMIntULT, index,
				   LLVMConstInt(e->i32, e->maps[map].max_entries, false), "");
	if (layout->kind == MAP_KIND_THREADS)
		place_threads(e, layout, index, &place);
	else
		place_array(e, layout, index, &place);
	place.found = place.fits;
	if (!emit_is_resident(e, map))
		place.found = LLVMBuildAnd(
			e->builder, place.fits,
			LLVMBuildICmp(e->builder, LLVMIntNE, place.base, emit_const(e, 0), ""), "");
	return place;
}

void emit_map_lookup(struct emitter *e, uint32_t map) {
	struct place place = find_place(e, map);

	emit_set(e, 0,
		 LLVMBuildSelect(e->builder, place.found, place.address, emit_const(e, 0), ""));
	LLVMBuildStore(e->builder, place.found, emit_found(e, analysis_site(e->frame, e->pc)));
}

/* Stores `size` bytes from where R3 points to at `to`. */
static void emit_copy(struct emitter *e, LLVMValueRef to, uint32_t size) {
	struct emit_address from = emit_address(e, 3, 0);
	LLVMValueRef args[4];
	unsigned piece = 8;

	if (size > COPY_UNROLLED_MAX) {
		args[0] = to;
		args[1] = LLVMBuildAddrSpaceCast(e->builder, from.pointer, e->generic_pointer, "");
		args[2] = emit_const(e, size);
		args[3] = LLVMConstInt(e->i1, from.align == 8, false);
		emit_call(e, "gpuprobe_copy", args, 4);
		return;
	}
	for (uint32_t at = 0; at < size; at += piece) {
		struct emit_address source, target = { .kind = VALUE_MAP_VALUE };

		while (piece > size - at)
			piece /= 2;
		source = emit_address(e, 3, at);
		target.align = piece;
		target.pointer =
			LLVMBuildIntToPtr(e->builder,
					  LLVMBuildAdd(e->builder, to, emit_const(e, at), ""),
					  e->global_pointer, "");
		emit_store(e, &target, piece, emit_load(e, &source, piece));
	}
}

/* The value that R3 points to, of at most 8 bytes, as a number; and the time. */
static void emit_store_latest(struct emitter *e, LLVMValueRef to, uint32_t size) {
	LLVMValueRef args[2] = { to, emit_const(e, 0) };
	unsigned piece = 8;

	for (uint32_t at = 0; at < size; at += piece) {
		struct emit_address source;
		LLVMValueRef part;

		while (piece > size - at)
			piece /= 2;
		source = emit_address(e, 3, at);
		part = emit_zext(e, emit_load(e, &source, piece));
		part = LLVMBuildShl(e->builder, part, emit_const(e, 8 * at), "");
		args[1] = LLVMBuildOr(e->builder, args[1], part, "");
	}
	emit_call(e, "gpuprobe_store_latest", args, 2);
}

static LLVMValueRef choose(struct emitter *e, LLVMValueRef condition, int error,
			   LLVMValueRef otherwise) {
	return LLVMBuildSelect(e->builder, condition, emit_const(e, (uint64_t)(int64_t)-error),
			       otherwise, "");
}

void emit_map_update(struct emitter *e, uint32_t map) {
	LLVMValueRef flags = emit_get(e, 4), zero = emit_const(e, 0), result, condition;
	LLVMBasicBlockRef store = emit_new_block(e, "store"), done = emit_new_block(e, "stored");
	struct place place = find_place(e, map);

	result = choose(e, LLVMBuildNot(e->builder, place.found, ""), ENODEV, zero);
	condition = LLVMBuildICmp(e->builder, LLVMIntEQ, flags, emit_const(e, BPF_NOEXIST), "");
	result = choose(e, condition, EEXIST, result);
	result = choose(e, LLVMBuildNot(e->builder, place.fits, ""), E2BIG, result);
	condition = LLVMBuildICmp(e->builder, LLVMIntUGT, flags, emit_const(e, BPF_EXIST), "");
	result = choose(e, condition, EINVAL, result);

	emit_set(e, 0, result);
	LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, result, zero, ""), store,
			done);
	LLVMPositionBuilderAtEnd(e->builder, store);
	if (e->layouts[map].layout.merge == MAP_MERGE_LATEST)
		emit_store_latest(e, place.address, e->maps[map].value_size);
	else
		emit_copy(e, place.address, e->maps[map].value_size);
	LLVMBuildBr(e->builder, done);
	LLVMPositionBuilderAtEnd(e->builder, done);
}
