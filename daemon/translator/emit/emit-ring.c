/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for rings (emitter.h).
 *
 * Rings. A record that is written at once goes from where it is into the ring; one that was
 * reserved is a variable of the thread until it is submitted, so that the ring is never held up by
 * a thread that thinks. Records of a size that device-lib-ring.c transposes are copied word by word
 * first: then they are registers.
 */

#include <errno.h>

#include "emitter.h"
#include "proto/helper.h"

#define TRANSPOSED_MAX 64 /* bytes; see device-lib-ring.c */

/* A variable, which stands in the first block. */
static LLVMValueRef variable(struct emitter *e, LLVMTypeRef type, LLVMValueRef initial) {
	LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
	LLVMValueRef result;

	LLVMPositionBuilderBefore(e->builder,
				  LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(e->function)));
	result = LLVMBuildAlloca(e->builder, type, "");
	LLVMSetAlignment(result, 16);
	if (initial)
		LLVMBuildStore(e->builder, initial, result);
	LLVMPositionBuilderAtEnd(e->builder, here);
	return result;
}

struct emit_record *emit_record(struct emitter *e, const struct value *value) {
	struct emit_record *record = e->records;

	while (record < e->records + e->n_records && record->site != value->site)
		record++;
	if (record < e->records + e->n_records)
		return record;
	e->n_records++;
	record->site = value->site;
	record->held = variable(e, e->i1, LLVMConstInt(e->i1, 0, false));
	record->bytes = variable(e, LLVMArrayType2(e->i8, value->size ? value->size : 1), NULL);
	return record;
}

/* The largest record of a ring. */
static uint32_t size_max(const struct translate_map *map) {
	return map->type == BPF_MAP_TYPE_GPU_RINGBUF_MAP && map->value_size &&
			       map->value_size < MAP_RECORD_SIZE_MAX
		       ? map->value_size
		       : MAP_RECORD_SIZE_MAX;
}

LLVMValueRef emit_ring_write(struct emitter *e, uint32_t map, LLVMValueRef data, LLVMValueRef size,
			     bool aligned) {
	const struct map_layout *layout = &e->layouts[map].layout;
	LLVMValueRef args[7] = {
		emit_base(e, map),
		LLVMConstInt(e->i32, layout->rings - 1, false),
		emit_const(e, layout->ring_size),
		data,
		size,
		LLVMConstInt(e->i1, LLVMIsConstant(size), false),
		LLVMConstInt(e->i1, aligned, false),
	};

	return emit_call(e, "gpuprobe_ring_write", args, 7);
}

/* A copy in words of what is at `from`, for a size that can become registers. */
static LLVMValueRef copy_words(struct emitter *e, const struct emit_address *from, uint32_t size) {
	LLVMValueRef copy = variable(e, LLVMArrayType2(e->i32, size / 4), NULL);

	for (uint32_t at = 0; at < size; at += 4) {
		LLVMValueRef index = emit_const(e, at);
		struct emit_address source = *from, target = { .kind = VALUE_STACK, .align = 4 };

		source.align = from->align < 4 ? from->align : 4;
		source.pointer = LLVMBuildGEP2(e->builder, e->i8, from->pointer, &index, 1, "");
		target.pointer = LLVMBuildGEP2(e->builder, e->i8, copy, &index, 1, "");
		emit_store(e, &target, 4, emit_load(e, &source, 4));
	}
	return copy;
}

/* Writes a record of a constant size; whether it was written. */
static LLVMValueRef write_constant(struct emitter *e, uint32_t map, const struct emit_address *from,
				   uint32_t size) {
	LLVMValueRef data;

	if (size % 4 == 0 && size <= TRANSPOSED_MAX)
		data = copy_words(e, from, size);
	else
		data = LLVMBuildAddrSpaceCast(e->builder, from->pointer, e->generic_pointer, "");
	return emit_ring_write(e, map, data, LLVMConstInt(e->i32, size, false), from->align == 8);
}

static LLVMValueRef error_number(struct emitter *e, int error) {
	return emit_const(e, (uint64_t)(int64_t)-error);
}

/* bpf_perf_event_output(context, map, flags, data, size), bpf_ringbuf_output(map, data, size,
 * flags) */
static void emit_output(struct emitter *e, unsigned map_reg, unsigned data_reg, int error) {
	uint32_t map = e->state->registers[map_reg].ref, max = size_max(e->maps + map);
	const struct value *size = e->state->registers + data_reg + 1;
	struct emit_address from = emit_address(e, data_reg, 0);
	LLVMBasicBlockRef fits, done;
	LLVMValueRef written, n, ok;

	if (size->kind == VALUE_CONST) {
		if (!size->bits || size->bits > max) {
			emit_set(e, 0, error_number(e, size->bits ? E2BIG : EINVAL));
			return;
		}
		written = write_constant(e, map, &from, (uint32_t)size->bits);
		emit_set(e, 0,
			 LLVMBuildSelect(e->builder, written, emit_const(e, 0),
					 error_number(e, error), ""));
		return;
	}
	fits = emit_new_block(e, "fits");
	done = emit_new_block(e, "done");
	n = emit_get(e, data_reg + 1);
	ok = LLVMBuildICmp(e->builder, LLVMIntEQ, n, emit_const(e, 0), "");
	emit_set(e, 0,
		 LLVMBuildSelect(e->builder, ok, error_number(e, EINVAL), error_number(e, E2BIG),
				 ""));
	ok = LLVMBuildICmp(e->builder, LLVMIntULT,
			   LLVMBuildSub(e->builder, n, emit_const(e, 1), ""), emit_const(e, max),
			   "");
	LLVMBuildCondBr(e->builder, ok, fits, done);
	LLVMPositionBuilderAtEnd(e->builder, fits);
	written = emit_ring_write(
		e, map, LLVMBuildAddrSpaceCast(e->builder, from.pointer, e->generic_pointer, ""),
		LLVMBuildTrunc(e->builder, n, e->i32, ""), from.align == 8);
	emit_set(e, 0,
		 LLVMBuildSelect(e->builder, written, emit_const(e, 0), error_number(e, error),
				 ""));
	LLVMBuildBr(e->builder, done);
	LLVMPositionBuilderAtEnd(e->builder, done);
}

/* bpf_ringbuf_reserve(map, size, flags) */
static void emit_reserve(struct emitter *e) {
	uint32_t map = e->state->registers[1].ref;
	uint64_t size = e->state->registers[2].bits;
	const struct value value = { .kind = VALUE_RECORD,
				     .site = analysis_site(e->frame, e->pc),
				     .size = (uint32_t)size };
	struct emit_record *record;
	LLVMValueRef held;

	if (!size || size > size_max(e->maps + map)) {
		emit_set(e, 0, emit_const(e, 0));
		return;
	}
	record = emit_record(e, &value);
	held = LLVMBuildLoad2(e->builder, e->i1, record->held, "");
	LLVMBuildStore(e->builder, LLVMConstInt(e->i1, 1, false), record->held);
	emit_set(e, 0,
		 LLVMBuildSelect(e->builder, held, emit_const(e, 0),
				 emit_const(e, ANALYSIS_RECORD_ADDRESS), ""));
}

/* bpf_ringbuf_submit(record, flags), bpf_ringbuf_discard(record, flags) */
static void emit_release(struct emitter *e, bool submit) {
	const struct value *value = e->state->registers + 1;
	struct emit_record *record = emit_record(e, value);
	struct emit_address from = { .pointer = record->bytes, .kind = VALUE_RECORD, .align = 8 };

	LLVMBuildStore(e->builder, LLVMConstInt(e->i1, 0, false), record->held);
	if (submit && value->size && value->size <= size_max(e->maps + value->ref))
		write_constant(e, value->ref, &from, value->size);
	emit_set(e, 0, emit_const(e, 0));
}

void emit_ring_helper(struct emitter *e, const struct helper *helper) {
	switch (helper->kind) {
	case HELPER_PERF_OUTPUT:
		emit_output(e, 2, 4, ENOSPC);
		return;
	case HELPER_RING_OUTPUT:
		emit_output(e, 1, 2, EAGAIN);
		return;
	case HELPER_RING_RESERVE:
		emit_reserve(e);
		return;
	default:
		emit_release(e, helper->kind == HELPER_RING_SUBMIT);
	}
}
