/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the parts of the emitter share: the LLVM function under construction, and access to BPF's
 * registers and memory in it. A register is a variable of 64 bits of its frame; LLVM makes them
 * values. A frame's stack is an array of 512 bytes; accesses whose place the analysis knows go
 * there by constant offset, so that LLVM can take it apart.
 */

#include <llvm-c/Core.h>

#include "daemon/translator/check/analysis.h"

/* How a map lies in memory, for the code that computes addresses. */
struct emit_map {
	LLVMValueRef base; /* address of the instance, as it was when the program began */
	LLVMValueRef
		direct; /* address of the only value, loaded at entry; NULL: not used that way */
};

/* A lookup, and the variable of type i1 that says whether its last result was an address. */
struct emit_site {
	uint32_t site;
	LLVMValueRef found;
};

/* A reservation: a variable of bytes, and one of type i1, whether it is held. */
struct emit_record {
	uint32_t site;
	LLVMValueRef bytes, held;
};

/* A frame that bpf_loop calls: variables of 64 bits, the number of its round and of all rounds. */
struct emit_loop {
	LLVMValueRef round, rounds;
};

struct emitter {
	struct analysis *analysis;
	const struct translate_program *program;
	const struct flow *flow;
	const struct translate_map *maps;
	const struct translate_map_result *layouts; /* .layout is that of map-layout.h */
	LLVMContextRef context;
	LLVMModuleRef module; /* holds the device library already */
	LLVMBuilderRef builder;
	LLVMValueRef function;
	LLVMTypeRef i1, i8, i16, i32, i64, stack_type, generic_pointer, global_pointer;
	LLVMValueRef (*registers)[10]; /* of each frame */
	LLVMValueRef *stacks; /* of each frame */
	LLVMBasicBlockRef *blocks; /* one each; NULL: not reachable */
	LLVMBasicBlockRef disarmed; /* returns 0 */
	uint16_t *live_out; /* see rmw.h */
	struct emit_map map[TRANSLATE_MAPS_MAX];
	unsigned target; /* the least architecture that it runs on: 70 is sm_70 */
	bool patch; /* the slots are in memory that a parameter points to */
	LLVMValueRef slots; /* that parameter */
	LLVMValueRef process; /* the process slot, of a patch what is in it; NULL: not used */
	LLVMValueRef fields[POINT_FIELDS]; /* of the context: parameters, or NULL */
	LLVMValueRef thread; /* variable that holds the thread's variables; NULL: not used */
	bool system; /* some map is in host memory: atomic operations that may meet it are for all
		      */
	LLVMValueRef long_key; /* room for any key of a hash; NULL: not needed so far */
	struct emit_site *sites; /* room for as many as there are calls */
	size_t n_sites;
	struct emit_record *records; /* the same */
	size_t n_records;
	struct emit_loop *loops; /* of each frame */
	LLVMValueRef
		budget; /* variable of 32 bits: what may_goto may fall through; NULL: none is */
	/* where we are: */
	uint32_t frame;
	struct analysis_frame *state;
	size_t pc;
};

/* Where a memory instruction goes. */
struct emit_address {
	LLVMValueRef pointer;
	LLVMValueRef place; /* THREAD, if it is no constant: bytes from its first variable */
	enum value_kind kind; /* STACK, RECORD, THREAD: this thread's; MAP_VALUE: global memory;
				 otherwise unknown */
	unsigned align; /* bytes, at most 8 */
	bool exact; /* MAP_VALUE: the same in all threads that run together */
	bool own; /* MAP_VALUE: another one in each thread */
	bool system; /* it may be in host memory */
	bool fresh; /* a load must not come from an L1 cache: it may hold what was there before */
};

/* emit.c */
LLVMValueRef emit_get(struct emitter *e, unsigned reg);
void emit_set(struct emitter *e, unsigned reg, LLVMValueRef value);
LLVMValueRef emit_const(struct emitter *e, uint64_t bits);
LLVMTypeRef emit_int(struct emitter *e, unsigned bytes);
struct emit_address emit_address(struct emitter *e, unsigned reg, int64_t offset);
LLVMValueRef emit_load(struct emitter *e, const struct emit_address *address, unsigned bytes);
void emit_store(struct emitter *e, const struct emit_address *address, unsigned bytes,
		LLVMValueRef value);
LLVMValueRef emit_call(struct emitter *e, const char *function, LLVMValueRef *args, unsigned n);
LLVMValueRef emit_zext(struct emitter *e, LLVMValueRef value);
LLVMValueRef emit_found(struct emitter *e, uint32_t site);
LLVMBasicBlockRef emit_new_block(struct emitter *e, const char *name);
void emit_stack_used(struct emitter *e, uint32_t frame, bool used);

/* emit-alu.c */
void emit_alu(struct emitter *e, const struct bpf_insn *insn);
LLVMValueRef emit_condition(struct emitter *e, const struct bpf_insn *insn);

/* emit-atomic.c */
void emit_atomic(struct emitter *e, const struct bpf_insn *insn);
void emit_map_add(struct emitter *e, const struct emit_address *address, unsigned bytes,
		  LLVMValueRef operand, enum value_uniform uniform);

/* emit-helper.c */
void emit_helper(struct emitter *e, const struct bpf_insn *insn);

struct helper;

/* emit-slot.c */
void emit_slots(struct emitter *e);
bool emit_is_resident(const struct emitter *e, uint32_t map);
LLVMValueRef emit_process_word(struct emitter *e, size_t offset);

/* An instance's address in memory, 0 if not armed. */
static inline LLVMValueRef emit_base(const struct emitter *e, uint32_t map) {
	return e->map[map].base;
}

/* emit-map.c: arrays and per-thread arrays */
void emit_map_lookup(struct emitter *e, uint32_t map);
void emit_map_update(struct emitter *e, uint32_t map);

/*
 * emit-hash.c: the same for MAP_KIND_HASH. Arguments are in registers 1-4 (keys and values: see
 * emit_address()), the result goes to r0. A lookup also says what it found: emit_found().
 */
void emit_hash_lookup(struct emitter *e, uint32_t map);
void emit_hash_update(struct emitter *e, uint32_t map);
void emit_hash_delete(struct emitter *e, uint32_t map);

/* emit-ring.c: helpers 25, 130-133 */
void emit_ring_helper(struct emitter *e, const struct helper *helper);
struct emit_record *emit_record(struct emitter *e, const struct value *value);
LLVMValueRef emit_ring_write(struct emitter *e, uint32_t map, LLVMValueRef data, LLVMValueRef size,
			     bool aligned);

/* emit-thread.c: variables of a thread */
LLVMTypeRef emit_thread_result(struct emitter *e);
void emit_thread_begin(struct emitter *e, LLVMValueRef const *parameters);
void emit_return(struct emitter *e, LLVMValueRef r0);
struct emit_address emit_thread_address(struct emitter *e, const struct value *base, unsigned reg,
					int64_t offset);
LLVMValueRef emit_thread_load(struct emitter *e, const struct emit_address *address,
			      unsigned bytes);
void emit_thread_store(struct emitter *e, const struct emit_address *address, unsigned bytes,
		       LLVMValueRef value);

/* emit-loop.c: bpf_loop, may_goto, iterators */
void emit_loop_variables(struct emitter *e);
void emit_loop_begin(struct emitter *e, const struct flow_block *block);
void emit_loop_next(struct emitter *e, const struct flow_block *block);
LLVMValueRef emit_may_goto(struct emitter *e);
void emit_kfunc(struct emitter *e, const struct bpf_insn *insn);

/* emit-log.c: helpers 6, 177, 501 */
void emit_log_helper(struct emitter *e, const struct helper *helper);
