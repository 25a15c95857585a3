/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for variables of a thread (emitter.h).
 *
 * The words that a program uses are parameters and, behind r0, parts of its result. In between they
 * lie in a local array that LLVM takes apart, as stacks. A place that is no constant is found by
 * comparisons with each word, since an array with such an index would stay in memory; of a choice
 * between two variables LLVM leaves one comparison.
 */

#include "emitter.h"

static bool uses_word(const struct emitter *e, unsigned word) {
	return e->analysis->words >> word & 1;
}

static LLVMValueRef byte_pointer(struct emitter *e, uint64_t offset) {
	LLVMValueRef index = emit_const(e, offset);

	return LLVMBuildGEP2(e->builder, e->i8, e->thread, &index, 1, "");
}

static LLVMValueRef load_word(struct emitter *e, unsigned word) {
	return LLVMBuildLoad2(e->builder, e->i64, byte_pointer(e, 8 * word), "");
}

/* The type of the program's result: r0, and the words that it uses. */
LLVMTypeRef emit_thread_result(struct emitter *e) {
	unsigned n = 1 + (unsigned)__builtin_popcount(e->analysis->words);
	LLVMTypeRef types[1 + POINT_THREAD_WORDS];

	if (n == 1)
		return e->i64;
	for (unsigned i = 0; i < n; i++)
		types[i] = e->i64;
	return LLVMStructTypeInContext(e->context, types, n, false);
}

/* In the first block. parameters: the words that the program uses. */
void emit_thread_begin(struct emitter *e, LLVMValueRef const *parameters) {
	if (!e->analysis->words)
		return;
	e->thread = LLVMBuildAlloca(e->builder,
				    LLVMArrayType2(e->i8, 8 * (uint64_t)POINT_THREAD_WORDS), "");
	LLVMSetAlignment(e->thread, 8);
	for (unsigned word = 0; word < POINT_THREAD_WORDS; word++)
		if (uses_word(e, word))
			LLVMBuildStore(e->builder, *parameters++, byte_pointer(e, 8 * word));
}

/* The program ends. */
void emit_return(struct emitter *e, LLVMValueRef r0) {
	LLVMTypeRef type = emit_thread_result(e);
	LLVMValueRef result;
	unsigned n = 0;

	if (!e->analysis->words) {
		LLVMBuildRet(e->builder, r0);
		return;
	}
	result = LLVMBuildInsertValue(e->builder, LLVMGetUndef(type), r0, n++, "");
	for (unsigned word = 0; word < POINT_THREAD_WORDS; word++)
		if (uses_word(e, word))
			result = LLVMBuildInsertValue(e->builder, result, load_word(e, word), n++,
						      "");
	LLVMBuildRet(e->builder, result);
}

struct emit_address emit_thread_address(struct emitter *e, const struct value *base, unsigned reg,
					int64_t offset) {
	struct emit_address address = { .kind = VALUE_THREAD };
	unsigned align;

	if (!base->exact) {
		address.place =
			LLVMBuildAdd(e->builder, emit_get(e, reg),
				     emit_const(e, (uint64_t)offset - ANALYSIS_THREAD_ADDRESS), "");
		return address;
	}
	offset += (int64_t)base->bits;
	align = offset ? (unsigned)__builtin_ctzll((uint64_t)offset) : 3;
	address.align = 1u << (align < 3 ? align : 3);
	address.pointer = byte_pointer(e, (uint64_t)offset);
	return address;
}

/* Whether the place lies in this word. */
static LLVMValueRef is_in_word(struct emitter *e, const struct emit_address *address,
			       unsigned word) {
	LLVMValueRef number = LLVMBuildLShr(e->builder, address->place, emit_const(e, 3), "");

	return LLVMBuildICmp(e->builder, LLVMIntEQ, number, emit_const(e, word), "");
}

/* How far the place is from the start of its word, in bits. */
static LLVMValueRef shift_of(struct emitter *e, const struct emit_address *address) {
	LLVMValueRef bytes = LLVMBuildAnd(e->builder, address->place, emit_const(e, 7), "");

	return LLVMBuildShl(e->builder, bytes, emit_const(e, 3), "");
}

/* Loads from a place that is no constant. The analysis has seen that it is aligned. */
LLVMValueRef emit_thread_load(struct emitter *e, const struct emit_address *address,
			      unsigned bytes) {
	LLVMValueRef value = emit_const(e, 0);

	for (unsigned word = 0; word < POINT_THREAD_WORDS; word++)
		if (uses_word(e, word))
			value = LLVMBuildSelect(e->builder, is_in_word(e, address, word),
						load_word(e, word), value, "");
	value = LLVMBuildLShr(e->builder, value, shift_of(e, address), "");
	return LLVMBuildTrunc(e->builder, value, emit_int(e, bytes), "");
}

/* The same for stores. value: an integer of that size. */
void emit_thread_store(struct emitter *e, const struct emit_address *address, unsigned bytes,
		       LLVMValueRef value) {
	LLVMValueRef shift = shift_of(e, address), mask;

	mask = emit_const(e, bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1);
	mask = LLVMBuildNot(e->builder, LLVMBuildShl(e->builder, mask, shift, ""), "");
	value = LLVMBuildShl(e->builder, emit_zext(e, value), shift, "");
	for (unsigned word = 0; word < POINT_THREAD_WORDS; word++) {
		LLVMValueRef old, changed;

		if (!uses_word(e, word))
			continue;
		old = load_word(e, word);
		changed = LLVMBuildAnd(e->builder, old, mask, "");
		changed = LLVMBuildOr(e->builder, changed, value, "");
		changed =
			LLVMBuildSelect(e->builder, is_in_word(e, address, word), changed, old, "");
		LLVMBuildStore(e->builder, changed, byte_pointer(e, 8 * word));
	}
}
