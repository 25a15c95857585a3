/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sanitizer engine: what shim, daemon and worker tell each other about patches.
 *
 * A patch image holds device functions. NVIDIA's Compute Sanitizer patching API makes the machine
 * code of loaded kernels call them. Patches apply to a whole module. The data that such a function
 * gets says which kernel is meant: the address of a struct patch_data in device memory, or 0 (the
 * function then returns at once).
 *
 * The shim sends WIRE_IMAGE of kind WIRE_IMAGE_NAMES (wire.h). Its memfd is a *list of names*: the
 * kernels of the loaded modules. The answer WIRE_VERDICT_MADE carries a memfd with a *plan*,
 * and SLOTs that say what to write where in the data of every kernel. WIRE_VERDICT_OWN: there is
 * nothing to patch, or nothing now (enum wire_later).
 *
 * In all else a plan is like a twin: it has a module_id, is armed (its slots have memory
 * in a context), and unloaded (the shim has another plan, or none). All integers are little-endian;
 * every record begins at a multiple of 8 bytes.
 */

#include <stdint.h>

#define PATCH_NAMES_SIZE_MAX                                                                      \
	(UINT32_C(16) << 20) /* bytes of a list of names; modules that do not fit are not patched \
			      */
#define PATCH_MAGIC UINT32_C(0x50525047) /* "GPRP" */
#define PATCH_VERSION UINT32_C(1)
#define PATCH_ATTACHMENTS_MAX 58 /* of one plan */
#define PATCH_DATA_MAX 4096 /* bytes of a struct patch_data with its slots */

/*
 * A module in a list of names. `name_count` NUL-terminated mangled names follow, then NULs up to
 * `size`.
 */
struct patch_module {
	uint32_t size; /* of this record, names and padding included */
	uint32_t number; /* the shim's own number for the module */
	uint64_t unused; /* 0 */
	uint32_t name_count;
	uint32_t reserved; /* 0 */
};

/*
 * The beginning of a plan. The other parts lie behind it, in any order, at the offsets given here.
 */
struct patch_plan {
	uint32_t magic, version;
	uint64_t size; /* of the whole */
	uint64_t image, image_size; /* a cubin, or a fatbin with the cubin and its PTX; for
				       sanitizerAddPatches() */
	uint64_t image_id; /* derived from its content: equal images are loaded once. Never 0 */
	uint32_t points, point_count; /* struct patch_point[] */
	uint32_t kernels, kernel_count; /* struct patch_kernel[]; may be 0. Kernels that are not
					   listed are not patched */
	uint32_t data_size; /* of a struct patch_data with its slots; a multiple of 16, at most
			       PATCH_DATA_MAX */
	uint32_t reserved; /* 0 */
};

/* Patch all instructions of this class with the function `symbol`. */
struct patch_point {
	uint32_t instruction; /* Sanitizer_InstructionId */
	uint32_t reserved; /* 0 */
	char symbol[56]; /* NUL-terminated and NUL-padded; unique to the image's content */
};

/* A kernel to which at least one attachment applies. */
struct patch_kernel {
	uint32_t module; /* patch_module.number */
	uint32_t name; /* which of its names, from 0 */
	uint64_t kernel_id; /* proto/kernel-id.h */
	uint64_t attachments; /* bit i: attachment i of the image applies to it */
};

/*
 * What patch functions get as their user data: one in device memory for each listed kernel and
 * context.
 */
struct patch_data {
	uint64_t attachments, kernel_id; /* of patch_kernel */
	uint64_t process; /* address of a struct gpuprobe_process (wire.h) in device memory */
	uint64_t reserved; /* 0 */
	/*
	 * All 0 until SLOTs fill them in. For program 0 of the image, then for program 1, and so
	 * on: first the address of the struct gpuprobe_process (as in `process`; a SLOT of kind
	 * PROCESS, map_id 0), then the addresses of its maps' data (POINTER or REGION). Several
	 * programs may use one map: all its SLOTs in a plan have the same kind and get the same
	 * address.
	 */
	uint64_t slots[];
};

/*
 * Classes of instructions that can be patched, with the values of Sanitizer_InstructionId. Points
 * of the sanitizer engine are named after them (daemon/worker/job.md).
 */
enum patch_instruction {
	PATCH_BLOCK_ENTER = 1, /* f(data, u64 pc) */
	PATCH_BLOCK_EXIT = 2, /* f(data, u64 pc) */
	PATCH_GLOBAL_MEMORY = 3, /* f(data, u64 pc, u64 address, u32 size, u32 flags, u64 pointer to
				    the new value or 0) */
	PATCH_SHARED_MEMORY = 4, /* likewise; the address is an offset in shared memory */
	PATCH_LOCAL_MEMORY = 5, /* likewise; in local memory */
	PATCH_BARRIER = 6, /* f(data, u64 pc, u32 index, u32 threads, u32 flags) */
	PATCH_SYNCWARP = 7, /* f(data, u64 pc, u32 mask) */
	PATCH_SHFL = 8, /* f(data, u64 pc) */
	PATCH_CALL = 9, /* f(data, u64 pc, u64 target pc, u32 flags) */
	PATCH_RET = 10, /* f(data, u64 pc) */
	PATCH_MALLOC = 11, /* f(data, u64 pc, u64 address, u64 size) */
	PATCH_FREE = 12, /* f(data, u64 pc, u64 address) */
	PATCH_REMOTE_SHARED_MEMORY = 17, /* as PATCH_GLOBAL_MEMORY */
};
/*
 * All patch functions return u32 0 (SANITIZER_PATCH_SUCCESS); any other value would end the warp.
 * Flags of memory accesses: 1 read, 2 write, 4 system atomic, 8 prefetch; an atomic has 3 and no
 * pointer.
 */
