/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). Runs a grid: blocks one after the other; in a block, each
 * thread until it ends, waits for others, or has had its share. A thread takes a context (its
 * stack) when it starts and gives it back when it ends, so a kernel without barriers needs one. If
 * a whole round moves nobody and not all have ended, they wait for each other: the launch fails.
 *
 * For code that many threads run at once the environment has three modes, which go together:
 *   GPUPROBE_SIM_THREADS=N   N blocks at once (8 at most), each on a thread of the CPU, which is
 *                            also its %smid
 *   GPUPROBE_SIM_TURN=N      a thread's turn lasts 1 to N instructions, at random
 *                            (GPUPROBE_SIM_SEED=S: another course)
 *   GPUPROBE_SIM_WARPS=whole activemask names all lanes of the warp that are at it when each
 *                            has had its turn; otherwise a lane is alone
 */

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim-op.h"

static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;

void sim_run_lock(void) {
	pthread_mutex_lock(&run_lock);
}

void sim_run_unlock(void) {
	pthread_mutex_unlock(&run_lock);
}

const struct sim_insn *sim_fault(struct sim_thread *t, const struct sim_insn *i, CUresult result,
				 const char *format, ...) {
	const struct ptx_module *module = t->frame->function->module;
	uint32_t line = 1;
	char message[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	for (uint32_t n = 0; n < i->position && n < module->length; n++)
		line += module->text[n] == '\n';
	fprintf(stderr,
		"gpuprobe CPU driver: %s, line %u of the PTX, block (%u,%u,%u) thread (%u,%u,%u): "
		"%s\n",
		t->frame->function->name, line, t->block->id[0], t->block->id[1], t->block->id[2],
		t->tid[0], t->tid[1], t->tid[2], message);
	t->state = SIM_FAULT;
	t->block->result = result;
	return NULL;
}

bool sim_push(struct sim_thread *t, const struct sim_function *function,
	      const struct sim_insn *call) {
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
	memcpy(t->r + function->register_count, function->constants,
	       function->constant_count * sizeof(uint64_t));
	return true;
}

/* What the environment says about how grids run. */
struct modes {
	uint32_t workers; /* GPUPROBE_SIM_THREADS */
	bool whole_warps; /* GPUPROBE_SIM_WARPS=whole */
	uint32_t turn; /* GPUPROBE_SIM_TURN */
	uint64_t seed; /* GPUPROBE_SIM_SEED */
};

/* One launch, and what its workers share. */
struct grid {
	const struct sim_launch *launch;
	struct modes modes;
	uint64_t id;
	uint64_t next, count; /* blocks: the next one to be taken; all */
	size_t stack_size, shared_size;
	CUresult result; /* of the first block that failed */
};

struct runner {
	struct sim_block block;
	struct sim_context *free_contexts;
	struct grid *grid;
	size_t stack_size;
	pthread_t thread;
	struct sim_region ranges[SIM_RANGES];
};

/* Stacks of the usual size are kept for the next launch. */
static struct sim_context *kept_contexts;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sim_context *kept_take(void) {
	struct sim_context *context;

	pthread_mutex_lock(&kept_lock);
	context = kept_contexts;
	if (context)
		kept_contexts = context->next;
	pthread_mutex_unlock(&kept_lock);
	return context;
}

static void kept_give(struct sim_context *context) {
	pthread_mutex_lock(&kept_lock);
	context->next = kept_contexts;
	kept_contexts = context;
	pthread_mutex_unlock(&kept_lock);
}

static struct sim_context *context_take(struct runner *runner) {
	struct sim_context *context = runner->free_contexts;

	if (context) {
		runner->free_contexts = context->next;
		return context;
	}
	context = runner->stack_size == SIM_STACK_SIZE ? kept_take() : NULL;
	if (context)
		return context;
	context = malloc(sizeof(*context) + runner->stack_size);
	if (context)
		context->end = context->stack + runner->stack_size;
	return context;
}

static void context_give(struct runner *runner, struct sim_thread *t) {
	t->context->next = runner->free_contexts;
	runner->free_contexts = t->context;
	t->context = NULL;
}

/* Gives a thread its stack and its kernel's frame. */
static bool thread_start(struct runner *runner, struct sim_thread *t) {
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
		       (const char *)launch->parameters + function->parameters[n].buffer_offset,
		       function->parameters[n].size);
	t->next = sim_patch_start(function);
	return true;
}

/* xorshift64*. */
static uint64_t next_random(uint64_t *state) {
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Runs until the thread stops, or its turn is over. */
static void thread_run(struct sim_thread *t) {
	const struct sim_insn *i = t->next;
	uint64_t left;

	if (!t->block->turn) {
		while (i)
			i = i->op(t, i);
		return;
	}
	for (left = (next_random(&t->block->random) >> 32) % t->block->turn + 1; i && left; left--)
		i = i->op(t, i);
	if (i)
		t->next = i;
}

/* Lets the lanes go on that came to the same activemask as the first one, by the same call and in
 * the same depth: they are together. */
static void mask_release(struct sim_thread *first, const struct sim_thread *end) {
	const struct sim_insn *i = first->next;
	ptrdiff_t depth = first->top - first->context->stack;
	struct sim_thread *t;
	uint32_t mask = 0;

	for (t = first; t < end; t++)
		if (t->state == SIM_AT_MASK && t->next == i &&
		    t->top - t->context->stack == depth && t->frame->call == first->frame->call)
			mask |= UINT32_C(1) << (t->index & 31);
	for (t = first; t < end; t++)
		if (mask >> (t->index & 31) & 1) {
			RD(i->d) = mask;
			t->next = i + 1;
			t->state = SIM_READY;
		}
}

/* At the end of a round: in warps of which each lane has had its turn. False if nobody waited
 * there. */
static bool masks_release(struct sim_block *block) {
	bool released = false;

	for (uint32_t first = 0; first < block->thread_count; first += 32) {
		uint32_t end = first + 32 < block->thread_count ? first + 32 : block->thread_count;
		bool complete = true;

		for (uint32_t n = first; n < end; n++)
			complete = complete && (block->threads[n].state != SIM_READY ||
						block->threads[n].had_turn);
		for (uint32_t n = first; n < end && complete; n++)
			if (block->threads[n].state == SIM_AT_MASK) {
				mask_release(&block->threads[n], &block->threads[end]);
				released = true;
			}
	}
	return released;
}

static void block_prepare(struct runner *runner) {
	struct sim_block *block = &runner->block;
	const uint32_t *size = block->launch->block;
	uint32_t index = 0;

	block->exited = 0;
	memset(block->barriers, 0, sizeof(block->barriers));
	for (uint32_t z = 0; z < size[2]; z++)
		for (uint32_t y = 0; y < size[1]; y++)
			for (uint32_t x = 0; x < size[0]; x++, index++)
				block->threads[index] = (struct sim_thread){
					.block = block,
					.index = index,
					.tid = { x, y, z },
					.state = SIM_READY,
					.budget = SIM_BUDGET,
				};
}

static void deadlock(struct sim_block *block) {
	uint32_t barrier = 0, warp = 0;

	for (uint32_t n = 0; n < block->thread_count; n++) {
		barrier += block->threads[n].state == SIM_AT_BARRIER;
		warp += block->threads[n].state == SIM_AT_WARP;
	}
	fprintf(stderr,
		"gpuprobe CPU driver: %s, block (%u,%u,%u): deadlock: %u threads wait at a "
		"barrier, %u for lanes of their warp\n",
		block->launch->function->name, block->id[0], block->id[1], block->id[2], barrier,
		warp);
	block->result = CUDA_ERROR_LAUNCH_FAILED;
}

static void block_run(struct runner *runner) {
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
			t->had_turn = t->state == SIM_READY;
			if (t->state == SIM_EXITED) {
				context_give(runner, t);
				sim_thread_exited(t);
			}
			if (block->result !=
			    CUDA_SUCCESS) /* of this thread, or of a lane that it waited for */
				return;
		}
		moved = masks_release(block) || moved;
	}
	if (block->exited < block->thread_count)
		deadlock(block);
}

/* Ranges have gone away since the program ran last: what its instructions remember is void. */
static void forget_ranges(struct sim_program *program) {
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

/* Takes blocks and runs them, until there are no more or one has failed. */
static void *run_blocks(void *data) {
	struct runner *runner = data;
	struct grid *grid = runner->grid;
	struct sim_block *block = &runner->block;
	const uint32_t *size = grid->launch->grid;
	CUresult none = CUDA_SUCCESS;

	while (__atomic_load_n(&grid->result, __ATOMIC_RELAXED) == CUDA_SUCCESS) {
		block->linear = __atomic_fetch_add(&grid->next, 1, __ATOMIC_RELAXED);
		if (block->linear >= grid->count)
			break;
		block->id[0] = block->linear % size[0];
		block->id[1] = block->linear / size[0] % size[1];
		block->id[2] = block->linear / size[0] / size[1];
		if (grid->modes.workers == 1)
			block->sm = block->linear % SIM_SM_COUNT;
		block_run(runner);
		if (block->result != CUDA_SUCCESS)
			__atomic_compare_exchange_n(&grid->result, &none, block->result, false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
	return NULL;
}

static bool runner_init(struct runner *runner, struct grid *grid, uint32_t number) {
	struct sim_block *block = &runner->block;
	const uint32_t *size = grid->launch->block;

	*runner = (struct runner){
		.grid = grid,
		.stack_size = grid->stack_size,
		.block.launch = grid->launch,
		.block.grid_id = grid->id,
		.block.result = CUDA_SUCCESS,
		.block.sm = number,
		.block.whole_warps = grid->modes.whole_warps,
		.block.turn = grid->modes.turn,
		.block.random = grid->modes.seed * SIM_SM_COUNT + number + 1,
		.block.shared_size = grid->shared_size,
	};
	block->thread_count = size[0] * size[1] * size[2];
	block->ranges = grid->modes.workers > 1 ? runner->ranges : NULL;
	block->threads = calloc(block->thread_count, sizeof(*block->threads));
	block->shared = aligned_alloc(1024, (block->shared_size + 1024) & ~(size_t)1023);
	if (!block->threads || !block->shared)
		return false;
	memset(block->shared, 0, block->shared_size);
	return true;
}

static void runner_deinit(struct runner *runner) {
	for (uint32_t n = 0; runner->block.threads && n < runner->block.thread_count; n++)
		if (runner->block.threads[n].context)
			context_give(runner, &runner->block.threads[n]);
	while (runner->free_contexts) {
		struct sim_context *context = runner->free_contexts;

		runner->free_contexts = context->next;
		if (runner->stack_size == SIM_STACK_SIZE)
			kept_give(context);
		else
			free(context);
	}
	free(runner->block.threads);
	free(runner->block.shared);
}

/* Runs the grid with so many workers as there is memory for, this thread being the first one. The
 * application's signals are not theirs. */
static CUresult run_grid(struct grid *grid) {
	struct runner *runners = calloc(grid->modes.workers, sizeof(*runners));
	uint32_t count = 0, started = 1;
	sigset_t all, before;

	if (!runners)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	while (count < grid->modes.workers && runner_init(&runners[count], grid, count))
		count++;
	sigfillset(&all);
	if (count > 1)
		pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started < count &&
	       !pthread_create(&runners[started].thread, NULL, run_blocks, &runners[started]))
		started++;
	if (count > 1)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (count)
		run_blocks(&runners[0]);
	else
		grid->result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	for (uint32_t n = 1; n < started && n < count; n++)
		pthread_join(runners[n].thread, NULL);
	for (uint32_t n = 0; n < grid->modes.workers; n++)
		runner_deinit(&runners[n]);
	free(runners);
	return grid->result;
}

static uint64_t number_from(const char *name, uint64_t most) {
	const char *text = getenv(name);
	uint64_t value = text ? strtoull(text, NULL, 10) : 0;

	return value < most ? value : most;
}

static struct modes read_modes(void) {
	const char *warps = getenv("GPUPROBE_SIM_WARPS");
	struct modes modes = {
		.workers = number_from("GPUPROBE_SIM_THREADS", SIM_SM_COUNT),
		.whole_warps = warps && !strcmp(warps, "whole"),
		.turn = number_from("GPUPROBE_SIM_TURN", 1000000),
		.seed = number_from("GPUPROBE_SIM_SEED", UINT32_MAX),
	};

	if (!modes.workers)
		modes.workers = 1;
	return modes;
}

CUresult sim_run(const struct sim_launch *launch) {
	static uint64_t grids;
	struct sim_program *program = launch->function->program;
	size_t needed = launch->function->frame_size + program->chain_size, patch_size = 0;
	struct grid grid = {
		.launch = launch,
		.modes = read_modes(),
		.id = ++grids,
		.result = CUDA_SUCCESS,
		.stack_size = SIM_STACK_SIZE,
		.count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
		.shared_size = program->shared_size + launch->dynamic_shared,
	};

	if (grid.modes.workers > grid.count)
		grid.modes.workers = grid.count;
	forget_ranges(program);
	for (uint32_t n = 0; n < SIM_PATCHES; n++) {
		struct sim_program *patch =
			program->patches[n] ? program->patches[n]->program : NULL;

		if (!patch)
			continue;
		forget_ranges(patch);
		if (patch->chain_size > patch_size) /* one runs at a time */
			patch_size = patch->chain_size;
	}
	needed += patch_size;
	if (needed > SIM_STACK_SIZE / 2) /* only recursion is to find it full */
		grid.stack_size += needed;
	return run_grid(&grid);
}
