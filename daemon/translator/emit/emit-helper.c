/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for helpers (emitter.h): passes each call to the part that handles it.
 * Helpers that only return numbers are handled here.
 */

#include <errno.h>
#include <stdio.h>

#include "emitter.h"
#include "proto/helper.h"
#include "proto/wire.h"

/* bpf_get_current_comm(buffer, size): a text that always ends, then zeros. */
static void emit_comm(struct emitter *e) {
	uint64_t size = e->state->registers[2].bits, end = size < 16 ? size - 1 : 15;

	for (uint64_t at = 0; at < size;) {
		struct emit_address to = emit_address(e, 1, (int64_t)at);
		unsigned bytes = size - at >= 8 ? 8 : 1;
		LLVMValueRef word = emit_const(e, 0);

		if (at < 16) {
			word = emit_process_word(e, offsetof(struct gpuprobe_process, comm) +
							    at / 8 * 8);
			word = LLVMBuildLShr(e->builder, word, emit_const(e, at % 8 * 8), "");
			/* what is beyond the end */
			if (at + bytes > end)
				word = LLVMBuildAnd(
					e->builder, word,
					emit_const(e,
						   end <= at ? 0
							     : (UINT64_C(1) << (end - at) * 8) - 1),
					"");
		}
		emit_store(e, &to, bytes, word);
		at += bytes;
	}
	emit_set(e, 0, emit_const(e, 0));
}

/* The calling thread leaves the kernel: what follows in the program is not reached. */
static void emit_exit(struct emitter *e) {
	emit_call(e, "gpuprobe_exit", NULL, 0);
	emit_return(e, emit_const(e, 0));
	LLVMPositionBuilderAtEnd(e->builder, emit_new_block(e, "left"));
	emit_set(e, 0, emit_const(e, 0));
}

/* Helpers of maps with keys. */
static void emit_map_helper(struct emitter *e, enum helper_kind kind) {
	uint32_t map = e->state->registers[1].ref;
	bool hash = e->layouts[map].layout.kind == MAP_KIND_HASH;

	if (kind == HELPER_MAP_LOOKUP)
		hash ? emit_hash_lookup(e, map) : emit_map_lookup(e, map);
	else if (kind == HELPER_MAP_UPDATE)
		hash ? emit_hash_update(e, map) : emit_map_update(e, map);
	else if (hash)
		emit_hash_delete(e, map);
	else /* elements of arrays always exist */
		emit_set(e, 0, emit_const(e, (uint64_t)(int64_t)-EINVAL));
}

/* Helpers that take numbers and give one. */
static void emit_number(struct emitter *e, const struct helper *helper) {
	LLVMValueRef args[3];
	unsigned n = helper_arguments(helper);

	for (unsigned i = 0; i < n; i++)
		args[i] = emit_get(e, i + 1);
	emit_set(e, 0, emit_call(e, helper->device, args, n));
}

/* Helpers that change a map's value atomically. */
static void emit_map_atomic(struct emitter *e, const struct helper *helper) {
	struct emit_address address = emit_address(e, 1, 0);
	LLVMValueRef args[2] = { address.pointer, emit_get(e, 2) };
	char name[64];

	snprintf(name, sizeof(name), "%s%s", helper->device, address.system ? "_sys" : "");
	emit_call(e, name, args, 2);
	emit_set(e, 0, emit_const(e, 0));
}

void emit_helper(struct emitter *e, const struct bpf_insn *insn) {
	const struct helper *helper = helper_find(insn->imm);

	switch (helper->kind) {
	case HELPER_MAP_LOOKUP:
	case HELPER_MAP_UPDATE:
	case HELPER_MAP_DELETE:
		emit_map_helper(e, helper->kind);
		return;
	case HELPER_SCALAR:
		emit_set(e, 0, emit_call(e, helper->device, NULL, 0));
		return;
	case HELPER_TRIPLE:
		for (unsigned i = 0; i < 3; i++) {
			struct emit_address to = emit_address(e, i + 1, 0);
			char function[64];

			snprintf(function, sizeof(function), "%s_%c", helper->device, "xyz"[i]);
			emit_store(e, &to, 8, emit_call(e, function, NULL, 0));
		}
		emit_set(e, 0, emit_const(e, 0));
		return;
	case HELPER_NUMBER:
		emit_number(e, helper);
		return;
	case HELPER_ATOMIC:
		emit_map_atomic(e, helper);
		return;
	case HELPER_PID_TGID:
		emit_set(e, 0, emit_process_word(e, offsetof(struct gpuprobe_process, pid_tgid)));
		return;
	case HELPER_DEVICE:
		emit_set(e, 0, emit_process_word(e, offsetof(struct gpuprobe_process, device)));
		return;
	case HELPER_COMM:
		emit_comm(e);
		return;
	case HELPER_EXIT:
		emit_exit(e);
		return;
	case HELPER_LOOP: /* ends its block: emit_loop_begin() */
		return;
	case HELPER_PRINTK:
	case HELPER_VPRINTK:
	case HELPER_PUTS:
		emit_log_helper(e, helper);
		return;
	case HELPER_PERF_OUTPUT:
	case HELPER_RING_OUTPUT:
	case HELPER_RING_RESERVE:
	case HELPER_RING_SUBMIT:
	case HELPER_RING_DISCARD:
		emit_ring_helper(e, helper);
		return;
	default:
		emit_call(e, "gpuprobe_membar", NULL, 0);
		emit_set(e, 0, emit_const(e, 0));
	}
}
