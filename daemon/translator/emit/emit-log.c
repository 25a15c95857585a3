/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for the log, bpf_printk and ebpf_puts (emitter.h): it gathers the
 * arguments, and the device library makes the record.
 */

#include "emitter.h"
#include "proto/helper.h"
#include "proto/log-record.h"

/* The map that is the log; the analysis has seen that there is one. */
static uint32_t log_map(const struct emitter *e) {
	uint32_t map = 0;

	while (!e->maps[map].log)
		map++;
	return map;
}

static LLVMValueRef generic_address(struct emitter *e, unsigned reg) {
	struct emit_address address = emit_address(e, reg, 0);

	return LLVMBuildAddrSpaceCast(e->builder, address.pointer, e->generic_pointer, "");
}

/* The smaller of a register and a constant, as 32 bits. */
static LLVMValueRef bounded(struct emitter *e, unsigned reg, uint64_t max) {
	LLVMValueRef value = emit_get(e, reg),
		     more = LLVMBuildICmp(e->builder, LLVMIntUGT, value, emit_const(e, max), "");

	value = LLVMBuildSelect(e->builder, more, emit_const(e, max), value, "");
	return LLVMBuildTrunc(e->builder, value, e->i32, "");
}

void emit_log_helper(struct emitter *e, const struct helper *helper) {
	uint32_t map = log_map(e);
	const struct map_layout *layout = &e->layouts[map].layout;
	enum log_kind kind = helper->kind == HELPER_PUTS ? LOG_PUTS : LOG_PRINTK;
	LLVMValueRef args[9];

	args[0] = emit_base(e, map);
	args[1] = LLVMConstInt(e->i32, layout->rings - 1, false);
	args[2] = emit_const(e, layout->ring_size);
	args[3] = LLVMConstInt(e->i32, kind | (uint32_t)e->program->index << 16, false);
	args[4] = generic_address(e, 1);
	args[5] = helper->kind == HELPER_PUTS ? LLVMConstInt(e->i32, LOG_FORMAT_MAX, false)
					      : bounded(e, 2, LOG_FORMAT_MAX);
	if (helper->kind == HELPER_VPRINTK) {
		args[6] = generic_address(e, 3);
		args[7] = emit_zext(e, bounded(e, 4, 8 * LOG_ARGS_MAX + 1));
		emit_set(e, 0, emit_call(e, "gpuprobe_vprintk", args, 8));
		return;
	}
	for (unsigned i = 0; i < 3; i++)
		args[6 + i] = helper->kind == HELPER_PRINTK ? emit_get(e, 3 + i) : emit_const(e, 0);
	emit_set(e, 0, emit_call(e, "gpuprobe_printk", args, 9));
}
