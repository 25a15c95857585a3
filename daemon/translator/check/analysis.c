/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Analyses which value each register and stack slot of a program holds (analysis.h), before it is
 * translated.
 *
 * A forward dataflow over the blocks of a flow, to a fixed point; then one more walk, in which each
 * instruction's use of maps is noted. An address of a map value that is mixed with something else
 * is no misuse yet: the mixture remembers the map, and only who uses it (loads through it, stores
 * it, compares it) loses the map.
 *
 * A store through an address that we lost track of may hit any slot of any frame, so it clobbers
 * them all.
 */

#include "analysis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis-step.h"
#include "value.h"

#define STATE_BYTES_MAX (64u << 20) /* of all states of a program */
#define VISITS_PER_BLOCK_MAX 256 /* on average, until we give up */

void analysis_note(struct analysis *a, uint32_t map, unsigned use) {
	if (a->recording)
		a->uses[map] |= (uint8_t)(use | MAP_USE_ANY);
}

/* A value goes where we do not follow it. */
void analysis_escape(struct analysis *a, const struct value *value) {
	uint64_t maps = value_maps(value);

	for (uint32_t i = 0; maps && i < a->n_maps; i++)
		if (maps >> i & 1)
			analysis_note(a, i, MAP_USE_OTHER);
}

/* The state of another frame in the chain of callers, or NULL. `state` is that of `frame`. */
struct analysis_frame *analysis_frame_state(const struct analysis *a, struct analysis_frame *state,
					    uint32_t frame, uint32_t wanted) {
	const struct flow_frame *frames = a->flow->frames;
	uint32_t depth = frames[frame].depth;

	for (uint32_t f = frame; f != FLOW_NONE; f = frames[f].parent)
		if (f == wanted)
			return state - (depth - frames[f].depth);
	return NULL;
}

static const char *symbolic_name(const struct analysis *a, const struct value *value) {
	switch (value->kind) {
	case VALUE_CONTEXT:
		return "its context";
	case VALUE_RECORD:
		return "a reserved record";
	case VALUE_THREAD:
		return analysis_thread_name(a, value);
	default:
		return "what may be its context, a reserved record or a variable of a thread";
	}
}

/* A number is added to a map's value: whether it is uniform is worth asking there. */
static void note_added(struct analysis *a, const struct value *number) {
	if (a->recording && value_uniform(number) == VALUE_PLACE_UNIFORM)
		a->context |= UINT32_C(1) << POINT_UNIFORM / 8;
}

/* What a load or store at a constant offset of r10 may touch. */
int analysis_check_stack(struct analysis *a, size_t pc, int64_t offset, uint64_t size) {
	if (offset >= -INSN_STACK_SIZE && offset < 0 && (uint64_t)-offset >= size)
		return 0;
	return fault_at(a->fault, pc, "access of %llu bytes at r10%+lld is outside of the stack",
			(unsigned long long)size, (long long)offset);
}

/* The same of a record. */
int analysis_check_record(struct analysis *a, size_t pc, const struct value *address,
			  int64_t offset, uint64_t size) {
	offset += (int64_t)address->bits;
	if (!address->exact || (offset >= 0 && (uint64_t)offset <= address->size &&
				size <= address->size - (uint64_t)offset))
		return 0;
	return fault_at(a->fault, pc, "access of %llu bytes at offset %lld of a record of %u bytes",
			(unsigned long long)size, (long long)offset, address->size);
}

/* A read of the context: inside of one field. Notes the field. */
static int read_context(struct analysis *a, size_t pc, int64_t offset, unsigned n) {
	if (offset < 0 || offset + n > 8 * TRANSLATE_CONTEXT_FIELDS)
		return fault_at(a->fault, pc,
				"reads %u bytes at offset %lld of its context of %u bytes", n,
				(long long)offset, 8 * TRANSLATE_CONTEXT_FIELDS);
	if (offset % 8 + n > 8)
		return fault_at(a->fault, pc,
				"reads two fields of its context at once, at offset %lld",
				(long long)offset);
	if (a->recording)
		a->context |= UINT32_C(1) << offset / 8;
	return 0;
}

/*
 * Stores `n` bytes of a value at a constant offset. Of an address that a constant overwrites in
 * part, the rest is no use, but the constant is known.
 */
static void stack_write(struct analysis *a, struct analysis_frame *stack, int64_t offset,
			unsigned n, const struct value *value) {
	struct value *slot = stack->slots + analysis_slot(offset);
	struct value scalar = value_scalar(0, value_maps(value));
	unsigned at = (unsigned)offset & 7;

	if (n < 8 && value->kind == VALUE_CONST && value_maps(slot)) {
		analysis_escape(a, slot);
		*slot = (struct value){ .kind = VALUE_CONST };
	}
	if (at + n <= 8) {
		value_slot_write(slot, at, n, value);
		return;
	}
	value_slot_write(slot, at, 8 - at, &scalar);
	value_slot_write(slot + 1, 0, at + n - 8, &scalar);
}

static struct value stack_read(const struct analysis_frame *stack, int64_t offset, unsigned n,
			       bool sign) {
	const struct value *slot = stack->slots + analysis_slot(offset);
	unsigned at = (unsigned)offset & 7;

	if (at + n <= 8)
		return value_slot_read(slot, at, n, sign);
	return value_scalar(0, value_maps(slot) | value_maps(slot + 1));
}

/* A slot that something may have been stored to. It keeps what it may point to. */
static struct value touched(const struct value *slot, uint64_t maps) {
	struct value value = value_scalar(0, value_maps(slot) | maps);

	if (value_is_symbolic(slot))
		value.kind = VALUE_LOST;
	return value;
}

/* Something is stored, we do not know where. */
static void clobber_all(const struct analysis *a, struct analysis_frame *state, uint32_t frame) {
	struct analysis_frame *chain = state - a->flow->frames[frame].depth;

	for (; chain <= state; chain++)
		for (size_t i = 0; i < ANALYSIS_SLOTS; i++)
			chain->slots[i] = touched(chain->slots + i, 0);
}

/* Something is stored somewhere on a stack. */
static void stack_write_somewhere(struct analysis_frame *stack, const struct value *value) {
	for (size_t i = 0; i < ANALYSIS_SLOTS; i++)
		stack->slots[i] = touched(stack->slots + i, value_maps(value));
}

/* The maps that anything on a stack may point into. */
uint64_t analysis_stack_maps(const struct analysis_frame *stack) {
	uint64_t maps = 0;

	for (size_t i = 0; i < ANALYSIS_SLOTS; i++)
		maps |= value_maps(stack->slots + i);
	return maps;
}

/* The same of all stacks. */
uint64_t analysis_all_maps(const struct analysis *a, const struct analysis_frame *state,
			   uint32_t frame) {
	const struct analysis_frame *chain = state - a->flow->frames[frame].depth;
	uint64_t maps = 0;

	for (; chain <= state; chain++)
		maps |= analysis_stack_maps(chain);
	return maps;
}

bool analysis_constant(const struct analysis *a, const struct value *base, int64_t offset,
		       unsigned n, bool sign, uint64_t *bits) {
	struct value slot = { .kind = VALUE_CONST, .known = 0xff }, value;
	const struct translate_map *map;

	if (base->kind != VALUE_MAP_VALUE || !base->exact)
		return false;
	map = a->maps + base->ref;
	offset += (int64_t)base->bits;
	if (!map->constant || offset < 0 || n > map->value_size || offset > map->value_size - n)
		return false;
	memcpy(&slot.bits, map->constant + offset, n);
	value = value_slot_read(&slot, 0, n, sign);
	*bits = value.bits;
	return true;
}

int analysis_way(const struct analysis_frame *state, const struct bpf_insn *insn) {
	const struct value *x = state->registers + insn->dst_reg;
	struct value y = INSN_SOURCE(insn->code) == BPF_X
				 ? state->registers[insn->src_reg]
				 : value_const((uint64_t)(int64_t)insn->imm);

	if (insn_is_may_goto(insn))
		return -1;
	if (INSN_SOURCE(insn->code) == BPF_X && insn->dst_reg == insn->src_reg &&
	    INSN_OP(insn->code) != BPF_JSET)
		return value_branches(insn, 0, 0);
	if (x->kind != VALUE_CONST || y.kind != VALUE_CONST || x->known != 0xff || y.known != 0xff)
		return -1;
	return value_branches(insn, x->bits, y.bits);
}

/* Where a number is compared with a constant, one way knows that it is the same. */
static void learn(struct analysis_frame *state, const struct bpf_insn *insn, bool taken) {
	struct value *x = state->registers + insn->dst_reg;

	if (insn->code == (BPF_JMP | (taken ? BPF_JEQ : BPF_JNE) | BPF_K) &&
	    x->kind == VALUE_SCALAR && !value_maps(x))
		*x = value_const((uint64_t)(int64_t)insn->imm);
}

/* Stores `n` bytes of `value` at `base` + `offset`. */
int analysis_store(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		   const struct value *base, int64_t offset, unsigned n,
		   const struct value *value) {
	struct analysis_frame *stack;
	int r;

	if (value_is_symbolic(value) && !(base->kind == VALUE_STACK && base->exact && n == 8 &&
					  (offset + (int64_t)base->bits) % 8 == 0))
		return fault_at(a->fault, pc, "stores the address of %s", symbolic_name(a, value));
	switch (base->kind) {
	case VALUE_STACK:
		offset += (int64_t)base->bits;
		r = base->exact ? analysis_check_stack(a, pc, offset, n) : 0;
		if (r)
			return r;
		stack = analysis_frame_state(a, state, frame, base->ref);
		if (!stack)
			analysis_escape(a, value);
		else if (base->exact)
			stack_write(a, stack, offset, n, value);
		else
			stack_write_somewhere(stack, value);
		return 0;
	case VALUE_MAP:
		return fault_at(a->fault, pc, "stores through a reference to a map");
	case VALUE_MAP_VALUE:
		if (a->maps[base->ref].constant)
			return fault_at(a->fault, pc, "stores to map %.64s, which is constant",
					a->maps[base->ref].name);
		analysis_note(a, base->ref, MAP_USE_OTHER);
		analysis_escape(a, value);
		return 0;
	case VALUE_RECORD:
		analysis_escape(a, value);
		return analysis_check_record(a, pc, base, offset, n);
	case VALUE_THREAD:
		analysis_escape(a, value);
		return analysis_check_thread(a, pc, base, offset, n);
	case VALUE_CONTEXT:
	case VALUE_LOST:
		return fault_at(a->fault, pc, "stores to %s", symbolic_name(a, base));
	default:
		analysis_escape(a, base);
		analysis_escape(a, value);
		clobber_all(a, state, frame);
		return 0;
	}
}

/* Reads `n` bytes at `base` + `offset`. */
int analysis_load(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		  const struct value *base, int64_t offset, unsigned n, bool sign,
		  struct value *value) {
	struct analysis_frame *stack;
	uint64_t bits;
	int r;

	switch (base->kind) {
	case VALUE_STACK:
		offset += (int64_t)base->bits;
		r = base->exact ? analysis_check_stack(a, pc, offset, n) : 0;
		if (r)
			return r;
		stack = analysis_frame_state(a, state, frame, base->ref);
		if (!stack)
			*value = value_scalar(0, 0);
		else if (base->exact)
			*value = stack_read(stack, offset, n, sign);
		else
			*value = value_scalar(0, analysis_stack_maps(stack));
		return 0;
	case VALUE_MAP:
		return fault_at(a->fault, pc, "loads through a reference to a map");
	case VALUE_MAP_VALUE:
		analysis_note(a, base->ref, MAP_USE_OTHER);
		*value = analysis_constant(a, base, offset, n, sign, &bits) ? value_const(bits)
									    : value_scalar(0, 0);
		return 0;
	case VALUE_RECORD:
		*value = value_scalar(0, 0);
		return analysis_check_record(a, pc, base, offset, n);
	case VALUE_THREAD:
		*value = value_scalar(0, 0);
		return analysis_check_thread(a, pc, base, offset, n);
	case VALUE_CONTEXT:
		offset += (int64_t)base->bits;
		*value = value_same(point_is_uniform((uint32_t)offset) ? VALUE_PLACE_UNIFORM
								       : VALUE_VARYING,
				    analysis_site(frame, pc), 0);
		return read_context(a, pc, offset, n);
	case VALUE_LOST:
		return fault_at(a->fault, pc, "loads through %s", symbolic_name(a, base));
	default:
		analysis_escape(a, base);
		*value = value_scalar(0, analysis_all_maps(a, state, frame));
		return 0;
	}
}

static int step_ld_imm64(struct analysis *a, struct analysis_frame *state, size_t pc) {
	const struct bpf_insn *insn = a->flow->insns + pc;
	struct value *dst = state->registers + insn->dst_reg;
	const struct translate_map *map;

	if (insn->src_reg == 0) {
		*dst = value_const(insn_imm64(insn));
		return 0;
	}
	if (insn_is_function(insn)) {
		*dst = value_const(insn_function_number(insn, (int64_t)pc));
		return 0;
	}
	if (insn_is_thread(insn)) {
		*dst = (struct value){ .kind = VALUE_THREAD,
				       .exact = true,
				       .size = a->thread->size,
				       .bits = (uint32_t)insn[1].imm };
		return 0;
	}
	*dst = (struct value){ .kind = VALUE_MAP, .ref = (uint32_t)insn->imm };
	if (insn->src_reg == INSN_PSEUDO_MAP_IDX) {
		analysis_note(a, dst->ref, MAP_USE_ANY);
		return 0;
	}
	map = a->maps + dst->ref;
	if (map_kind_of(map->type) != MAP_KIND_ARRAY || map_type_has(map->type, MAP_TYPE_PERCPU))
		return fault_at(a->fault, pc,
				"takes the address of a value of map %.64s, which is no array",
				map->name);
	if ((uint32_t)insn[1].imm >= map->value_size)
		return fault_at(a->fault, pc, "offset %u is outside of the value of map %.64s",
				(uint32_t)insn[1].imm, map->name);
	analysis_note(a, dst->ref, MAP_USE_OTHER | MAP_USE_DIRECT);
	dst->kind = VALUE_MAP_VALUE;
	dst->exact = true;
	dst->bits = (uint32_t)insn[1].imm;
	return 0;
}

static int step_atomic(struct analysis *a, struct analysis_frame *state, uint32_t frame,
		       size_t pc) {
	const struct bpf_insn *insn = a->flow->insns + pc;
	unsigned n = insn_bytes(insn->code);
	struct value *base = state->registers + insn->dst_reg,
		     *operand = state->registers + insn->src_reg;
	struct value result = value_scalar(0, 0);
	int r = 0;

	if (value_is_symbolic(operand))
		return fault_at(a->fault, pc, "stores the address of %s",
				symbolic_name(a, operand));
	if (base->kind == VALUE_MAP_VALUE && insn->imm == BPF_ADD && !a->maps[base->ref].constant) {
		analysis_note(a, base->ref, n == 8 ? MAP_USE_ADD64 : MAP_USE_ADD32);
		note_added(a, operand);
		analysis_escape(a, operand);
		return 0;
	}
	if (insn->imm & BPF_FETCH)
		r = analysis_load(a, state, frame, pc, base, insn->off, n, false, &result);
	analysis_escape(a, operand);
	if (insn->imm == BPF_CMPXCHG)
		analysis_escape(a, state->registers);
	/* what is there afterwards depends on what was there */
	struct value stored = value_scalar(0, value_maps(operand) | value_maps(&result));
	if (!r)
		r = analysis_store(a, state, frame, pc, base, insn->off, n, &stored);
	if (insn->imm & BPF_FETCH)
		state->registers[insn->imm == BPF_CMPXCHG ? 0 : insn->src_reg] =
			value_scalar(0, value_maps(&result));
	return r;
}

/* A comparison with NULL tells nothing about an address; any other does. */
static int step_branch(struct analysis *a, const struct analysis_frame *state, size_t pc) {
	const struct bpf_insn *insn = a->flow->insns + pc;
	const struct value *x = state->registers + insn->dst_reg;
	struct value y = INSN_SOURCE(insn->code) == BPF_X
				 ? state->registers[insn->src_reg]
				 : value_const((uint64_t)(int64_t)insn->imm);
	bool equality = INSN_OP(insn->code) == BPF_JEQ || INSN_OP(insn->code) == BPF_JNE;

	if (insn_is_may_goto(insn))
		return 0;
	if (equality && (value_is_const(x, 0) || value_is_const(&y, 0)))
		return 0;
	if (value_is_symbolic(x) || value_is_symbolic(&y))
		return fault_at(a->fault, pc, "compares the address of %s",
				symbolic_name(a, value_is_symbolic(x) ? x : &y));
	analysis_escape(a, x);
	analysis_escape(a, &y);
	return 0;
}

/* An address that is none in memory can be moved, by a constant if it is that of the context. */
static bool may_compute(const struct bpf_insn *insn, const struct value *x, const struct value *y) {
	bool wide = INSN_CLASS(insn->code) == BPF_ALU64;
	uint8_t op = INSN_OP(insn->code);

	if (op == BPF_MOV)
		return !value_is_symbolic(y) || (wide && insn->off == 0);
	if (!value_is_symbolic(x) && !value_is_symbolic(y))
		return true;
	if (!wide || (op != BPF_ADD && op != BPF_SUB))
		return false;
	if (value_is_symbolic(y)) {
		const struct value *number = x;

		if (op == BPF_SUB || value_is_symbolic(x))
			return false;
		x = y;
		y = number;
	}
	return x->kind != VALUE_LOST &&
	       (y->kind == VALUE_CONST || ((x->kind == VALUE_RECORD || x->kind == VALUE_THREAD) &&
					   y->kind == VALUE_SCALAR && !value_maps(y)));
}

static int step_alu(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc) {
	const struct bpf_insn *insn = a->flow->insns + pc;
	const struct value *x = state->registers + insn->dst_reg;
	struct value operand = INSN_SOURCE(insn->code) == BPF_X && INSN_OP(insn->code) != BPF_END
				       ? state->registers[insn->src_reg]
				       : value_const((uint64_t)(int64_t)insn->imm);

	if (!may_compute(insn, x, &operand))
		return fault_at(a->fault, pc, "computes with the address of %s",
				symbolic_name(a, value_is_symbolic(&operand) ? &operand : x));
	state->registers[insn->dst_reg] = value_alu(insn, analysis_site(frame, pc), x, &operand);
	return 0;
}

int analysis_step(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc) {
	const struct bpf_insn *insn = a->flow->insns + pc;
	struct value *regs = state->registers, value;
	int r;

	if (insn_is_ld_imm64(insn))
		return step_ld_imm64(a, state, pc);
	switch (INSN_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return step_alu(a, state, frame, pc);
	case BPF_LDX:
		r = analysis_load(a, state, frame, pc, regs + insn->src_reg, insn->off,
				  insn_bytes(insn->code), INSN_MODE(insn->code) == INSN_MODE_MEMSX,
				  &value);
		if (!r)
			regs[insn->dst_reg] = value;
		return r;
	case BPF_ST:
		value = value_const((uint64_t)(int64_t)insn->imm);
		return analysis_store(a, state, frame, pc, regs + insn->dst_reg, insn->off,
				      insn_bytes(insn->code), &value);
	case BPF_STX:
		if (insn_is_atomic(insn))
			return step_atomic(a, state, frame, pc);
		/* perhaps the end of a `*v += x`, of which x is in a register: emit/rmw.h */
		value = regs[insn->dst_reg];
		for (unsigned i = 0; i < 10 && value.kind == VALUE_MAP_VALUE; i++)
			if (map_type_has(a->maps[value.ref].type, MAP_TYPE_PERCPU))
				note_added(a, regs + i);
		return analysis_store(a, state, frame, pc, regs + insn->dst_reg, insn->off,
				      insn_bytes(insn->code), regs + insn->src_reg);
	default:
		if (insn_is_call(insn) && insn->src_reg == INSN_CALL_HELPER)
			return analysis_helper(a, state, frame, pc);
		if (insn_is_kfunc_call(insn))
			return analysis_kfunc(a, state, frame, pc);
		return insn_is_branch(insn) ? step_branch(a, state, pc) : 0;
	}
}

/* Registers of a callee: its arguments, its own r10, nothing else. */
static void enter_frame(struct analysis_frame *callee, const struct analysis_frame *caller,
			uint32_t frame) {
	for (unsigned i = 0; i < ANALYSIS_REGISTERS; i++)
		callee->registers[i] =
			caller && i >= 1 && i <= 5 ? caller->registers[i] : value_scalar(0, 0);
	callee->registers[10] = (struct value){ .kind = VALUE_STACK, .exact = true, .ref = frame };
	for (size_t i = 0; i < ANALYSIS_SLOTS; i++)
		callee->slots[i] = value_scalar(0, 0);
}

/* The same of a callback of bpf_loop: the number of the round, and what the caller has in R3. */
static void enter_callback(struct analysis_frame *callee, const struct analysis_frame *caller,
			   uint32_t frame) {
	enter_frame(callee, NULL, frame);
	callee->registers[2] = caller->registers[3];
}

/* What a call leaves in the caller's registers. */
static void leave_frame(struct analysis_frame *caller, const struct value *result) {
	caller->registers[0] = *result;
	for (unsigned i = 1; i <= 5; i++)
		caller->registers[i] = value_scalar(0, 0);
}

struct worklist {
	uint32_t *blocks; /* a ring of n_blocks + 1 */
	bool *queued;
	size_t head, tail, size;
};

static void worklist_push(struct worklist *w, uint32_t block) {
	if (w->queued[block])
		return;
	w->queued[block] = true;
	w->blocks[w->tail] = block;
	w->tail = (w->tail + 1) % w->size;
}

static uint32_t worklist_pop(struct worklist *w) {
	uint32_t block = w->blocks[w->head];

	w->queued[block] = false;
	w->head = (w->head + 1) % w->size;
	return block;
}

/* What a state at the end of a block makes of the start of another. `states`: memory that all
 * states take. */
static int flow_into(struct analysis *a, struct worklist *w, const struct analysis_frame *state,
		     uint32_t block, size_t *bytes) {
	size_t size = analysis_state_size(a->flow, a->flow->blocks[block].frame);
	struct value *to = (struct value *)a->entry[block];
	const struct value *from = (const struct value *)state;
	bool changed = false;

	if (!to) {
		*bytes += size;
		if (*bytes > STATE_BYTES_MAX)
			return fault_whole(a->fault,
					   "too complex: too many blocks in nested calls");
		a->entry[block] = malloc(size);
		if (!a->entry[block])
			return -ENOMEM;
		memcpy(a->entry[block], state, size);
		worklist_push(w, block);
		return 0;
	}
	for (size_t i = 0; i < size / sizeof(*to); i++) {
		size_t of_frame = i % (sizeof(struct analysis_frame) / sizeof(*to));
		struct value joined = value_join(to + i, from + i, of_frame >= ANALYSIS_REGISTERS);

		if (memcmp(&joined, to + i, sizeof(joined)) != 0) {
			to[i] = joined;
			changed = true;
		}
	}
	if (changed)
		worklist_push(w, block);
	return 0;
}

/* A bpf_loop begins, or a round of it ends: once more, or behind it. `caller`: that of bpf_loop. */
static int leave_loop(struct analysis *a, struct worklist *w, struct analysis_frame *chain,
		      struct analysis_frame *caller, const uint32_t to[static 2], size_t *bytes) {
	struct value count = value_scalar(0, 0);
	int r;

	enter_callback(caller + 1, caller, a->flow->blocks[to[0]].frame);
	r = flow_into(a, w, chain, to[0], bytes);
	leave_frame(caller, &count);
	return r ? r : flow_into(a, w, chain, to[1], bytes);
}

/* From the end of a block, whose state is `state`, to what follows. `chain` has room for one frame
 * more. */
static int leave_block(struct analysis *a, struct worklist *w, struct analysis_frame *chain,
		       uint32_t number, size_t *bytes) {
	const struct flow_block *block = a->flow->blocks + number;
	const struct flow_frame *frame = a->flow->frames + block->frame;
	struct analysis_frame *state = chain + frame->depth;
	const struct bpf_insn *last = a->flow->insns + flow_block_last(a->flow, block);
	uint32_t to = block->successors[0];
	int r, way = insn_is_branch(last) ? analysis_way(state, last) : -1;
	struct value kept;

	if (to == FLOW_NONE)
		return 0;
	if (insn_is_loop_call(last))
		return leave_loop(a, w, chain, state, block->successors, bytes);
	if (insn_is_exit(last) && frame->loop)
		return leave_loop(a, w, chain, state - 1, block->successors, bytes);
	if (insn_is_bpf_call(last))
		enter_frame(state + 1, state, a->flow->blocks[to].frame);
	else if (insn_is_exit(last))
		leave_frame(state - 1, state->registers);
	if (way >= 0 || !insn_is_branch(last))
		return flow_into(a, w, chain, way ? to : block->successors[1], bytes);
	kept = state->registers[last->dst_reg];
	learn(state, last, true);
	r = flow_into(a, w, chain, to, bytes);
	state->registers[last->dst_reg] = kept;
	learn(state, last, false);
	return r ? r : flow_into(a, w, chain, block->successors[1], bytes);
}

/* Steps through a block; `chain` is its entry state, and then the state at its end. */
static int walk_block(struct analysis *a, struct analysis_frame *chain, uint32_t number) {
	const struct flow_block *block = a->flow->blocks + number;
	struct analysis_frame *state = chain + a->flow->frames[block->frame].depth;
	int r;

	for (size_t pc = block->start; pc < block->end;
	     pc += insn_is_ld_imm64(a->flow->insns + pc) ? 2 : 1) {
		r = analysis_step(a, state, block->frame, pc);
		if (r)
			return r;
	}
	return 0;
}

static int solve(struct analysis *a, struct worklist *w) {
	struct analysis_frame chain[INSN_FRAMES_MAX + 1];
	size_t bytes = 0, visits = 0;
	int r;

	enter_frame(chain, NULL, 0);
	if (a->takes_memory)
		chain->registers[1] = value_scalar(3, 0); /* aligned to 8 */
	else
		chain->registers[1] = (struct value){ .kind = VALUE_CONTEXT, .exact = true };
	r = flow_into(a, w, chain, 0, &bytes);
	while (!r && w->head != w->tail) {
		uint32_t number = worklist_pop(w);

		if (visits++ > VISITS_PER_BLOCK_MAX * a->flow->n_blocks)
			return fault_whole(a->fault,
					   "too complex: its loops take too long to analyse");
		memcpy(chain, a->entry[number],
		       analysis_state_size(a->flow, a->flow->blocks[number].frame));
		r = walk_block(a, chain, number);
		if (!r)
			r = leave_block(a, w, chain, number, &bytes);
	}
	if (r)
		return r;

	a->recording = true;
	for (uint32_t i = 0; !r && i < a->flow->n_blocks; i++) {
		if (!a->entry[i])
			continue;
		memcpy(chain, a->entry[i], analysis_state_size(a->flow, a->flow->blocks[i].frame));
		r = walk_block(a, chain, i);
	}
	a->recording = false;
	return r;
}

int analysis_init(struct analysis *a, const struct flow *flow, const struct translate_map *maps,
		  size_t n_maps, const struct translate_thread *thread, bool takes_memory,
		  struct fault *fault) {
	struct worklist w = { .size = flow->n_blocks + 1 };
	int r = -ENOMEM;

	*a = (struct analysis){ .flow = flow,
				.maps = maps,
				.n_maps = n_maps,
				.thread = thread,
				.fault = fault,
				.takes_memory = takes_memory };
	a->entry = calloc(flow->n_blocks, sizeof(*a->entry));
	w.blocks = calloc(w.size, sizeof(*w.blocks));
	w.queued = calloc(flow->n_blocks, sizeof(*w.queued));
	if (a->entry && w.blocks && w.queued)
		r = solve(a, &w);
	free(w.blocks);
	free(w.queued);
	return r;
}

void analysis_deinit(struct analysis *a) {
	for (size_t i = 0; a->entry && i < a->flow->n_blocks; i++)
		free(a->entry[i]);
	free(a->entry);
	a->entry = NULL;
}
