/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interpreter: PTX text becomes a program, a program's kernels are launched over a grid, in the
 * calling thread (sim-run.c has modes with more of them).
 *
 * sim-memory.c   what a kernel may access: a sorted table of address ranges
 * sim-program.c  a module: its variables in real memory, its functions
 * sim-decode*.c  a function's body becomes an array of struct sim_insn, once
 * sim-op-*.c     what instructions do: one C function for each kind and type
 * sim-run.c      blocks one after the other; in a block each thread runs until it waits for others
 * sim-patch.c    functions of another program that are called at instructions of a class, as
 * NVIDIA's patching library does it
 *
 * Addresses are real ones (generic, global, const, local and param space alike). Shared memory
 * alone is addressed by offsets from the block's own memory, because compilers keep such addresses
 * in 32 bits; cvta adds the base.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/ptx/ptx-module.h"
#include "sim-cuda.h"

#define SIM_WARP 32
#define SIM_SM_COUNT 8
#define SIM_BLOCK_MAX 1024
#define SIM_SHARED_DEFAULT (48u << 10)
#define SIM_SHARED_MAX (227u << 10)
#define SIM_PARAMETERS_MAX 32764
#define SIM_STACK_SIZE (256u << 10)
#define SIM_BARRIERS 16
#define SIM_SET_CONDITION \
	"cudaGraphSetConditional" /* the function of CUDA's library for device code */
#define SIM_PATCHES                                                                               \
	41 /* classes of instructions that can be patched: enum patch_instruction (proto/patch.h) \
	    */

/* --- sim-memory.c
 * -------------------------------------------------------------------------------------------------
 */

enum sim_region_kind {
	SIM_REGION_DEVICE, /* cuMemAlloc */
	SIM_REGION_TOOL, /* the same by a patching library: the driver's copies refuse it [H200] */
	SIM_REGION_HOST, /* cuMemHostAlloc */
	SIM_REGION_REGISTERED, /* cuMemHostRegister */
	SIM_REGION_GLOBAL, /* a module's variable */
	SIM_REGION_CONSTANT,
};

struct sim_region {
	uintptr_t base;
	size_t size;
	enum sim_region_kind kind;
	unsigned int flags;
	uint64_t id;
};

/* Adds a range. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED if it overlaps one,
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_memory_add(uintptr_t base, size_t size, enum sim_region_kind kind, unsigned int flags);
/* Removes the range that begins at base and is of that kind; false if there is none. */
bool sim_memory_remove(uintptr_t base, enum sim_region_kind kind, struct sim_region *out);
/* The range that holds address; false if there is none. Zero bytes behind its end do not count. */
bool sim_memory_find(uintptr_t address, struct sim_region *out);
/* Does one range hold all of it? */
bool sim_memory_holds(uintptr_t address, size_t size);
/* Changes whenever a range goes away: cached look-ups are void then. */
uint64_t sim_memory_generation(void);
/* Bytes of device memory in use. */
size_t sim_memory_used(void);
/* Bytes of host memory that are registered. */
size_t sim_memory_registered(void);

/* --- what is executed
 * --------------------------------------------------------------------------------------------- */

struct sim_thread;
struct sim_insn;

/* Executes one instruction. Returns the next one, or NULL if the thread stops: thread->state says
 * why. */
typedef const struct sim_insn *(*sim_op)(struct sim_thread *t, const struct sim_insn *i);

/* d, a, b, c, e: registers, as indexes into the frame. Immediates are registers too, filled in when
 * the frame is made. */
struct sim_insn {
	sim_op op;
	uint32_t d, a, b, c, e;
	uint32_t mode; /* of the operation: rounding, comparison ... */
	union {
		int64_t offset; /* added to an address; or that of a frame's variable */
		const struct sim_insn *target;
		const void *data;
		uint64_t bits;
	};
	uint32_t position; /* in the text of the module */
	uint32_t width; /* bytes accessed */
	/* The range that the last access hit: address - low <= span. Written while it runs, unless
	 * blocks run at once; launches hold a lock. */
	uintptr_t low;
	size_t span;
};

/* A parameter or return value of a function. Its memory is in the frame. */
struct sim_parameter {
	int32_t offset; /* from the frame's registers; a .reg parameter is one of them */
	uint32_t size;
	uint32_t buffer_offset; /* kernels: in the launch's buffer */
};

struct sim_program;

/* An instruction that belongs to a class which can be patched. */
struct sim_site {
	uint32_t insn;
	uint8_t patch; /* enum patch_instruction; of a generic address, PATCH_GLOBAL_MEMORY */
	uint8_t access; /* memory: enum sim_access */
	uint8_t size, flags; /* memory: as patches get them */
	bool generic, vector; /* memory */
};

struct sim_trampoline; /* private to sim-patch.c */

struct sim_function {
	char *name;
	uint32_t number; /* in the program */
	struct sim_program *program;
	const struct ptx_module *module;
	const struct ptx_function *source;
	bool entry;

	struct ptx_body *body; /* between sim_decode_frame() and sim_decode() */
	uint32_t *shared; /* as long: the place of each variable of the body that is shared */

	struct sim_insn *insns;
	uint32_t insn_count;
	/* A frame: variables (local, parameters), then registers, then constants and temporaries.
	 */
	uint64_t *constants;
	uint32_t constant_count;
	uint32_t register_count; /* without the constants */
	uint32_t variable_size; /* bytes, a multiple of 16 */
	uint32_t frame_size; /* bytes, a multiple of 16 */
	uint32_t parameters_end; /* of the variables: where those of the body begin */
	uint32_t local_size;
	uint32_t shared_size; /* static: its own, and of the module's what it names */
	struct sim_parameter *parameters;
	uint32_t parameter_count;
	struct sim_parameter *returns;
	uint32_t return_count;
	uint32_t parameter_bytes; /* kernels: size of the launch's buffer */
	uint32_t max_threads; /* .maxntid, .reqntid: product; else SIM_BLOCK_MAX; and what registers
				 suffice for */
	uint32_t registers; /* what a thread takes of a block's: those that are declared */
	uint32_t resident; /* threads that registers suffice for; 0: any number */
	uint32_t required[3]; /* .reqntid; 0 if none */
	void **tables; /* to free: branch tables, call sites */
	uint32_t table_count;

	struct sim_site *sites;
	uint32_t site_count;
	/* by instruction, NULL for those that are not patched; the last one is of the entry. NULL:
	 * nothing is patched */
	struct sim_trampoline **trampolines;

	/* what cuFuncSetAttribute sets */
	int max_dynamic_shared;
	int carveout;
	void *user; /* the API's object for it */
};

struct sim_variable {
	char *name;
	uint64_t address; /* shared: an offset */
	uint64_t size;
	enum ptx_space space;
	enum ptx_linkage linkage;
	uint32_t module;
	bool managed; /* one in all contexts */
	void *memory; /* owned, in the table of ranges; NULL if it has none */
};

/* One module, from one or several PTX texts that are linked. */
struct sim_index; /* private: names -> functions and variables */

struct sim_program {
	char **texts; /* owned */
	struct ptx_module *modules;
	uint32_t module_count;
	struct sim_function **functions;
	uint32_t function_count;
	struct sim_variable *variables;
	uint32_t variable_count;
	struct sim_index *index;
	uint32_t shared_size; /* static, of all functions */
	size_t chain_size; /* bytes of a thread's stack if each function calls the next */
	uint64_t cache_generation;
	const struct sim_function *patches[SIM_PATCHES]; /* what it is patched with */
};

/* A variable in .global that lies elsewhere: it has no memory in this program. */
struct sim_elsewhere {
	const char *name; /* NULL: the end of the array */
	uint64_t address;
};

/*
 * Makes a program of n texts (copied). addresses: of variables, or NULL. On failure message says
 * why, in one line. CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
 * CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND.
 */
CUresult sim_program_new(struct sim_program **out, const char *const *texts, const size_t *lengths,
			 uint32_t n, const struct sim_elsewhere *addresses, char *message,
			 size_t message_size);
struct sim_program *sim_program_free(struct sim_program *program);
struct sim_function *sim_program_kernel(const struct sim_program *program, const char *name);
/* What a name means in a module: its own, else a visible one of another. NULL if there is none. */
const struct sim_variable *sim_program_variable(const struct sim_program *program,
						const struct ptx_module *module, const char *name,
						size_t length);
struct sim_function *sim_program_function(const struct sim_program *program,
					  const struct ptx_module *module, const char *name,
					  size_t length);
/* A variable that cuModuleGetGlobal may know; NULL if there is none. */
const struct sim_variable *sim_program_global(const struct sim_program *program, const char *name);
/* Static shared memory that a kernel uses. */
uint32_t sim_function_shared(const struct sim_function *function);

/* --- sim-decode.c --- */

/* Decodes the body. Returns CUDA_SUCCESS, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_decode(struct sim_function *function, char *message, size_t message_size);
void sim_function_deinit(struct sim_function *function);

/* --- sim-run.c --- */

struct sim_launch {
	struct sim_function *function;
	uint32_t grid[3], block[3];
	uint32_t dynamic_shared;
	const void *parameters; /* function->parameter_bytes */
	uint64_t patch_data; /* what patches get first */
};

/*
 * Runs a grid to its end. CUDA_SUCCESS, or what a GPU would say (CUDA_ERROR_ILLEGAL_ADDRESS,
 * CUDA_ERROR_LAUNCH_FAILED ...) after a line on stderr. Launches exclude each other: sim_run_lock()
 * is held.
 */
CUresult sim_run(const struct sim_launch *launch);
void sim_run_lock(void); /* keeps kernels from running: for what takes memory away */
void sim_run_unlock(void);

/* --- sim-patch.c; both under sim_run_lock() --- */

/* Is it a class, and does a function take what its patches get? */
bool sim_patch_fits(uint32_t patch, const struct sim_function *function);
/* Replaces what a program is patched with. CUDA_ERROR_OUT_OF_MEMORY: it has no patches then. */
CUresult sim_patch(struct sim_program *program,
		   const struct sim_function *const patches[SIM_PATCHES]);
void sim_unpatch(struct sim_program *program);
