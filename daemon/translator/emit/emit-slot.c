/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the emitter for slots (emitter.h).
 *
 * Where a program finds its maps and its process. In a module: variables that the host writes, the
 * data of a map or a pointer to it. In a patch, which is in no module of the application: pointers
 * in memory, whose address is a parameter; the first is the process's, then those of the maps.
 *
 * Each pointer is loaded once, since it may become 0 while the program runs, though what it pointed
 * to stays. In a module that takes gpuprobe_load_once(). In a patch it takes a strong load, since
 * the CUDA compiler may do others again (`.nc` even asks for it). It is of the block's scope: the
 * L1 cache serves that, which the first warp of an SM fills for all; a wider one would have each
 * warp wait for the L2 cache at its kernel's entry. An older pointer is as good as any, and the
 * cache begins each kernel empty.
 */

#include <stdio.h>
#include <string.h>

#include "emitter.h"
#include "proto/wire.h"

/* Address spaces of NVPTX. */
#define SPACE_GLOBAL 1
#define SPACE_CONST 4

bool emit_is_resident(const struct emitter *e, uint32_t map) {
	return e->layouts[map].resident && !e->patch;
}

/* A variable of the module that the host writes: in global or constant memory. */
static LLVMValueRef emit_global(struct emitter *e, LLVMTypeRef type, const char *name,
				unsigned space, unsigned align) {
	LLVMValueRef global = LLVMAddGlobalInAddressSpace(e->module, type, name, space);

	LLVMSetInitializer(global, LLVMConstNull(type));
	LLVMSetExternallyInitialized(global, true);
	LLVMSetAlignment(global, align);
	return global;
}

/* Says that a call does nothing but give a value: nothing stays in place because of it. */
static void make_pure(struct emitter *e, LLVMValueRef call) {
	static const char *const names[] = { "nounwind", "willreturn", "memory" /* none */ };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsigned kind = LLVMGetEnumAttributeKindForName(names[i], strlen(names[i]));

		LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex,
					 LLVMCreateEnumAttribute(e->context, kind, 0));
	}
}

/* A patch's slot, loaded. */
static LLVMValueRef load_slot(struct emitter *e, unsigned number) {
	static const char constraints[] = "=l,l";
	LLVMTypeRef type = LLVMFunctionType(e->i64, &e->i64, 1, false);
	LLVMValueRef load;
	char text[64];

	snprintf(text, sizeof(text), "ld.relaxed.cta.global.b64 $0, [$1+%u];", 8 * number);
	load = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), false,
				false, LLVMInlineAsmDialectATT, false);
	load = LLVMBuildCall2(e->builder, type, load, &e->slots, 1, "");
	make_pure(e, load);
	return load;
}

/* The address of a map's data in a module: a variable's, or what is in one. */
static LLVMValueRef declare_slot(struct emitter *e, uint32_t map) {
	const struct map_layout *layout = &e->layouts[map].layout;
	const char *name = e->maps[map].slot_symbol;
	LLVMValueRef pointer;

	if (emit_is_resident(e, map))
		return LLVMConstPtrToInt(emit_global(e, LLVMArrayType2(e->i8, layout->data_size),
						     name, SPACE_GLOBAL, MAP_SHARD_ALIGN),
					 e->i64);
	pointer = emit_global(e, e->i64, name, SPACE_CONST, 8);
	pointer = LLVMBuildLoad2(e->builder, e->i64, pointer, "");
	return emit_call(e, "gpuprobe_load_once", &pointer, 1);
}

static LLVMValueRef find_process(struct emitter *e) {
	if (e->patch)
		return load_slot(e, 0);
	return emit_global(e, LLVMArrayType2(e->i8, sizeof(struct gpuprobe_process)),
			   WIRE_PROCESS_SYMBOL, SPACE_CONST, 8);
}

/* 8 bytes of the process slot; the analysis has seen that there is one. */
LLVMValueRef emit_process_word(struct emitter *e, size_t offset) {
	LLVMValueRef index = emit_const(e, offset), value, args[2] = { e->process, index };

	if (e->patch)
		return emit_call(e, "gpuprobe_process_word", args, 2);
	value = LLVMBuildGEP2(e->builder, e->i8, e->process, &index, 1, "");
	value = LLVMBuildLoad2(e->builder, e->i64, value, "");
	LLVMSetAlignment(value, 8);
	return value;
}

/* Where a value's address is a constant of the program, it runs only if the map is armed. */
static void emit_direct(struct emitter *e, uint32_t map) {
	LLVMBasicBlockRef armed = emit_new_block(e, "armed");
	LLVMValueRef zero;

	if (!e->disarmed)
		e->disarmed = emit_new_block(e, "disarmed");
	e->map[map].direct = e->map[map].base;
	zero = LLVMBuildICmp(e->builder, LLVMIntEQ, e->map[map].direct, emit_const(e, 0), "");
	LLVMBuildCondBr(e->builder, zero, e->disarmed, armed);
	LLVMPositionBuilderAtEnd(e->builder, armed);
}

void emit_slots(struct emitter *e) {
	unsigned number = 1;

	e->disarmed = NULL;
	if (e->analysis->process)
		e->process = find_process(e);
	for (uint32_t i = 0; i < e->analysis->n_maps; i++) {
		if (!e->analysis->uses[i])
			continue;
		if (e->layouts[i].layout.place != MAP_PLACE_DEVICE)
			e->system = true;
		e->map[i].base = e->patch ? load_slot(e, number++) : declare_slot(e, i);
		if (e->analysis->uses[i] & MAP_USE_DIRECT)
			emit_direct(e, i);
	}
}
