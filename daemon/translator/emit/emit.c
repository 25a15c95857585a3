/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Emits LLVM code for an analysed program (emit.h).
 *
 * One LLVM function for a program and all its frames, block by block. Before each instruction the
 * state of the analysis is at hand (it steps along), and says of what kind each address is.
 *
 * An address of a map value is a number of 64 bits; it becomes a pointer to global memory where it
 * is used. A load whose alignment is not known is one of single bytes: a GPU faults where a CPU
 * would not. What is read from the stack is frozen: a program that may read what it never wrote
 * reads something, and the compiler must not build on it.
 */

#include "emit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emitter.h"
#include "lib/ptx/ptx-inline.h"
#include "rmw.h"

#define SPACE_GLOBAL 1 /* of NVPTX */
#define ARGUMENT_IS_READ 1 /* of LLVM's attribute `memory`: nothing else is touched */

static LLVMValueRef register_pointer(struct emitter *e, uint32_t frame, unsigned reg) {
	return e->registers[frame][reg];
}

LLVMValueRef emit_const(struct emitter *e, uint64_t bits) {
	return LLVMConstInt(e->i64, bits, false);
}

LLVMTypeRef emit_int(struct emitter *e, unsigned bytes) {
	return bytes == 1 ? e->i8 : bytes == 2 ? e->i16 : bytes == 4 ? e->i32 : e->i64;
}

LLVMValueRef emit_zext(struct emitter *e, LLVMValueRef value) {
	return LLVMBuildZExt(e->builder, value, e->i64, "");
}

LLVMBasicBlockRef emit_new_block(struct emitter *e, const char *name) {
	return LLVMAppendBasicBlockInContext(e->context, e->function, name);
}

LLVMValueRef emit_found(struct emitter *e, uint32_t site) {
	LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
	struct emit_site *s = e->sites;

	while (s < e->sites + e->n_sites && s->site != site)
		s++;
	if (s == e->sites + e->n_sites) {
		/* variables stand in the first block */
		LLVMPositionBuilderBefore(
			e->builder, LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(e->function)));
		s->site = site;
		s->found = LLVMBuildAlloca(e->builder, e->i1, "");
		e->n_sites++;
		LLVMPositionBuilderAtEnd(e->builder, here);
	}
	return s->found;
}

/* The number of helper calls in all frames: no program has more lookups or records. */
static size_t count_calls(const struct flow *flow) {
	size_t n = 0;

	for (size_t i = 0; i < flow->n_blocks; i++)
		for (size_t pc = flow->blocks[i].start; pc < flow->blocks[i].end; pc++)
			n += insn_is_call(flow->insns + pc);
	return n;
}

static LLVMValueRef stack_pointer(struct emitter *e, uint32_t frame, int64_t offset) {
	LLVMValueRef index = emit_const(e, (uint64_t)(offset + INSN_STACK_SIZE));

	return LLVMBuildGEP2(e->builder, e->i8, e->stacks[frame], &index, 1, "");
}

/* The address of the lowest byte of a stack. */
static LLVMValueRef stack_number(struct emitter *e, uint32_t frame) {
	return LLVMBuildPtrToInt(e->builder, e->stacks[frame], e->i64, "");
}

LLVMValueRef emit_get(struct emitter *e, unsigned reg) {
	if (reg == 10)
		return LLVMBuildAdd(e->builder, stack_number(e, e->frame),
				    emit_const(e, INSN_STACK_SIZE), "");
	return LLVMBuildLoad2(e->builder, e->i64, register_pointer(e, e->frame, reg), "");
}

void emit_set(struct emitter *e, unsigned reg, LLVMValueRef value) {
	LLVMBuildStore(e->builder, value, register_pointer(e, e->frame, reg));
}

/* A place in a reserved record, whose address is a mere number. */
static struct emit_address record_address(struct emitter *e, unsigned reg, int64_t offset) {
	const struct value *base = e->state->registers + reg;
	struct emit_record *record = emit_record(e, base);
	struct emit_address address = { .kind = VALUE_RECORD };
	unsigned align = value_align(base), offset_align;
	LLVMValueRef index = emit_const(e, base->bits + (uint64_t)offset);

	offset_align = offset ? (unsigned)__builtin_ctzll((uint64_t)offset) : 3;
	address.align = 1u << (align < offset_align ? align : offset_align);
	if (!base->exact)
		index = LLVMBuildAdd(e->builder, emit_get(e, reg),
				     emit_const(e, (uint64_t)offset - ANALYSIS_RECORD_ADDRESS), "");
	address.pointer = LLVMBuildGEP2(e->builder, e->i8, record->bytes, &index, 1, "");
	return address;
}

struct emit_address emit_address(struct emitter *e, unsigned reg, int64_t offset) {
	struct value base = e->state->registers[reg];
	struct emit_address address = { .kind = base.kind };
	unsigned align = value_align(&base),
		 offset_align = offset ? (unsigned)__builtin_ctzll((uint64_t)offset) : 3;
	LLVMValueRef number;

	if (base.kind == VALUE_STACK && base.exact) {
		offset += (int64_t)base.bits;
		align = offset ? (unsigned)__builtin_ctzll((uint64_t)offset) : 3;
		address.align = 1u << (align < 3 ? align : 3);
		address.pointer = stack_pointer(e, base.ref, offset);
		return address;
	}
	if (base.kind == VALUE_RECORD)
		return record_address(e, reg, offset);
	if (base.kind == VALUE_THREAD)
		return emit_thread_address(e, &base, reg, offset);
	number = LLVMBuildAdd(e->builder, emit_get(e, reg), emit_const(e, (uint64_t)offset), "");
	address.align = 1u << (align < offset_align ? align : offset_align);
	address.exact = base.exact;
	address.system = base.kind == VALUE_MAP_VALUE
				 ? e->layouts[base.ref].layout.place != MAP_PLACE_DEVICE
				 : e->system;
	address.own = base.kind == VALUE_MAP_VALUE &&
		      e->layouts[base.ref].layout.kind == MAP_KIND_THREADS;
	address.fresh =
		base.kind == VALUE_MAP_VALUE && e->layouts[base.ref].layout.kind == MAP_KIND_HASH;
	if (base.kind == VALUE_STACK) {
		/* as an index of the array, so that LLVM knows which memory it is */
		number = LLVMBuildSub(e->builder, number, stack_number(e, base.ref), "");
		address.pointer =
			LLVMBuildGEP2(e->builder, e->i8, e->stacks[base.ref], &number, 1, "");
		return address;
	}
	address.pointer = LLVMBuildIntToPtr(
		e->builder, number,
		base.kind == VALUE_MAP_VALUE ? e->global_pointer : e->generic_pointer, "");
	return address;
}

/*
 * A load of an aligned part of a map's value. Another thread may write it meanwhile, and the
 * verifier's proof is about a number that is read once: a number that is an index must be the one
 * that was compared with the bound. A weak load may be done again (the PTX memory model calls that
 * a race, whose result is anything). A strong one is done once. Of the block's scope the L1 cache
 * serves it; only volatile has any target, and passes/probe-program.c makes the other of it.
 */
static LLVMValueRef load_once(struct emitter *e, LLVMValueRef pointer, unsigned bytes) {
	static const char *const names[] = { "nounwind", "willreturn", "memory" };
	const char *constraint = bytes < 4 ? "=h,l" : bytes == 4 ? "=r,l" : "=l,l";
	LLVMTypeRef address = e->global_pointer, held = bytes == 1 ? e->i16 : emit_int(e, bytes);
	LLVMTypeRef type = LLVMFunctionType(held, &address, 1, false);
	LLVMValueRef load;
	char text[64];

	snprintf(text, sizeof(text), "%s.b%u $0, [$1];",
		 e->target < TRANSLATE_TARGET_ORDERED ? PTX_LOAD_VOLATILE : PTX_LOAD_RELAXED,
		 8 * bytes);
	/* an effect: so that the code generator keeps it in order with stores */
	load = LLVMGetInlineAsm(type, text, strlen(text), constraint, strlen(constraint), true,
				false, LLVMInlineAsmDialectATT, false);
	load = LLVMBuildCall2(e->builder, type, load, &pointer, 1, "");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsigned kind = LLVMGetEnumAttributeKindForName(names[i], strlen(names[i]));

		LLVMAddCallSiteAttribute(load, LLVMAttributeFunctionIndex,
					 LLVMCreateEnumAttribute(e->context, kind,
								 i == 2 ? ARGUMENT_IS_READ : 0));
	}
	return bytes == 1 ? LLVMBuildTrunc(e->builder, load, e->i8, "") : load;
}

/* The same at an address of which less is known, in pieces. */
static LLVMValueRef load_pieces(struct emitter *e, const struct emit_address *address,
				unsigned bytes) {
	unsigned piece = address->align < bytes ? address->align : bytes;
	LLVMTypeRef type = emit_int(e, bytes);
	LLVMValueRef value = NULL, part;

	for (unsigned at = 0; at < bytes; at += piece) {
		LLVMValueRef index = emit_const(e, at);

		part = LLVMBuildGEP2(e->builder, e->i8, address->pointer, &index, 1, "");
		part = LLVMBuildZExt(e->builder, load_once(e, part, piece), type, "");
		part = LLVMBuildShl(e->builder, part, LLVMConstInt(type, 8 * at, false), "");
		value = value ? LLVMBuildOr(e->builder, value, part, "") : part;
	}
	return value;
}

LLVMValueRef emit_load(struct emitter *e, const struct emit_address *address, unsigned bytes) {
	bool own = address->kind == VALUE_STACK || address->kind == VALUE_RECORD;
	LLVMValueRef value;

	if (address->place)
		return emit_thread_load(e, address, bytes);
	if (address->kind == VALUE_MAP_VALUE && !address->fresh)
		return load_pieces(e, address, bytes);
	value = LLVMBuildLoad2(e->builder, emit_int(e, bytes), address->pointer, "");
	LLVMSetAlignment(value, address->align < bytes ? address->align : bytes);
	LLVMSetVolatile(value, !own);
	return address->fresh ? value : LLVMBuildFreeze(e->builder, value, "");
}

void emit_store(struct emitter *e, const struct emit_address *address, unsigned bytes,
		LLVMValueRef value) {
	value = LLVMBuildTrunc(e->builder, value, emit_int(e, bytes), "");
	if (address->place) {
		emit_thread_store(e, address, bytes, value);
		return;
	}
	value = LLVMBuildStore(e->builder, value, address->pointer);
	LLVMSetAlignment(value, address->align < bytes ? address->align : bytes);
}

LLVMValueRef emit_call(struct emitter *e, const char *name, LLVMValueRef *args, unsigned n) {
	LLVMValueRef function = LLVMGetNamedFunction(e->module, name);

	return LLVMBuildCall2(e->builder, LLVMGlobalGetValueType(function), function, args, n, "");
}

/* A field of the context, or a part of one: a parameter. */
static LLVMValueRef context_load(struct emitter *e, const struct bpf_insn *insn, unsigned bytes) {
	uint64_t offset = e->state->registers[insn->src_reg].bits + (uint64_t)(int64_t)insn->off;
	LLVMValueRef field = e->fields[offset / 8];

	field = LLVMBuildLShr(e->builder, field, emit_const(e, offset % 8 * 8), "");
	return LLVMBuildTrunc(e->builder, field, emit_int(e, bytes), "");
}

static void emit_memory(struct emitter *e, const struct bpf_insn *insn) {
	unsigned bytes = insn_bytes(insn->code);
	bool sign = INSN_MODE(insn->code) == INSN_MODE_MEMSX;
	struct emit_address address;
	LLVMValueRef value;
	uint64_t bits;

	switch (INSN_CLASS(insn->code)) {
	case BPF_LDX:
		if (analysis_constant(e->analysis, e->state->registers + insn->src_reg, insn->off,
				      bytes, sign, &bits)) {
			emit_set(e, insn->dst_reg, emit_const(e, bits));
			return;
		}
		if (e->state->registers[insn->src_reg].kind == VALUE_CONTEXT) {
			value = context_load(e, insn, bytes);
		} else {
			address = emit_address(e, insn->src_reg, insn->off);
			value = emit_load(e, &address, bytes);
		}
		if (sign)
			value = LLVMBuildSExt(e->builder, value, e->i64, "");
		emit_set(e, insn->dst_reg, emit_zext(e, value));
		return;
	case BPF_ST:
		value = emit_const(e, (uint64_t)(int64_t)insn->imm);
		break;
	default:
		value = emit_get(e, insn->src_reg);
	}
	address = emit_address(e, insn->dst_reg, insn->off);
	emit_store(e, &address, bytes, value);
}

static void emit_ld_imm64(struct emitter *e, const struct bpf_insn *insn) {
	LLVMValueRef value;

	if (insn_is_thread(insn))
		value = emit_const(e, ANALYSIS_THREAD_ADDRESS + (uint32_t)insn[1].imm);
	else if (insn->src_reg == INSN_PSEUDO_MAP_IDX_VALUE)
		value = LLVMBuildAdd(e->builder, e->map[insn->imm].direct,
				     emit_const(e, (uint32_t)insn[1].imm), "");
	else if (insn->src_reg == INSN_PSEUDO_MAP_IDX)
		/* any number, as helpers know the map; but not 0: the verifier knows that, too */
		value = emit_const(e, (uint64_t)(uint32_t)insn->imm + 1);
	else if (insn_is_function(insn))
		value = emit_const(e, insn_function_number(insn, (int64_t)e->pc));
	else
		value = emit_const(e, insn_imm64(insn));
	emit_set(e, insn->dst_reg, value);
}

/*
 * The memory of a frame's stack is in use from here on, or no longer. Frames that are not on the
 * stack at once share theirs then: a thread takes memory for the deepest call, as the kernel's
 * verifier counts it, not for each call.
 */
void emit_stack_used(struct emitter *e, uint32_t frame, bool used) {
	const char *name = used ? "llvm.lifetime.start" : "llvm.lifetime.end";
	unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
	LLVMTypeRef type = e->generic_pointer;
	LLVMValueRef args[2] = { emit_const(e, INSN_STACK_SIZE), e->stacks[frame] };

	LLVMBuildCall2(e->builder, LLVMIntrinsicGetType(e->context, id, &type, 1),
		       LLVMGetIntrinsicDeclaration(e->module, id, &type, 1), args, 2, "");
}

/* Arguments of a call move into the callee's registers; the others begin at 0. */
static void emit_enter(struct emitter *e, uint32_t callee) {
	emit_stack_used(e, callee, true);
	for (unsigned i = 0; i < 10; i++) {
		LLVMValueRef value = i >= 1 && i <= 5 ? emit_get(e, i) : emit_const(e, 0);

		LLVMBuildStore(e->builder, value, register_pointer(e, callee, i));
	}
}

/* What ends a block. */
static void emit_leave(struct emitter *e, const struct flow_block *block,
		       const struct bpf_insn *last) {
	const struct flow_frame *frame = e->flow->frames + block->frame;
	uint32_t to = block->successors[0];
	int way = insn_is_branch(last) ? analysis_way(e->state, last) : -1;

	if (insn_is_loop_call(last)) {
		emit_loop_begin(e, block);
		return;
	}
	if (insn_is_exit(last) && frame->loop) {
		emit_loop_next(e, block);
		return;
	}
	if (insn_is_exit(last)) {
		if (to == FLOW_NONE) {
			emit_return(e, emit_get(e, 0));
			return;
		}
		LLVMBuildStore(e->builder, emit_get(e, 0), register_pointer(e, frame->parent, 0));
		emit_stack_used(e, block->frame, false);
	} else if (insn_is_bpf_call(last)) {
		emit_enter(e, e->flow->blocks[to].frame);
	} else if (way == 0) {
		to = block->successors[1]; /* the other block is not there */
	} else if (way < 0 && insn_is_branch(last)) {
		LLVMBuildCondBr(e->builder, emit_condition(e, last), e->blocks[to],
				e->blocks[block->successors[1]]);
		return;
	}
	LLVMBuildBr(e->builder, e->blocks[to]);
}

/* The registers of a `*v += x`: what was there, and the sum. */
static LLVMValueRef set_rmw(struct emitter *e, const struct rmw *rmw, LLVMValueRef old,
			    LLVMValueRef operand) {
	LLVMValueRef sum = LLVMBuildAdd(e->builder, old, operand, "");

	if (!rmw->wide)
		sum = emit_zext(e, LLVMBuildTrunc(e->builder, sum, e->i32, ""));
	emit_set(e, rmw->loaded, old);
	emit_set(e, rmw->stored, sum);
	return sum;
}

/* All of it as one instruction. */
static void emit_rmw_atomic(struct emitter *e, const struct rmw *rmw,
			    const struct emit_address *address, unsigned bytes,
			    LLVMValueRef operand, enum value_uniform uniform, uint16_t live) {
	LLVMValueRef args[3] = { address->pointer,
				 LLVMBuildTrunc(e->builder, operand, emit_int(e, bytes), ""),
				 LLVMConstInt(e->i1, 0, false) };
	char name[32];

	snprintf(name, sizeof(name), "gpuprobe_fetch_add%u%s", bytes * 8,
		 address->system ? "_sys" : "");
	if (live & (1u << rmw->loaded | 1u << rmw->stored))
		set_rmw(e, rmw, emit_zext(e, emit_call(e, name, args, 3)), operand);
	else
		emit_map_add(e, address, bytes, operand, uniform);
}

/*
 * The whole of a `*v += x` on a value of a PERCPU map, at its store. Where the address is not
 * aligned, which the kernel's verifier allows if its CPU does, it is as it stands: an atomic
 * instruction would fault.
 */
static void emit_rmw(struct emitter *e, const struct rmw *rmw, uint16_t live) {
	const struct bpf_insn *store = e->flow->insns + rmw->store,
			      *add = e->flow->insns + rmw->add;
	unsigned bytes = insn_bytes(store->code);
	struct emit_address address = emit_address(e, store->dst_reg, store->off);
	LLVMValueRef operand = rmw->immediate ? emit_const(e, (uint64_t)(int64_t)add->imm)
					      : emit_get(e, rmw->operand);
	enum value_uniform uniform = rmw->immediate
					     ? VALUE_ALWAYS_UNIFORM
					     : value_uniform(e->state->registers + rmw->operand);
	LLVMBasicBlockRef aligned, other, done;
	LLVMValueRef low;

	/* operand += loaded: what the analysis has for the operand is the sum already */
	if (!rmw->immediate && rmw->operand == rmw->stored)
		uniform = VALUE_VARYING;
	if (rmw->subtract)
		operand = LLVMBuildNeg(e->builder, operand, "");
	if (address.align >= bytes) {
		emit_rmw_atomic(e, rmw, &address, bytes, operand, uniform, live);
		return;
	}
	aligned = emit_new_block(e, "aligned");
	other = emit_new_block(e, "other");
	done = emit_new_block(e, "added");
	low = LLVMBuildAnd(e->builder, LLVMBuildPtrToInt(e->builder, address.pointer, e->i64, ""),
			   emit_const(e, bytes - 1), "");
	LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, low, emit_const(e, 0), ""),
			aligned, other);
	LLVMPositionBuilderAtEnd(e->builder, aligned);
	emit_rmw_atomic(e, rmw, &address, bytes, operand, uniform, live);
	LLVMBuildBr(e->builder, done);
	LLVMPositionBuilderAtEnd(e->builder, other);
	low = emit_zext(e, emit_load(e, &address, bytes));
	emit_store(e, &address, bytes, set_rmw(e, rmw, low, operand));
	LLVMBuildBr(e->builder, done);
	LLVMPositionBuilderAtEnd(e->builder, done);
}

static void emit_insn(struct emitter *e, const struct bpf_insn *insn) {
	if (insn_is_ld_imm64(insn))
		emit_ld_imm64(e, insn);
	else if (insn_is_alu(insn))
		emit_alu(e, insn);
	else if (insn_is_atomic(insn))
		emit_atomic(e, insn);
	else if (insn_is_call(insn) && insn->src_reg == INSN_CALL_HELPER)
		emit_helper(e, insn);
	else if (insn_is_kfunc_call(insn))
		emit_kfunc(e, insn);
	else if (!insn_is_jump_class(insn))
		emit_memory(e, insn);
}

/* Whether a plain read-modify-write of a PERCPU value begins here. */
static bool begins_rmw(const struct emitter *e, const struct flow_block *block, struct rmw *rmw) {
	const struct value *base = e->state->registers + e->flow->insns[e->pc].src_reg;

	return INSN_CLASS(e->flow->insns[e->pc].code) == BPF_LDX && base->kind == VALUE_MAP_VALUE &&
	       map_type_has(e->maps[base->ref].type, MAP_TYPE_PERCPU) &&
	       rmw_match(e->flow->insns, e->pc, block->end, rmw);
}

static int emit_block(struct emitter *e, uint32_t number) {
	const struct flow_block *block = e->flow->blocks + number;
	struct analysis_frame chain[INSN_FRAMES_MAX];
	const struct bpf_insn *insn = NULL;
	struct rmw rmw = { 0 }, match; /* the one that has begun, if it has a store */
	int r;

	memcpy(chain, e->analysis->entry[number], analysis_state_size(e->flow, block->frame));
	e->frame = block->frame;
	e->state = chain + e->flow->frames[block->frame].depth;
	LLVMPositionBuilderAtEnd(e->builder, e->blocks[number]);

	for (e->pc = block->start; e->pc < block->end; e->pc += insn_is_ld_imm64(insn) ? 2 : 1) {
		insn = e->flow->insns + e->pc;
		if (rmw.store == 0 && begins_rmw(e, block, &match)) {
			rmw = match; /* its three instructions become one, at the last of them */
		} else if (rmw.store != 0 && e->pc == rmw.store) {
			emit_rmw(e, &rmw,
				 rmw_live_after(e->flow, number, e->live_out[number], e->pc));
			rmw = (struct rmw){ 0 };
		} else if (rmw.store == 0 || e->pc != rmw.add) {
			emit_insn(e, insn);
		}
		r = analysis_step(e->analysis, e->state, e->frame, e->pc);
		if (r)
			return r;
	}
	emit_leave(e, block, insn);
	return 0;
}

static void emit_types(struct emitter *e) {
	e->i1 = LLVMInt1TypeInContext(e->context);
	e->i8 = LLVMInt8TypeInContext(e->context);
	e->i16 = LLVMInt16TypeInContext(e->context);
	e->i32 = LLVMInt32TypeInContext(e->context);
	e->i64 = LLVMInt64TypeInContext(e->context);
	e->stack_type = LLVMArrayType2(e->i8, INSN_STACK_SIZE);
	e->generic_pointer = LLVMPointerTypeInContext(e->context, 0);
	e->global_pointer = LLVMPointerTypeInContext(e->context, SPACE_GLOBAL);
}

/* Registers and stacks of all frames, each as a variable. */
static void emit_variables(struct emitter *e) {
	for (size_t f = 0; f < e->flow->n_frames; f++) {
		for (unsigned i = 0; i < 10; i++)
			e->registers[f][i] = LLVMBuildAlloca(e->builder, e->i64, "");
		e->stacks[f] = LLVMBuildAlloca(e->builder, e->stack_type, "");
		LLVMSetAlignment(e->stacks[f], 8);
	}
	emit_loop_variables(e);
}

/* A parameter that is read as a whole, as who puts the body elsewhere relies on: LLVM would read
 * less. */
static LLVMValueRef whole_parameter(struct emitter *e, unsigned number) {
	static const char text[] = "mov.b64 $0, $1;", constraints[] = "=l,l";
	LLVMTypeRef type = LLVMFunctionType(e->i64, &e->i64, 1, false);
	LLVMValueRef move = LLVMGetInlineAsm(type, text, strlen(text), constraints,
					     strlen(constraints), false, false,
					     LLVMInlineAsmDialectATT, false),
		     parameter = LLVMGetParam(e->function, number);

	return LLVMBuildCall2(e->builder, type, move, &parameter, 1, "");
}

/* Registers at the start, and the fields of the context. */
static void emit_arguments(struct emitter *e) {
	LLVMValueRef words[POINT_THREAD_WORDS];
	unsigned parameter = 0;

	if (e->patch)
		e->slots = whole_parameter(e, parameter++);
	for (unsigned i = 0; i < 10; i++) {
		LLVMValueRef value = emit_const(e, i == 1 ? ANALYSIS_CONTEXT_ADDRESS : 0);

		if (e->program->takes_memory)
			value = i == 1 || i == 2 ? LLVMGetParam(e->function, parameter + i - 1)
						 : emit_const(e, 0);
		LLVMBuildStore(e->builder, value, register_pointer(e, 0, i));
	}
	for (unsigned i = 0; i < POINT_FIELDS; i++)
		if (e->analysis->context >> i & 1)
			e->fields[i] = whole_parameter(e, parameter++);
	if (e->program->takes_memory)
		parameter += 2;
	for (unsigned i = 0; i < (unsigned)__builtin_popcount(e->analysis->words); i++)
		words[i] = whole_parameter(e, parameter++);
	emit_thread_begin(e, words);
}

static int emit_body(struct emitter *e) {
	LLVMPositionBuilderAtEnd(e->builder, emit_new_block(e, "entry"));
	emit_variables(e);
	emit_arguments(e);
	emit_slots(e);
	for (size_t i = 0; i < e->flow->n_blocks; i++)
		if (e->analysis->entry[i])
			e->blocks[i] = emit_new_block(e, "");
	LLVMBuildBr(e->builder, e->blocks[0]);
	if (e->disarmed) {
		LLVMPositionBuilderAtEnd(e->builder, e->disarmed);
		emit_return(e, emit_const(e, 0));
	}
	for (uint32_t i = 0; i < e->flow->n_blocks; i++) {
		int r = e->blocks[i] ? emit_block(e, i) : 0;

		if (r)
			return r;
	}
	return 0;
}

int emit_program(LLVMModuleRef module, struct analysis *analysis,
		 const struct translate_program *program,
		 const struct translate_map_result *layouts, unsigned target, bool patch,
		 LLVMValueRef *function) {
	struct emitter e = {
		.analysis = analysis,
		.program = program,
		.flow = analysis->flow,
		.maps = analysis->maps,
		.layouts = layouts,
		.target = target,
		.patch = patch,
		.module = module,
		.context = LLVMGetModuleContext(module),
	};
	LLVMTypeRef parameters[1 + TRANSLATE_PARAMETERS_MAX], type;
	unsigned n = program->takes_memory ? 2 : (unsigned)__builtin_popcount(analysis->context);
	int r = -ENOMEM;

	n += patch + (unsigned)__builtin_popcount(analysis->words);

	emit_types(&e);
	for (unsigned i = 0; i < n; i++)
		parameters[i] = e.i64;
	type = LLVMFunctionType(emit_thread_result(&e), parameters, n, false);
	e.function = LLVMAddFunction(module, program->symbol, type);
	e.builder = LLVMCreateBuilderInContext(e.context);
	e.registers = calloc(e.flow->n_frames, sizeof(*e.registers));
	e.stacks = calloc(e.flow->n_frames, sizeof(*e.stacks));
	e.blocks = calloc(e.flow->n_blocks, sizeof(*e.blocks));
	e.sites = calloc(count_calls(e.flow) + 1, sizeof(*e.sites));
	e.records = calloc(count_calls(e.flow) + 1, sizeof(*e.records));
	e.loops = calloc(e.flow->n_frames, sizeof(*e.loops));
	if (e.registers && e.stacks && e.blocks && e.sites && e.records && e.loops)
		r = rmw_live_out(e.flow, &e.live_out);
	if (!r)
		r = emit_body(&e);
	free(e.registers);
	free(e.stacks);
	free(e.blocks);
	free(e.sites);
	free(e.records);
	free(e.loops);
	free(e.live_out);
	LLVMDisposeBuilder(e.builder);
	if (!r)
		*function = e.function;
	return r;
}
