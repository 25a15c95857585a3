/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). Patches: functions of another program that threads call at
 * instructions of a class. A patched instruction has another op, which leads to its trampoline:
 * that calls the patch with what the instruction is about to do, then does it. So code that is not
 * patched costs nothing.
 *
 * A thread's stack at a patched instruction: the frame, struct scratch, the patch's frame.
 */

#include <stdlib.h>

#include "proto/patch.h"
#include "sim-op.h"

#define NO_INSN UINT32_MAX

/* What a patch may point to, and what it returns. */
struct scratch {
	uint64_t value[4];
	uint32_t result;
	uint32_t padding[3];
};

struct sim_trampoline {
	struct sim_insn enter, leave; /* a patch returns to what follows its call */
	struct sim_call call;
	struct sim_argument result;
	struct sim_site site; /* its insn is NO_INSN at the entry */
	struct sim_insn *original;
	sim_op op; /* of the original */
};

/* What patches of a class get behind data and pc: 8 bytes for Q, 4 for L. */
static const char *const arguments[SIM_PATCHES] = {
	[PATCH_BLOCK_ENTER] = "",
	[PATCH_BLOCK_EXIT] = "",
	[PATCH_GLOBAL_MEMORY] = "QLLQ",
	[PATCH_SHARED_MEMORY] = "QLLQ",
	[PATCH_LOCAL_MEMORY] = "QLLQ",
	[PATCH_BARRIER] = "LLL",
	[PATCH_SYNCWARP] = "L",
	[PATCH_SHFL] = "",
	[PATCH_CALL] = "QL",
	[PATCH_RET] = "",
	[PATCH_MALLOC] = "QQ",
	[PATCH_FREE] = "Q",
	[PATCH_REMOTE_SHARED_MEMORY] = "QLLQ",
};

static uint64_t pc_of(const struct sim_function *function, const struct sim_insn *i) {
	return (uint64_t)(function->number + 1) << 24 | (uint64_t)(i - function->insns) << 4;
}

/* Where a memory access goes, as patches get it, and of which class that is. */
static uint32_t resolve(struct sim_thread *t, const struct sim_trampoline *p, uint64_t *out) {
	const struct sim_insn *i = p->original;
	const struct sim_vector *vector = p->site.vector ? i->data : NULL;
	int64_t offset = vector ? vector->offset : i->offset;
	uint64_t stack = (uintptr_t)t->context->stack, shared = (uintptr_t)t->block->shared;
	uint64_t address =
		(p->site.access == SIM_ACCESS_FRAME ? (uintptr_t)t->r : RD(i->a)) + offset;
	uint32_t patch = p->site.patch;

	if (p->site.access == SIM_ACCESS_SHARED)
		address = (uint32_t)address;
	if (p->site.generic && address - shared < t->block->shared_size) {
		patch = PATCH_SHARED_MEMORY;
		address -= shared;
	} else if (p->site.generic && address - stack < (uintptr_t)t->context->end - stack) {
		patch = PATCH_LOCAL_MEMORY;
	}
	*out = patch == PATCH_LOCAL_MEMORY ? address - stack : address;
	return patch;
}

/* The value that is stored; for a read, as on a GPU, which of its bytes are used. */
static void fill_value(struct sim_thread *t, const struct sim_trampoline *p,
		       struct scratch *scratch) {
	const struct sim_insn *i = p->original;

	if (!(p->site.flags & 2)) {
		scratch->value[0] =
			p->site.size < 32 ? (UINT32_C(1) << p->site.size) - 1 : UINT32_MAX;
	} else if (p->site.vector) {
		const struct sim_vector *vector = i->data;

		for (uint32_t n = 0; n < vector->count; n++)
			memcpy((char *)scratch->value + n * vector->element, &RD(vector->slots[n]),
			       vector->element);
	} else {
		memcpy(scratch->value, &RD(i->d), p->site.size);
	}
}

/* The class's own arguments; returns the class. */
static uint32_t collect(struct sim_thread *t, const struct sim_trampoline *p,
			struct scratch *scratch, uint64_t values[4]) {
	const struct sim_insn *i = p->original;
	const struct sim_function *target;

	switch (p->site.patch) {
	case PATCH_GLOBAL_MEMORY:
	case PATCH_SHARED_MEMORY:
	case PATCH_LOCAL_MEMORY:
	case PATCH_REMOTE_SHARED_MEMORY:
		values[1] = p->site.size;
		values[2] = p->site.flags;
		values[3] = (p->site.flags & 3) == 3 ? 0 : (uintptr_t)scratch->value;
		if (values[3])
			fill_value(t, p, scratch);
		return resolve(t, p, &values[0]);
	case PATCH_BARRIER:
		values[0] = RD(i->a);
		values[1] = RD(i->b); /* 0: all */
		break;
	case PATCH_SYNCWARP:
		values[0] = RD(i->bits);
		break;
	case PATCH_CALL:
		target = sim_call_target(t, i);
		values[0] = target ? pc_of(target, target->insns) : 0;
		break;
	}
	return p->site.patch;
}

SIM_OP(enter) {
	const struct sim_trampoline *p =
		(const struct sim_trampoline *)i; /* it is the first member */
	const struct sim_function *caller = t->frame->function, *patch;
	uint64_t values[6] = { t->block->launch->patch_data, pc_of(caller, p->original) };
	struct scratch *scratch = (struct scratch *)t->top;

	if (sizeof(*scratch) > (size_t)(t->context->end - t->top))
		return sim_fault(t, i, CUDA_ERROR_HARDWARE_STACK_ERROR,
				 "a patch: the stack is full");
	memset(scratch, 0, sizeof(*scratch));
	patch = caller->program->patches[collect(t, p, scratch, values + 2)];
	t->top += sizeof(*scratch);
	if (!patch)
		return &p->leave;
	if (!sim_push(t, patch, i))
		return sim_fault(t, i, CUDA_ERROR_HARDWARE_STACK_ERROR, "%s: the stack is full",
				 patch->name);
	for (uint32_t n = 0; n < patch->parameter_count; n++)
		memcpy((char *)t->r + patch->parameters[n].offset, &values[n],
		       patch->parameters[n].size);
	return patch->insns;
}

SIM_OP(leave) {
	const struct sim_trampoline *p = (const struct sim_trampoline *)(i - 1);
	const struct scratch *scratch = (const struct scratch *)(t->top -= sizeof(*scratch));

	if (scratch->result)
		return sim_fault(t, i, CUDA_ERROR_LAUNCH_FAILED,
				 "a patch returned %u, which ends the warp", scratch->result);
	return p->site.insn == NO_INSN ? p->original : p->op(t, p->original);
}

SIM_OP(patched) {
	const struct sim_function *function = t->frame->function;

	return &function->trampolines[i - function->insns]->enter;
}

const struct sim_insn *sim_patch_start(const struct sim_function *function) {
	const struct sim_trampoline *p =
		function->trampolines ? function->trampolines[function->insn_count] : NULL;

	return p ? &p->enter : function->insns;
}

bool sim_patch_fits(uint32_t patch, const struct sim_function *function) {
	const char *own = patch < SIM_PATCHES ? arguments[patch] : NULL;

	if (!own || function->entry || function->return_count != 1 ||
	    function->parameter_count != 2 + strlen(own))
		return false;
	for (uint32_t n = 0; n < function->parameter_count; n++)
		if (function->parameters[n].size != (n < 2 || own[n - 2] == 'Q' ? 8 : 4))
			return false;
	return function->returns[0].size == 4 && function->source->return_count == 1;
}

static bool wanted(const struct sim_program *program, const struct sim_site *site) {
	return program->patches[site->patch] ||
	       (site->generic &&
		(program->patches[PATCH_SHARED_MEMORY] || program->patches[PATCH_LOCAL_MEMORY]));
}

static bool patch_site(struct sim_function *function, struct sim_site site) {
	struct sim_trampoline *p = calloc(1, sizeof(*p));
	bool entry = site.insn == NO_INSN;

	if (!p)
		return false;
	p->site = site;
	p->original = &function->insns[entry ? 0 : site.insn];
	p->op = p->original->op;
	p->enter = (struct sim_insn){ .op = enter,
				      .data = &p->call,
				      .position = p->original->position };
	p->leave = (struct sim_insn){ .op = leave, .position = p->original->position };
	p->call = (struct sim_call){ .return_count = 1, .arguments = &p->result };
	p->result = (struct sim_argument){
		.offset = (int32_t)(function->frame_size - function->variable_size +
				    offsetof(struct scratch, result)),
		.size = 4,
	};
	function->trampolines[entry ? function->insn_count : site.insn] = p;
	if (!entry)
		p->original->op = patched;
	return true;
}

static bool patch_function(struct sim_function *function) {
	const struct sim_program *program = function->program;
	bool good;

	function->trampolines = calloc(function->insn_count + 1, sizeof(struct sim_trampoline *));
	good = function->trampolines;
	if (good && function->entry && program->patches[PATCH_BLOCK_ENTER])
		good = patch_site(function,
				  (struct sim_site){ .insn = NO_INSN, .patch = PATCH_BLOCK_ENTER });
	for (uint32_t n = 0; good && n < function->site_count; n++)
		if (wanted(program, &function->sites[n]))
			good = patch_site(function, function->sites[n]);
	return good;
}

void sim_unpatch(struct sim_program *program) {
	for (uint32_t n = 0; n < program->function_count; n++) {
		struct sim_function *function = program->functions[n];

		for (uint32_t k = 0; function->trampolines && k <= function->insn_count; k++) {
			struct sim_trampoline *p = function->trampolines[k];

			if (p && k < function->insn_count)
				p->original->op = p->op;
			free(p);
		}
		free(function->trampolines);
		function->trampolines = NULL;
	}
	memset(program->patches, 0, sizeof(program->patches));
}

CUresult sim_patch(struct sim_program *program,
		   const struct sim_function *const patches[SIM_PATCHES]) {
	sim_unpatch(program);
	memcpy(program->patches, patches, sizeof(program->patches));
	for (uint32_t n = 0; n < program->function_count; n++)
		if (!patch_function(program->functions[n])) {
			sim_unpatch(program);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	return CUDA_SUCCESS;
}
