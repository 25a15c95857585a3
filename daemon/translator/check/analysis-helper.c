/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the analysis (analysis.h) that knows helpers.
 *
 * What helpers read and write, what they take for arguments, and what they do with maps. Of some an
 * argument must be a constant, because what is made of the call depends on it.
 */

#include "analysis-step.h"
#include "proto/helper.h"
#include "lib/bpf/helper-name.h"
#include "proto/log-record.h"
#include "value.h"

#define COMM_SIZE_MAX 512 /* of a buffer for the name of the process */

/* Each map of a set may be written or read by what we do not follow. */
static void note_maps(struct analysis *a, uint64_t maps) {
	struct value value = value_scalar(0, maps);

	analysis_escape(a, &value);
}

/* A helper wants an address in memory. */
static int helper_takes_no_thread(struct analysis *a, size_t pc, const struct value *address) {
	return fault_at(a->fault, pc,
			"a helper cannot take the address of %s, which is a register: copy it to a "
			"variable of the function",
			analysis_thread_name(a, address));
}

/* A helper writes `n` bytes at an address plus an offset. */
static int helper_writes(struct analysis *a, struct analysis_frame *state, uint32_t frame,
			 size_t pc, const struct value *address, int64_t offset, unsigned n,
			 const struct value *number) {
	if (address->kind == VALUE_THREAD)
		return helper_takes_no_thread(a, pc, address);
	return analysis_store(a, state, frame, pc, address, offset, n, number);
}

/* A helper reads `size` bytes at an address that stay what they are. */
static int helper_reads(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
			const struct value *address, uint64_t size) {
	struct analysis_frame *stack;
	int64_t offset = (int64_t)address->bits;
	int r;

	switch (address->kind) {
	case VALUE_STACK:
		stack = analysis_frame_state(a, state, frame, address->ref);
		if (stack && !address->exact)
			note_maps(a, analysis_stack_maps(stack));
		r = address->exact ? analysis_check_stack(a, pc, offset, size) : 0;
		if (r || size == 0 || !address->exact)
			return r;
		for (size_t i = analysis_slot(offset);
		     stack && i <= analysis_slot(offset + (int64_t)size - 1); i++) {
			if (value_is_symbolic(stack->slots + i))
				return fault_at(a->fault, pc,
						"a helper would read an address that "
						"has no meaning elsewhere");
			analysis_escape(a, stack->slots + i);
		}
		return 0;
	case VALUE_MAP:
		return fault_at(a->fault, pc, "a helper would read through a reference to a map");
	case VALUE_RECORD:
		return analysis_check_record(a, pc, address, 0, size);
	case VALUE_THREAD:
		return helper_takes_no_thread(a, pc, address);
	case VALUE_CONTEXT:
	case VALUE_LOST:
		return fault_at(a->fault, pc,
				"a helper would read the context, or what may be a reserved "
				"record");
	default:
		analysis_escape(a, address);
		if (address->kind != VALUE_MAP_VALUE)
			note_maps(a, analysis_all_maps(a, state, frame));
		return 0;
	}
}

/* The same, of a size that is a value, at most `max`. */
static int helper_reads_sized(struct analysis *a, struct analysis_frame *state, uint32_t frame,
			      size_t pc, const struct value *address, const struct value *size,
			      uint64_t max) {
	struct value somewhere = *address;

	if (size->kind == VALUE_CONST)
		return helper_reads(a, state, frame, pc, address,
				    size->bits < max ? size->bits : max);
	somewhere.exact = false; /* nothing about its end is known */
	return helper_reads(a, state, frame, pc, &somewhere, 0);
}

/* The map in a register, as one of a kind. */
static int helper_map(struct analysis *a, size_t pc, const struct helper *helper, unsigned reg,
		      const struct value *value, bool ring, uint32_t *map) {
	const struct translate_map *m;
	int kind;

	if (value->kind != VALUE_MAP || value->ref == VALUE_ANY_MAP)
		return fault_at(a->fault, pc, "%s (%u): R%u is not always the same map",
				helper->name, helper->id, reg);
	m = a->maps + value->ref;
	kind = map_kind_of(m->type);
	if (kind < 0)
		return fault_at(a->fault, pc,
				"map %.64s has type %u, which is not available on the GPU", m->name,
				m->type);
	if ((kind == MAP_KIND_RING) != ring)
		return fault_at(a->fault, pc, "%s (%u): map %.64s is %s ring", helper->name,
				helper->id, m->name, ring ? "no" : "a");
	*map = value->ref;
	analysis_note(a, *map, MAP_USE_ANY);
	return 0;
}

/* What this lookup gave before is not what it gives last any more. */
static void forget_site(const struct analysis *a, struct analysis_frame *state, uint32_t frame,
			uint32_t site) {
	struct value *value = (struct value *)(state - a->flow->frames[frame].depth);

	for (; value < (struct value *)(state + 1); value++)
		if (value->kind == VALUE_MAP_VALUE && value->site == site)
			value->site = 0;
}

/* The key of a lookup, update or deletion. */
static int read_key(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		    const struct helper *helper, uint32_t *map) {
	struct value *regs = state->registers;
	int r = helper_map(a, pc, helper, 1, regs + 1, false, map);
	bool hash;

	if (r)
		return r;
	hash = map_kind_of(a->maps[*map].type) == MAP_KIND_HASH;
	return helper_reads(a, state, frame, pc, regs + 2, hash ? a->maps[*map].key_size : 4);
}

static int step_lookup(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		       const struct helper *helper) {
	struct value *regs = state->registers, key = value_scalar(0, 0);
	uint32_t map;
	int r;

	r = read_key(a, state, frame, pc, helper, &map);
	if (!r && map_kind_of(a->maps[map].type) == MAP_KIND_ARRAY)
		r = analysis_load(a, state, frame, pc, regs + 2, 0, 4, false, &key);
	if (r)
		return r;
	forget_site(a, state, frame, analysis_site(frame, pc));
	regs[0] = (struct value){
		.kind = VALUE_MAP_VALUE, .align = 3, .ref = map, .site = analysis_site(frame, pc)
	};
	if (key.kind == VALUE_CONST && key.known == 0xff) {
		regs[0].exact = true;
		regs[0].align = 0;
		regs[0].bits = key.bits * (((uint64_t)a->maps[map].value_size + 7) & ~UINT64_C(7));
	}
	return 0;
}

static int step_update(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		       const struct helper *helper) {
	struct value *regs = state->registers;
	uint32_t map;
	int r;

	r = read_key(a, state, frame, pc, helper, &map);
	if (!r)
		r = helper_reads(a, state, frame, pc, regs + 3, a->maps[map].value_size);
	if (r)
		return r;
	analysis_note(a, map,
		      value_is_const(regs + 4, BPF_ANY) || value_is_const(regs + 4, BPF_EXIST)
			      ? MAP_USE_UPDATE
			      : MAP_USE_OTHER);
	regs[0] = value_scalar(0, 0);
	return 0;
}

/* bpf_get_current_comm(buffer, size) */
static int step_comm(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		     const struct helper *helper) {
	struct value *regs = state->registers, scalar = value_scalar(0, 0);
	uint64_t size = regs[2].bits;
	int r = 0;

	if (regs[2].kind != VALUE_CONST || !size || size > COMM_SIZE_MAX)
		return fault_at(a->fault, pc, "%s (%u): R2 is not a constant of 1 to %u",
				helper->name, helper->id, COMM_SIZE_MAX);
	for (uint64_t i = 0; !r && i < size; i += size - i >= 8 ? 8 : 1)
		r = helper_writes(a, state, frame, pc, regs + 1, (int64_t)i, size - i >= 8 ? 8 : 1,
				  &scalar);
	return r;
}

/* bpf_ringbuf_reserve(map, size, flags) */
static int step_reserve(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
			const struct helper *helper) {
	struct value *regs = state->registers;
	uint64_t size = regs[2].bits;
	uint32_t map;
	int r = helper_map(a, pc, helper, 1, regs + 1, true, &map);

	if (r)
		return r;
	if (regs[2].kind != VALUE_CONST)
		return fault_at(a->fault, pc, "%s (%u): R2 is not a constant", helper->name,
				helper->id);
	regs[0] = (struct value){ .kind = VALUE_RECORD,
				  .exact = true,
				  .ref = map,
				  .site = analysis_site(frame, pc),
				  .size = size > MAP_RECORD_SIZE_MAX ? 0 : (uint32_t)size };
	return 0;
}

/* Helpers of rings, but for the last. */
static int step_ring(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		     const struct helper *helper) {
	bool perf = helper->kind == HELPER_PERF_OUTPUT;
	struct value *regs = state->registers;
	unsigned reg = perf ? 2 : 1, data = perf ? 4 : 2;
	uint32_t map;
	int r;

	if (helper->kind == HELPER_RING_SUBMIT || helper->kind == HELPER_RING_DISCARD) {
		/* what is only NULL so far may become a record or NULL */
		if ((regs[1].kind == VALUE_RECORD && regs[1].exact && regs[1].bits == 0) ||
		    (value_is_const(regs + 1, 0) && !a->recording))
			return 0;
		return fault_at(a->fault, pc, "%s (%u): R1 is not always the same reserved record",
				helper->name, helper->id);
	}
	r = helper_map(a, pc, helper, reg, regs + reg, true, &map);
	return r ? r
		 : helper_reads_sized(a, state, frame, pc, regs + data, regs + data + 1,
				      MAP_RECORD_SIZE_MAX);
}

/* Helpers that write to the log. */
static int step_log(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		    const struct helper *helper) {
	struct value *regs = state->registers, unknown = value_scalar(0, 0);
	size_t map = 0;
	int r;

	while (map < a->n_maps && !a->maps[map].log)
		map++;
	if (map == a->n_maps)
		return fault_at(a->fault, pc, "%s (%u): the object has no log", helper->name,
				helper->id);
	analysis_note(a, (uint32_t)map, MAP_USE_ANY);
	r = helper_reads_sized(a, state, frame, pc, regs + 1,
			       helper->kind == HELPER_PUTS ? &unknown : regs + 2,
			       LOG_FORMAT_MAX + 1);
	if (!r && helper->kind == HELPER_VPRINTK && !value_is_const(regs + 4, 0))
		r = helper_reads_sized(a, state, frame, pc, regs + 3, regs + 4, 8 * LOG_ARGS_MAX);
	return r;
}

/* What a helper takes for a number goes where we do not follow it. */
static int take_number(struct analysis *a, size_t pc, const struct helper *helper, unsigned reg,
		       const struct value *value) {
	if (value_is_symbolic(value))
		return fault_at(a->fault, pc, "%s (%u): R%u is no number", helper->name, helper->id,
				reg);
	analysis_escape(a, value);
	return 0;
}

/* Helpers that change a map's value atomically: bpf_atomic_max_u64(address, number) */
static int step_map_atomic(struct analysis *a, size_t pc, const struct helper *helper,
			   const struct value *regs) {
	const struct translate_map *map;

	if (regs[1].kind == VALUE_THREAD)
		return helper_takes_no_thread(a, pc, regs + 1);
	if (regs[1].kind != VALUE_MAP_VALUE)
		return fault_at(a->fault, pc,
				"%s (%u): R1 is not always an address in a value of the same map",
				helper->name, helper->id);
	map = a->maps + regs[1].ref;
	if (map->constant)
		return fault_at(a->fault, pc, "%s (%u): map %.64s is constant", helper->name,
				helper->id, map->name);
	analysis_note(a, regs[1].ref, MAP_USE_OTHER);
	return take_number(a, pc, helper, 2, regs + 2);
}

/* Whether what a helper gives is the same in all lanes: what is fixed for the launch. */
static enum value_uniform uniform_result(const struct helper *helper) {
	if (helper->kind == HELPER_PID_TGID || helper->kind == HELPER_DEVICE ||
	    helper->id == HELPER_ID_BLOCK_DIM || helper->id == HELPER_ID_GRID_DIM)
		return VALUE_ALWAYS_UNIFORM;
	return VALUE_VARYING;
}

/* What a helper reads and writes. */
static int step_helper(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		       const struct helper *helper) {
	struct value *regs = state->registers;
	uint32_t map;
	int r = 0;

	switch (helper->kind) {
	case HELPER_MAP_LOOKUP:
		r = step_lookup(a, state, frame, pc, helper);
		break;
	case HELPER_MAP_UPDATE:
		r = step_update(a, state, frame, pc, helper);
		break;
	case HELPER_MAP_DELETE:
		r = read_key(a, state, frame, pc, helper, &map);
		if (!r && map_kind_of(a->maps[map].type) == MAP_KIND_HASH)
			analysis_note(a, map, MAP_USE_DELETE);
		break;
	case HELPER_TRIPLE:
		for (unsigned i = 1; !r && i <= 3; i++) {
			struct value number =
				value_same(uniform_result(helper), analysis_site(frame, pc), i);

			r = helper_writes(a, state, frame, pc, regs + i, 0, 8, &number);
		}
		break;
	case HELPER_NUMBER:
		for (unsigned i = 1; !r && i <= helper_arguments(helper); i++)
			r = take_number(a, pc, helper, i, regs + i);
		break;
	case HELPER_ATOMIC:
		r = step_map_atomic(a, pc, helper, regs);
		break;
	case HELPER_COMM:
		r = step_comm(a, state, frame, pc, helper);
		break;
	case HELPER_RING_RESERVE:
		r = step_reserve(a, state, frame, pc, helper);
		break;
	case HELPER_PERF_OUTPUT:
	case HELPER_RING_OUTPUT:
	case HELPER_RING_SUBMIT:
	case HELPER_RING_DISCARD:
		r = step_ring(a, state, frame, pc, helper);
		break;
	case HELPER_PRINTK:
	case HELPER_VPRINTK:
	case HELPER_PUTS:
		r = step_log(a, state, frame, pc, helper);
		break;
	default:
		break;
	}
	return r;
}

int analysis_helper(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc) {
	const uint32_t id = (uint32_t)a->flow->insns[pc].imm;
	const struct helper *helper = helper_find((int32_t)id);
	struct value *regs = state->registers, scalar = value_scalar(0, 0);
	const char *name = helper_kernel_name(id);
	int r;

	if (!helper && name)
		return fault_at(a->fault, pc, "%s (%u) is not available on the GPU", name, id);
	if (!helper)
		return fault_at(a->fault, pc, "helper %u is not available on the GPU", id);
	if (helper->kind == HELPER_LOOP) /* the flow knows what it calls: leave_block() */
		return 0;
	r = step_helper(a, state, frame, pc, helper);
	if (a->recording && (helper->kind == HELPER_COMM || helper->kind == HELPER_PID_TGID ||
			     helper->kind == HELPER_DEVICE))
		a->process = true;
	if (a->recording && helper->sm > a->sm)
		a->sm = helper->sm;
	for (unsigned i = 1; !r && i <= 5; i++)
		regs[i] = scalar;
	if (!r && helper->kind != HELPER_MAP_LOOKUP && helper->kind != HELPER_RING_RESERVE)
		regs[0] = value_same(uniform_result(helper), analysis_site(frame, pc), 0);
	return r;
}

/*
 * Functions of an iterator over numbers, which lies on a stack. What they write there is nobody
 * else's to read; bpf_iter_num_next() gives its address, as the number is its first part, or NULL.
 */
int analysis_kfunc(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc) {
	int32_t number = a->flow->insns[pc].imm;
	struct value *regs = state->registers, scalar = value_scalar(0, 0), iterator = regs[1];
	int r;

	if (iterator.kind != VALUE_STACK || !iterator.exact || iterator.bits % 8)
		return fault_at(a->fault, pc,
				"%s: R1 is not the address of an iterator on the stack",
				kfunc_name(number));
	r = analysis_store(a, state, frame, pc, &iterator, 0, 8, &scalar);
	regs[0] = number == KFUNC_ITER_NUM_NEXT ? iterator : scalar;
	for (unsigned i = 1; i <= 5; i++)
		regs[i] = scalar;
	return r;
}
