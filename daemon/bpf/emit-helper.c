/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Helpers. The device library has the arithmetic; what touches the program's memory (keys, values,
 * results) is done here, where it is known that the memory is a stack that can become registers.
 */

#include <errno.h>
#include <stddef.h>

#include "emitter.h"
#include "helper.h"

#define COPY_UNROLLED_MAX 128 /* bytes of a value that is stored without a loop */

/* The address of the value for the key that R2 points to, or 0; whether there is one; the key. */
struct lookup {
	LLVMValueRef address, found, index;
};

/* The address of a map's data, 0 where it is not armed. */
static LLVMValueRef emit_base(struct emitter *e, uint32_t map)
{
	LLVMValueRef base;

	if (e->layouts[map].resident)
		return LLVMConstPtrToInt(e->map[map].slot, e->i64);
	base = LLVMBuildLoad2(e->builder, e->i64, e->map[map].slot, "");
	/* written by the host between launches only */
	LLVMSetMetadata(base, LLVMGetMDKindIDInContext(e->context, "invariant.load", 14),
			LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, NULL, 0)));
	return base;
}

static struct lookup emit_lookup(struct emitter *e, uint32_t map)
{
	const struct translate_map_result *layout = e->layouts + map;
	struct emit_address key = emit_address(e, 2, 0);
	LLVMValueRef args[5];
	struct lookup lookup;

	lookup.index = emit_load(e, &key, 4);
	args[0] = emit_base(e, map);
	args[1] = lookup.index;
	args[2] = LLVMConstInt(e->i32, e->maps[map].max_entries, false);
	if (layout->resident)
		lookup.found = LLVMBuildICmp(e->builder, LLVMIntULT, args[1], args[2], "");
	else
		lookup.found = emit_call(e, "gpuprobe_array_has", args, 3);
	args[2] = emit_const(e, layout->value_stride);
	args[3] = LLVMConstInt(e->i32, layout->shards - 1, false);
	args[4] = emit_const(e, layout->shard_stride);
	lookup.address = LLVMBuildSelect(e->builder, lookup.found,
					 emit_call(e, "gpuprobe_array_address", args, 5),
					 emit_const(e, 0), "");
	return lookup;
}

/* Stores `size` bytes from where R3 points to at `to`. */
static void emit_copy(struct emitter *e, LLVMValueRef to, uint32_t size)
{
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
		target.pointer = LLVMBuildIntToPtr(
			e->builder, LLVMBuildAdd(e->builder, to, emit_const(e, at), ""),
			e->global_pointer, "");
		emit_store(e, &target, piece, emit_load(e, &source, piece));
	}
}

static LLVMValueRef choose(struct emitter *e, LLVMValueRef condition, int error,
			   LLVMValueRef otherwise)
{
	return LLVMBuildSelect(e->builder, condition, emit_const(e, (uint64_t)(int64_t)-error),
			       otherwise, "");
}

static void emit_update(struct emitter *e, uint32_t map)
{
	LLVMValueRef flags = emit_get(e, 4), zero = emit_const(e, 0), result, condition;
	LLVMBasicBlockRef store = emit_new_block(e, "store"), done = emit_new_block(e, "stored");
	struct lookup lookup = emit_lookup(e, map);

	result = choose(e, LLVMBuildNot(e->builder, lookup.found, ""), ENODEV, zero);
	condition = LLVMBuildICmp(e->builder, LLVMIntEQ, flags, emit_const(e, BPF_NOEXIST), "");
	result = choose(e, condition, EEXIST, result);
	condition = LLVMBuildICmp(e->builder, LLVMIntUGE, lookup.index,
				  LLVMConstInt(e->i32, e->maps[map].max_entries, false), "");
	result = choose(e, condition, E2BIG, result);
	condition = LLVMBuildICmp(e->builder, LLVMIntUGT, flags, emit_const(e, BPF_EXIST), "");
	result = choose(e, condition, EINVAL, result);

	emit_set(e, 0, result);
	LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, result, zero, ""), store,
			done);
	LLVMPositionBuilderAtEnd(e->builder, store);
	emit_copy(e, lookup.address, e->maps[map].value_size);
	LLVMBuildBr(e->builder, done);
	LLVMPositionBuilderAtEnd(e->builder, done);
}

void emit_helper(struct emitter *e, const struct bpf_insn *insn)
{
	const struct helper *helper = helper_find((uint32_t)insn->imm);
	uint32_t map = e->state->registers[1].ref;
	struct lookup lookup;

	switch (helper->kind) {
	case HELPER_MAP_LOOKUP:
		lookup = emit_lookup(e, map);
		emit_set(e, 0, lookup.address);
		LLVMBuildStore(e->builder, lookup.found,
			       emit_found(e, analysis_site(e->frame, e->pc)));
		return;
	case HELPER_MAP_UPDATE:
		emit_update(e, map);
		return;
	case HELPER_MAP_DELETE:
		/* elements of arrays always exist */
		emit_set(e, 0, emit_const(e, (uint64_t)(int64_t)-EINVAL));
		return;
	case HELPER_SCALAR:
		emit_set(e, 0, emit_call(e, helper->device[0], NULL, 0));
		return;
	case HELPER_TRIPLE:
		for (unsigned i = 0; i < 3; i++) {
			struct emit_address to = emit_address(e, i + 1, 0);

			emit_store(e, &to, 8, emit_call(e, helper->device[i], NULL, 0));
		}
		emit_set(e, 0, emit_const(e, 0));
		return;
	default:
		emit_call(e, "gpuprobe_membar", NULL, 0);
		emit_set(e, 0, emit_const(e, 0));
	}
}
