/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Branches, calls, barriers, special
 * registers. A thread that must wait for others sets its state and returns NULL; whoever comes last
 * makes all of them ready again.
 */

#include <time.h>

#include "sim-op.h"
#include "sim-print.h"

SIM_OP(nop) {
	return i + 1;
}
SIM_OP(branch_if) {
	return RD(i->a) ? i->target : i + 1;
}
SIM_OP(branch_unless) {
	return RD(i->a) ? i + 1 : i->target;
}
SIM_OP(branch) {
	return i->target;
}

SIM_OP(branch_back) {
	if (--t->budget > 0)
		return i->target;
	t->budget = SIM_BUDGET;
	t->next = i->target;
	t->state = SIM_READY;
	return NULL;
}

SIM_OP(branch_index) {
	const struct sim_table *table = i->data;
	uint32_t index = RD(i->a);

	if (index >= table->count)
		return sim_fault(t, i, CUDA_ERROR_LAUNCH_FAILED, "brx.idx: %u of %u", index,
				 table->count);
	return table->targets[index];
}

SIM_OP(fence) {
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return i + 1;
}

SIM_OP(trap) {
	return sim_fault(t, i, CUDA_ERROR_LAUNCH_FAILED, "trap");
}

SIM_OP(end) {
	return sim_fault(t, i, CUDA_ERROR_INVALID_PC, "the body ends without ret");
}

/* --- calls --- */

const struct sim_function *sim_call_target(struct sim_thread *t, const struct sim_insn *i) {
	const struct sim_call *call = i->data;
	uint64_t address;

	if (call->target)
		return call->target;
	address = RD(i->a);
	for (uint32_t n = 0; n < call->program->function_count; n++)
		if ((uint64_t)(uintptr_t)call->program->functions[n] == address)
			return call->program->functions[n];
	return NULL;
}

/* One value from a place to another; sizes may differ in broken code: the smaller one counts. */
static void pass(uint64_t *from, uint64_t *to, const struct sim_argument *outside,
		 const struct sim_parameter *inside, bool in) {
	char *caller = outside->is_register ? (char *)&(in ? from : to)[outside->slot]
					    : (char *)(in ? from : to) + outside->offset;
	char *callee = (char *)(in ? to : from) + inside->offset;
	size_t size = outside->size < inside->size ? outside->size : inside->size;

	if (outside->is_register && !in)
		memset(caller, 0, 8);
	if (in)
		memcpy(callee, caller, size);
	else
		memcpy(caller, callee, size);
}

SIM_OP(call) {
	const struct sim_call *site = i->data;
	const struct sim_function *target = sim_call_target(t, i);
	uint64_t *caller = t->r;

	if (!target || !target->insns)
		return sim_fault(t, i, CUDA_ERROR_INVALID_PC, "a call of no function");
	if (site->argument_count != target->parameter_count ||
	    site->return_count != target->return_count)
		return sim_fault(t, i, CUDA_ERROR_LAUNCH_FAILED,
				 "a call of %s with %u arguments and %u results", target->name,
				 site->argument_count, site->return_count);
	if (!sim_push(t, target, i))
		return sim_fault(t, i, CUDA_ERROR_HARDWARE_STACK_ERROR, "%s: the stack is full",
				 target->name);
	for (uint32_t n = 0; n < site->argument_count; n++)
		pass(caller, t->r, &site->arguments[n], &target->parameters[n], true);
	return target->insns;
}

SIM_OP(exit_thread) {
	t->state = SIM_EXITED;
	return NULL;
}

SIM_OP(return_from) {
	struct sim_frame *frame = t->frame;
	const struct sim_function *function = frame->function;
	const struct sim_call *site;
	uint64_t *callee = t->r;

	if (!frame->caller)
		return exit_thread(t, i);
	i = frame->call;
	site = i->data;
	t->top = (char *)frame;
	t->frame = frame->caller;
	t->r = sim_registers(t->frame);
	for (uint32_t n = 0; n < site->return_count; n++)
		pass(callee, t->r, &site->arguments[site->argument_count + n],
		     &function->returns[n], false);
	return i + 1;
}

/* --- what CUDA's own library gives to device code --- */

/* vprintf(format, arguments): both are addresses. */
SIM_OP(print) {
	const struct sim_call *site = i->data;
	uint64_t values[2] = { 0 };
	int printed;

	for (uint32_t n = 0; n < 2; n++) {
		const struct sim_argument *argument = &site->arguments[n];

		memcpy(&values[n],
		       argument->is_register ? (char *)&RD(argument->slot)
					     : (char *)t->r + argument->offset,
		       8);
	}
	printed = sim_print(t, values[0], values[1]);
	if (printed < 0)
		return sim_fault(t, i, CUDA_ERROR_ILLEGAL_ADDRESS,
				 "printf: an address is nobody's");
	if (site->return_count) {
		const struct sim_argument *result = &site->arguments[2];

		if (result->is_register)
			RD(result->slot) = (uint32_t)printed;
		else
			memcpy((char *)t->r + result->offset, &printed, 4);
	}
	return i + 1;
}

/* cudaGraphSetConditional(handle, value): the handle is the address of the value
 * (api-conditional.c). From patched code it comes to nothing. */
SIM_OP(condition) {
	const struct sim_call *site = i->data;
	uint64_t values[2] = { 0 };

	for (uint32_t n = 0; n < 2; n++) {
		const struct sim_argument *argument = &site->arguments[n];

		memcpy(&values[n],
		       argument->is_register ? (char *)&RD(argument->slot)
					     : (char *)t->r + argument->offset,
		       n ? 4 : 8);
	}
	if (!t->frame->function->trampolines)
		__atomic_store_n((uint32_t *)(uintptr_t)values[0], (uint32_t)values[1],
				 __ATOMIC_RELAXED);
	return i + 1;
}

SIM_OP(assert_failed) {
	return sim_fault(t, i, CUDA_ERROR_ASSERT, "an assertion failed");
}

/* --- barriers --- */

static bool barrier_complete(const struct sim_block *block, const struct sim_barrier *barrier) {
	if (!barrier->arrived)
		return false;
	if (barrier->expected)
		return barrier->arrived >= barrier->expected;
	return barrier->arrived >= block->thread_count - block->exited;
}

static void barrier_release(struct sim_block *block, uint32_t number) {
	struct sim_barrier *barrier = &block->barriers[number];

	for (uint32_t n = 0; n < block->thread_count; n++) {
		struct sim_thread *t = &block->threads[n];
		const struct sim_insn *i;

		if (t->state != SIM_AT_BARRIER || t->barrier != number)
			continue;
		i = t->next;
		if (i->mode == 2)
			RD(i->d) = barrier->trues;
		else if (i->mode == 3)
			RD(i->d) = barrier->trues == barrier->arrived;
		else if (i->mode == 4)
			RD(i->d) = barrier->trues > 0;
		t->next = i + 1;
		t->state = SIM_READY;
	}
	memset(barrier, 0, sizeof(*barrier));
}

SIM_OP(barrier) {
	uint32_t number = RD(i->a), expected = RD(i->b);
	struct sim_block *block = t->block;
	struct sim_barrier *barrier;

	if (number >= SIM_BARRIERS)
		return sim_fault(t, i, CUDA_ERROR_ILLEGAL_INSTRUCTION, "barrier %u", number);
	barrier = &block->barriers[number];
	barrier->expected = expected;
	barrier->arrived++;
	barrier->trues += i->mode >= 2 && RD(i->c);
	if (i->mode == 1) { /* arrives, does not wait */
		if (barrier_complete(block, barrier))
			barrier_release(block, number);
		return i + 1;
	}
	t->barrier = number;
	t->next = i;
	t->state = SIM_AT_BARRIER;
	if (barrier_complete(block, barrier))
		barrier_release(block, number);
	return NULL;
}

void sim_thread_exited(struct sim_thread *t) {
	struct sim_block *block = t->block;
	uint32_t first = t->index & ~31u;

	block->exited++;
	for (uint32_t n = 0; n < SIM_BARRIERS; n++)
		if (!block->barriers[n].expected && barrier_complete(block, &block->barriers[n]))
			barrier_release(block, n);
	for (uint32_t n = first; n < first + 32 && n < block->thread_count; n++)
		if (block->threads[n].state == SIM_AT_WARP)
			sim_warp_check(&block->threads[n]);
}

/* --- special registers --- */

static const struct {
	const char *name;
	enum sim_special special;
} specials[] = {
	{ "%tid.x", SIM_SREG_TID },
	{ "%tid.y", SIM_SREG_TID_Y },
	{ "%tid.z", SIM_SREG_TID_Z },
	{ "%ntid.x", SIM_SREG_NTID },
	{ "%ntid.y", SIM_SREG_NTID_Y },
	{ "%ntid.z", SIM_SREG_NTID_Z },
	{ "%ctaid.x", SIM_SREG_CTAID },
	{ "%ctaid.y", SIM_SREG_CTAID_Y },
	{ "%ctaid.z", SIM_SREG_CTAID_Z },
	{ "%nctaid.x", SIM_SREG_NCTAID },
	{ "%nctaid.y", SIM_SREG_NCTAID_Y },
	{ "%nctaid.z", SIM_SREG_NCTAID_Z },
	{ "%laneid", SIM_SREG_LANEID },
	{ "%warpid", SIM_SREG_WARPID },
	{ "%nwarpid", SIM_SREG_NWARPID },
	{ "%smid", SIM_SREG_SMID },
	{ "%nsmid", SIM_SREG_NSMID },
	{ "%gridid", SIM_SREG_GRIDID },
	{ "%clock", SIM_SREG_CLOCK },
	{ "%clock_hi", SIM_SREG_CLOCK_HI },
	{ "%clock64", SIM_SREG_CLOCK64 },
	{ "%globaltimer", SIM_SREG_GLOBALTIMER },
	{ "%globaltimer_lo", SIM_SREG_GLOBALTIMER_LO },
	{ "%globaltimer_hi", SIM_SREG_GLOBALTIMER_HI },
	{ "%lanemask_eq", SIM_SREG_LANEMASK_EQ },
	{ "%lanemask_le", SIM_SREG_LANEMASK_LE },
	{ "%lanemask_lt", SIM_SREG_LANEMASK_LT },
	{ "%lanemask_ge", SIM_SREG_LANEMASK_GE },
	{ "%lanemask_gt", SIM_SREG_LANEMASK_GT },
	{ "%dynamic_smem_size", SIM_SREG_DYNAMIC_SHARED },
	{ "%total_smem_size", SIM_SREG_TOTAL_SHARED },
	{ "%aggr_smem_size", SIM_SREG_TOTAL_SHARED },
	/* clusters of one block */
	{ "%clusterid.x", SIM_SREG_CTAID },
	{ "%clusterid.y", SIM_SREG_CTAID_Y },
	{ "%clusterid.z", SIM_SREG_CTAID_Z },
	{ "%nclusterid.x", SIM_SREG_NCTAID },
	{ "%nclusterid.y", SIM_SREG_NCTAID_Y },
	{ "%nclusterid.z", SIM_SREG_NCTAID_Z },
	{ "%cluster_ctaid.x", SIM_SREG_ZERO },
	{ "%cluster_ctaid.y", SIM_SREG_ZERO },
	{ "%cluster_ctaid.z", SIM_SREG_ZERO },
	{ "%cluster_nctaid.x", SIM_SREG_ONE },
	{ "%cluster_nctaid.y", SIM_SREG_ONE },
	{ "%cluster_nctaid.z", SIM_SREG_ONE },
	{ "%cluster_ctarank", SIM_SREG_ZERO },
	{ "%cluster_nctarank", SIM_SREG_ONE },
	{ "%is_explicit_cluster", SIM_SREG_ZERO },
	{ "%current_graph_exec", SIM_SREG_ZERO },
	{ "%reserved_smem_offset_begin", SIM_SREG_ZERO },
};

int sim_special_from_name(const char *name, size_t length) {
	for (size_t n = 0; n < sizeof(specials) / sizeof(specials[0]); n++)
		if (strlen(specials[n].name) == length && !memcmp(specials[n].name, name, length))
			return specials[n].special;
	if (length > 7 && !memcmp(name, "%envreg", 7))
		return SIM_SREG_ZERO;
	if (length > 3 && !memcmp(name, "%pm", 3) && name[3] >= '0' && name[3] <= '9')
		return SIM_SREG_ZERO;
	return -1;
}

static uint64_t nanoseconds(clockid_t clock) {
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t special_value(const struct sim_thread *t, enum sim_special special) {
	const struct sim_block *block = t->block;
	const struct sim_launch *launch = block->launch;
	uint32_t lane = t->index & 31, bit = UINT32_C(1) << lane;

	switch (special) {
	case SIM_SREG_TID:
	case SIM_SREG_TID_Y:
	case SIM_SREG_TID_Z:
		return t->tid[special - SIM_SREG_TID];
	case SIM_SREG_NTID:
	case SIM_SREG_NTID_Y:
	case SIM_SREG_NTID_Z:
		return launch->block[special - SIM_SREG_NTID];
	case SIM_SREG_CTAID:
	case SIM_SREG_CTAID_Y:
	case SIM_SREG_CTAID_Z:
		return block->id[special - SIM_SREG_CTAID];
	case SIM_SREG_NCTAID:
	case SIM_SREG_NCTAID_Y:
	case SIM_SREG_NCTAID_Z:
		return launch->grid[special - SIM_SREG_NCTAID];
	case SIM_SREG_LANEID:
		return lane;
	case SIM_SREG_WARPID:
		return t->index / 32;
	case SIM_SREG_NWARPID:
		return (block->thread_count + 31) / 32;
	case SIM_SREG_SMID:
		return block->sm;
	case SIM_SREG_NSMID:
		return SIM_SM_COUNT;
	case SIM_SREG_GRIDID:
		return block->grid_id;
	case SIM_SREG_CLOCK:
		return (uint32_t)nanoseconds(CLOCK_MONOTONIC);
	case SIM_SREG_CLOCK_HI:
		return nanoseconds(CLOCK_MONOTONIC) >> 32;
	case SIM_SREG_CLOCK64:
		return nanoseconds(CLOCK_MONOTONIC);
	case SIM_SREG_GLOBALTIMER:
		return nanoseconds(CLOCK_REALTIME);
	case SIM_SREG_GLOBALTIMER_LO:
		return (uint32_t)nanoseconds(CLOCK_REALTIME);
	case SIM_SREG_GLOBALTIMER_HI:
		return nanoseconds(CLOCK_REALTIME) >> 32;
	case SIM_SREG_LANEMASK_EQ:
		return bit;
	case SIM_SREG_LANEMASK_LE:
		return bit | (bit - 1);
	case SIM_SREG_LANEMASK_LT:
		return bit - 1;
	case SIM_SREG_LANEMASK_GE:
		return (uint32_t)~(bit - 1);
	case SIM_SREG_LANEMASK_GT:
		return (uint32_t)~(bit | (bit - 1));
	case SIM_SREG_DYNAMIC_SHARED:
		return launch->dynamic_shared;
	case SIM_SREG_TOTAL_SHARED:
		return sim_function_shared(launch->function) + launch->dynamic_shared;
	case SIM_SREG_ONE:
		return 1;
	case SIM_SREG_ZERO:
	case SIM_SREG_COUNT:
		break;
	}
	return 0;
}

SIM_OP(special) {
	RD(i->d) = special_value(t, i->mode);
	return i + 1;
}

/* Which lanes are together is the run's affair: sim-run.c. */
SIM_OP(activemask) {
	if (t->block->whole_warps) {
		t->next = i;
		t->state = SIM_AT_MASK;
		return NULL;
	}
	RD(i->d) = UINT32_C(1) << (t->index & 31);
	return i + 1;
}

sim_op sim_op_control(enum sim_control control) {
	static const sim_op ops[SIM_CONTROL_COUNT] = {
		[SIM_CONTROL_BRANCH_IF] = branch_if,
		[SIM_CONTROL_BRANCH_UNLESS] = branch_unless,
		[SIM_CONTROL_BRANCH] = branch,
		[SIM_CONTROL_BRANCH_BACK] = branch_back,
		[SIM_CONTROL_BRANCH_INDEX] = branch_index,
		[SIM_CONTROL_CALL] = call,
		[SIM_CONTROL_RETURN] = return_from,
		[SIM_CONTROL_EXIT] = exit_thread,
		[SIM_CONTROL_TRAP] = trap,
		[SIM_CONTROL_END] = end,
		[SIM_CONTROL_NOP] = nop,
		[SIM_CONTROL_FENCE] = fence,
		[SIM_CONTROL_PRINT] = print,
		[SIM_CONTROL_ASSERT] = assert_failed,
		[SIM_CONTROL_CONDITION] = condition,
		[SIM_CONTROL_BARRIER] = barrier,
		[SIM_CONTROL_WARP] = sim_warp,
		[SIM_CONTROL_ACTIVEMASK] = activemask,
		[SIM_CONTROL_SPECIAL] = special,
	};

	return ops[control];
}
