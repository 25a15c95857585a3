/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a grid: blocks one after the other; in a block, each thread until it ends, waits for others, or has had its share. A
 * thread takes a context (its stack) when it starts and gives it back when it ends, so a kernel without barriers needs one.
 * If a whole round moves nobody and not all have ended, they wait for each other: the launch fails.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim-op.h"

static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;

void sim_run_lock(void)
{
	pthread_mutex_lock(&run_lock);
}

void sim_run_unlock(void)
{
	pthread_mutex_unlock(&run_lock);
}

const struct sim_insn *sim_fault(struct sim_thread *t, const struct sim_insn *i, CUresult result, const char *format, ...)
{
	const struct ptx_module *module = t->frame->function->module;
	uint32_t line = 1;
	char message[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	for (uint32_t n = 0; n < i->position && n < module->length; n++)
		line += module->text[n] == '\n';
	fprintf(stderr, "gpuprobe CPU driver: %s, line %u of the PTX, block (%u,%u,%u) thread (%u,%u,%u): %s\n",
		t->frame->function->name, line, t->block->id[0], t->block->id[1], t->block->id[2], t->tid[0], t->tid[1], t->tid[2],
		message);
	t->state = SIM_FAULT;
	t->block->result = result;
	return NULL;
}

bool sim_push(struct sim_thread *t, const struct sim_function *function, const struct sim_insn *call)
{
	struct sim_frame *frame = (struct sim_frame *)t->top;
	size_t size = sizeof(*frame) + function->frame_size;

	if (size > (size_t)(t->context->end - t->top))
		return false;
	frame->caller = t->frame;
	frame->call = call;
	frame->function = function;
	t->frame = frame;
	t->r = sim_registers(frame);
	t->top += size;
	memset(t->r, 0, function->register_count * sizeof(uint64_t));
	memcpy(t->r + function->register_count, function->constants, function->constant_count * sizeof(uint64_t));
	return true;
}

struct runner {
	struct sim_block block;
	struct sim_context *free_contexts;
	size_t stack_size;
};

/* Stacks of the usual size are kept for the next launch: under the run lock, like everything here. */
static struct sim_context *kept_contexts;

static struct sim_context *context_take(struct runner *runner)
{
	struct sim_context *context = runner->free_contexts;

	if (context) {
		runner->free_contexts = context->next;
		return context;
	}
	if (kept_contexts && runner->stack_size == SIM_STACK_SIZE) {
		context = kept_contexts;
		kept_contexts = context->next;
		return context;
	}
	context = malloc(sizeof(*context) + runner->stack_size);
	if (context)
		context->end = context->stack + runner->stack_size;
	return context;
}

static void context_give(struct runner *runner, struct sim_thread *t)
{
	t->context->next = runner->free_contexts;
	runner->free_contexts = t->context;
	t->context = NULL;
}

/* Gives a thread its stack and its kernel's frame. */
static bool thread_start(struct runner *runner, struct sim_thread *t)
{
	const struct sim_launch *launch = runner->block.launch;
	const struct sim_function *function = launch->function;

	t->context = context_take(runner);
	if (!t->context)
		return false;
	t->top = t->context->stack;
	t->frame = NULL;
	if (!sim_push(t, function, NULL))
		return false;
	for (uint32_t n = 0; n < function->parameter_count; n++)
		memcpy((char *)t->r + function->parameters[n].offset,
		       (const char *)launch->parameters + function->parameters[n].buffer_offset, function->parameters[n].size);
	t->next = function->insns;
	return true;
}

/* Runs until the thread stops. */
static void thread_run(struct sim_thread *t)
{
	const struct sim_insn *i = t->next;

	while (i)
		i = i->op(t, i);
}

static void block_prepare(struct runner *runner)
{
	struct sim_block *block = &runner->block;
	const uint32_t *size = block->launch->block;
	uint32_t index = 0;

	block->exited = 0;
	memset(block->barriers, 0, sizeof(block->barriers));
	for (uint32_t z = 0; z < size[2]; z++)
		for (uint32_t y = 0; y < size[1]; y++)
			for (uint32_t x = 0; x < size[0]; x++, index++)
				block->threads[index] = (struct sim_thread){
					.block = block, .index = index, .tid = {x, y, z}, .state = SIM_READY, .budget = SIM_BUDGET,
				};
}

static void deadlock(struct sim_block *block)
{
	uint32_t barrier = 0, warp = 0;

	for (uint32_t n = 0; n < block->thread_count; n++) {
		barrier += block->threads[n].state == SIM_AT_BARRIER;
		warp += block->threads[n].state == SIM_AT_WARP;
	}
	fprintf(stderr,
		"gpuprobe CPU driver: %s, block (%u,%u,%u): deadlock: %u threads wait at a barrier, %u for lanes of their warp\n",
		block->launch->function->name, block->id[0], block->id[1], block->id[2], barrier, warp);
	block->result = CUDA_ERROR_LAUNCH_FAILED;
}

static void block_run(struct runner *runner)
{
	struct sim_block *block = &runner->block;
	bool moved = true;

	block_prepare(runner);
	while (block->exited < block->thread_count && moved) {
		moved = false;
		for (uint32_t n = 0; n < block->thread_count; n++) {
			struct sim_thread *t = &block->threads[n];

			if (t->state != SIM_READY)
				continue;
			moved = true;
			if (!t->context && !thread_start(runner, t)) {
				block->result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
				return;
			}
			thread_run(t);
			if (t->state == SIM_EXITED) {
				context_give(runner, t);
				sim_thread_exited(t);
			} else if (t->state == SIM_FAULT) {
				return;
			}
		}
	}
	if (block->exited < block->thread_count)
		deadlock(block);
}

/* Ranges have gone away since the program ran last: what its instructions remember is void. */
static void forget_ranges(struct sim_program *program)
{
	static const uint64_t nowhere __attribute__((aligned(64)));
	uint64_t generation = sim_memory_generation();

	if (program->cache_generation == generation)
		return;
	for (uint32_t n = 0; n < program->function_count; n++)
		for (uint32_t k = 0; k < program->functions[n]->insn_count; k++) {
			program->functions[n]->insns[k].low = (uintptr_t)&nowhere;
			program->functions[n]->insns[k].span = 0;
		}
	program->cache_generation = generation;
}

static void run_blocks(struct runner *runner)
{
	struct sim_block *block = &runner->block;
	const struct sim_launch *launch = block->launch;

	for (uint32_t z = 0; z < launch->grid[2]; z++)
		for (uint32_t y = 0; y < launch->grid[1]; y++)
			for (uint32_t x = 0; x < launch->grid[0]; x++) {
				block->id[0] = x;
				block->id[1] = y;
				block->id[2] = z;
				block_run(runner);
				if (block->result != CUDA_SUCCESS)
					return;
				block->linear++;
			}
}

static void runner_deinit(struct runner *runner)
{
	for (uint32_t n = 0; runner->block.threads && n < runner->block.thread_count; n++)
		if (runner->block.threads[n].context)
			context_give(runner, &runner->block.threads[n]);
	while (runner->free_contexts) {
		struct sim_context *context = runner->free_contexts;

		runner->free_contexts = context->next;
		if (runner->stack_size == SIM_STACK_SIZE) {
			context->next = kept_contexts;
			kept_contexts = context;
		} else {
			free(context);
		}
	}
	free(runner->block.threads);
	free(runner->block.shared);
}

CUresult sim_run(const struct sim_launch *launch)
{
	static uint64_t grids;
	struct runner runner = {.block.launch = launch, .block.grid_id = ++grids, .block.result = CUDA_SUCCESS};
	struct sim_program *program = launch->function->program;
	struct sim_block *block = &runner.block;

	runner.stack_size = SIM_STACK_SIZE;
	if (launch->function->frame_size > SIM_STACK_SIZE / 2) /* large local arrays */
		runner.stack_size += launch->function->frame_size;
	block->thread_count = launch->block[0] * launch->block[1] * launch->block[2];
	block->shared_size = program->shared_size + launch->dynamic_shared;
	block->threads = calloc(block->thread_count, sizeof(*block->threads));
	block->shared = aligned_alloc(1024, (block->shared_size + 1024) & ~(size_t)1023);
	if (!block->threads || !block->shared) {
		runner_deinit(&runner);
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	}
	memset(block->shared, 0, block->shared_size);
	forget_ranges(program);
	run_blocks(&runner);
	runner_deinit(&runner);
	return block->result;
}
