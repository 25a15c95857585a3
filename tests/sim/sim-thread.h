/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of a running grid, for the files sim-op-*.c and sim-run.c alone. */

#include <string.h>

#include "sim.h"

#define SIM_BUDGET 100000 /* backward branches of one thread until another one gets its turn */

enum sim_state {
	SIM_READY,
	SIM_AT_BARRIER,
	SIM_AT_WARP, /* waits for the lanes of warp_mask */
	SIM_AT_MASK, /* at activemask, with GPUPROBE_SIM_WARPS=whole: till all others had their turn
		      */
	SIM_EXITED,
	SIM_FAULT,
};

enum sim_warp_kind {
	SIM_WARP_SYNC = 1,
	SIM_WARP_SHFL,
	SIM_WARP_VOTE,
	SIM_WARP_MATCH,
	SIM_WARP_REDUX,
	SIM_WARP_ELECT,
	SIM_WARP_MATRIX, /* ldmatrix, one matrix */
};

/* Lies in front of a frame's registers. */
struct sim_frame {
	struct sim_frame *caller;
	const struct sim_insn *call; /* the call that made it */
	const struct sim_function *function;
	uint64_t padding;
};

/* A frame's variables lie between it and its registers. */
static inline uint64_t *sim_registers(struct sim_frame *frame) {
	return (uint64_t *)((char *)(frame + 1) + frame->function->variable_size);
}

struct sim_context {
	struct sim_context *next;
	char *end;
	char stack[] __attribute__((aligned(16)));
};

struct sim_thread {
	uint64_t *r; /* registers of the current frame */
	struct sim_frame *frame;
	char *top; /* first free byte of the stack */
	struct sim_context *context;
	struct sim_block *block;
	const struct sim_insn *next;
	int64_t budget; /* backward branches until others run */
	uint64_t carry;
	uint32_t state; /* enum sim_state */
	uint32_t tid[3];
	uint32_t index;
	uint32_t warp_mask, warp_kind;
	const struct sim_insn *warp_insn;
	uint32_t barrier;
	bool predicate; /* given to a reducing barrier */
	bool had_turn; /* it is ready still, after its turn */
};

struct sim_barrier {
	uint32_t arrived;
	uint32_t waiting;
	uint32_t expected; /* 0: all threads that have not exited */
	uint32_t trues; /* predicates given */
};

struct sim_block {
	const struct sim_launch *launch;
	struct sim_thread *threads;
	uint32_t thread_count;
	uint32_t exited;
	uint32_t id[3];
	uint64_t linear; /* index in the grid */
	char *shared;
	size_t shared_size;
	struct sim_barrier barriers[SIM_BARRIERS];
	uint64_t grid_id;
	uint32_t sm;
	bool whole_warps; /* activemask has all lanes that come to it, not the own one alone */
	uint32_t
		turn; /* a thread's turn is 1 to so many instructions; 0: as long as it can go on */
	uint64_t random; /* for the lengths of turns */
	struct sim_region *ranges; /* where several blocks run at once: instead of what instructions
				      remember */
	CUresult result;
};

#define SIM_RANGES 64 /* of a block */

#define SIM_OP(name)                                                                     \
	static const struct sim_insn *name(__attribute__((unused)) struct sim_thread *t, \
					   __attribute__((unused)) const struct sim_insn *i)

#define RD(slot) (t->r[slot])

static inline float sim_f32(uint64_t bits) {
	uint32_t low = bits;
	float value;

	memcpy(&value, &low, 4);
	return value;
}

static inline uint64_t sim_f32_bits(float value) {
	uint32_t bits;

	memcpy(&bits, &value, 4);
	return bits;
}

static inline double sim_f64(uint64_t bits) {
	double value;

	memcpy(&value, &bits, 8);
	return value;
}

static inline uint64_t sim_f64_bits(double value) {
	uint64_t bits;

	memcpy(&bits, &value, 8);
	return bits;
}

/* Stops the grid: prints a line, sets the block's result. Returns NULL. */
const struct sim_insn *sim_fault(struct sim_thread *t, const struct sim_insn *i, CUresult result,
				 const char *format, ...)
	__attribute__((format(printf, 4, 5), cold));

/* Pushes a frame for function. The caller fills in parameters. False if the stack is full. */
bool sim_push(struct sim_thread *t, const struct sim_function *function,
	      const struct sim_insn *call);

/* sim-patch.c: where a thread begins. */
const struct sim_insn *sim_patch_start(const struct sim_function *function);

/* sim-op-memory.c: shared memory at an offset; NULL after a fault. */
void *sim_shared_address(struct sim_thread *t, const struct sim_insn *i, uint32_t address,
			 size_t size);

/* sim-op-control.c: wakes up those whom this thread's end lets go on. */
void sim_thread_exited(struct sim_thread *t);
