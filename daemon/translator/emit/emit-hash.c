/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for hash maps (emitter.h).
 *
 * Hash maps: calls of device-lib-hash.c, which takes keys and values in words of 8 bytes, padded
 * with zeros. Small ones are made of registers here, so that nothing of them is in memory.
 */

#include "emitter.h"

#define UNROLLED_MAX 64 /* bytes of a key or value that is padded without a loop */
#define N_ARGUMENTS 17 /* of the function with the most */

/* A variable of the function, of n words. */
static LLVMValueRef new_words(struct emitter *e, uint32_t n) {
	LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
	LLVMValueRef words;

	LLVMPositionBuilderBefore(e->builder,
				  LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(e->function)));
	words = LLVMBuildAlloca(e->builder, LLVMArrayType2(e->i64, n), "");
	LLVMSetAlignment(words, 8);
	LLVMPositionBuilderAtEnd(e->builder, here);
	return words;
}

/* The word at byte `from` of what a register points to, of `size` bytes in all. */
static LLVMValueRef load_word(struct emitter *e, unsigned reg, uint32_t from, uint32_t size) {
	uint32_t end = size - from < 8 ? size : from + 8;
	LLVMValueRef word = NULL, part;
	unsigned piece = 8;

	for (uint32_t at = from; at < end; at += piece) {
		struct emit_address address = emit_address(e, reg, at);

		while (piece > end - at)
			piece /= 2;
		part = emit_zext(e, emit_load(e, &address, piece));
		part = LLVMBuildShl(e->builder, part, emit_const(e, 8 * (at - from)), "");
		word = word ? LLVMBuildOr(e->builder, word, part, "") : part;
	}
	return word;
}

/* What a register points to, in words. */
static LLVMValueRef load_words(struct emitter *e, unsigned reg, uint32_t size) {
	LLVMValueRef words = new_words(e, (size + 7) / 8);

	for (uint32_t at = 0; at < size; at += 8) {
		LLVMValueRef index = emit_const(e, at / 8);

		LLVMBuildStore(e->builder, load_word(e, reg, at, size),
			       LLVMBuildGEP2(e->builder, e->i64, words, &index, 1, ""));
	}
	return words;
}

/* The key that R2 points to, in words that nobody else writes. */
static LLVMValueRef load_key(struct emitter *e, uint32_t size) {
	struct emit_address from = emit_address(e, 2, 0);
	LLVMValueRef args[3];

	if (size <= UNROLLED_MAX)
		return load_words(e, 2, size);
	if (!e->long_key)
		e->long_key = new_words(e, MAP_KEY_SIZE_MAX / 8);
	args[0] = e->long_key;
	args[1] = LLVMBuildAddrSpaceCast(e->builder, from.pointer, e->generic_pointer, "");
	args[2] = LLVMConstInt(e->i32, size, false);
	emit_call(e, "gpuprobe_hash_pad", args, 3);
	return e->long_key;
}

/* See struct hash: `used` of a large map is as exact as a 64th of its entries. */
static uint32_t lru_of(const struct translate_map *map) {
	uint32_t bits = 0;

	if (!map_type_has(map->type, MAP_TYPE_LRU))
		return 0;
	while (map->max_entries >> bits > 64)
		bits++;
	return 1 + bits;
}

/* The arguments that all functions of hash maps begin with: the map, and the key. */
static unsigned common_arguments(struct emitter *e, uint32_t map, LLVMValueRef *args) {
	const struct map_layout *layout = &e->layouts[map].layout;
	bool system = layout->place != MAP_PLACE_DEVICE;
	uint32_t key_size = e->maps[map].key_size, lru = lru_of(e->maps + map);
	unsigned n = 0;

	args[n++] = emit_base(e, map);
	args[n++] = emit_const(e, layout->capacity - 1);
	args[n++] = emit_const(e, layout->entry_stride);
	args[n++] = LLVMConstInt(e->i32, map_hash_group_bits(layout), false);
	args[n++] = LLVMConstInt(e->i32, (key_size + 7) / 8, false);
	args[n++] = LLVMConstInt(e->i32, layout->shards, false);
	args[n++] = LLVMConstInt(e->i32, layout->value_stride, false);
	args[n++] = LLVMConstInt(e->i32, e->maps[map].max_entries, false);
	args[n++] = LLVMConstInt(e->i1, key_size <= 4, false);
	/* other objects may delete from a map that is shared, and whoever inserts into an LRU map
	 */
	args[n++] = LLVMConstInt(e->i1, !e->layouts[map].deletes && !system && !lru, false);
	args[n++] = LLVMConstInt(e->i1, system, false);
	args[n++] = LLVMConstInt(e->i32, lru, false);
	args[n++] = load_key(e, key_size);
	return n;
}

void emit_hash_lookup(struct emitter *e, uint32_t map) {
	LLVMValueRef args[N_ARGUMENTS], found = new_words(e, 1);
	unsigned n = common_arguments(e, map, args);

	args[n++] = found;
	emit_set(e, 0, emit_call(e, "gpuprobe_hash_lookup", args, n));
	found = LLVMBuildLoad2(e->builder, e->i8, found, "");
	LLVMBuildStore(e->builder, LLVMBuildTrunc(e->builder, found, e->i1, ""),
		       emit_found(e, analysis_site(e->frame, e->pc)));
}

void emit_hash_update(struct emitter *e, uint32_t map) {
	uint32_t size = e->maps[map].value_size;
	bool words = size <= UNROLLED_MAX;
	LLVMValueRef args[N_ARGUMENTS];
	unsigned n = common_arguments(e, map, args);

	if (words) {
		args[n++] = load_words(e, 3, size);
		size = (size + 7) / 8 * 8;
	} else {
		struct emit_address from = emit_address(e, 3, 0);

		words = from.align == 8 && size % 8 == 0;
		args[n++] =
			LLVMBuildAddrSpaceCast(e->builder, from.pointer, e->generic_pointer, "");
	}
	args[n++] = LLVMConstInt(e->i32, size, false);
	args[n++] = LLVMConstInt(e->i1, words, false);
	args[n++] = emit_get(e, 4);
	emit_set(e, 0, emit_call(e, "gpuprobe_hash_update", args, n));
}

void emit_hash_delete(struct emitter *e, uint32_t map) {
	LLVMValueRef args[N_ARGUMENTS];
	unsigned n = common_arguments(e, map, args);

	emit_set(e, 0, emit_call(e, "gpuprobe_hash_delete", args, n));
}
