/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the CPU driver's libcuda.so.1 gives to the stand-in for NVIDIA's patching library
 * (sanitizer/): gpuprobe_sim_patching() returns a table. Events are told in the thread whose call
 * to the driver causes them, while no lock of the driver is held; for modules and contexts that are
 * made after subscribe() alone.
 */

#include "sim-cuda.h"

#define SIM_PATCHING_ENTRY "gpuprobe_sim_patching"

struct sim_patching_events {
	/* The ELF has the module's functions as symbols, and is gone when this returns. */
	void (*module_loaded)(CUcontext context, CUmodule module, CUlibrary library,
			      const void *elf, size_t size);
	void (*module_unloading)(CUcontext context, CUmodule module);
	/* with GPUPROBE_SIM_LAZY: when it is looked up or launched first; then once more if the
	 * module is patched */
	void (*function_loaded)(CUcontext context, CUmodule module, CUfunction function,
				bool patched);
	void (*context_ending)(CUcontext context);
};

struct sim_patching {
	void (*subscribe)(const struct sim_patching_events *events); /* NULL: no more */
	/* PTX, or a fatbin that has some. CUDA_ERROR_INVALID_CONTEXT where the context was there
	 * before subscribe(). */
	CUresult (*add_image)(CUcontext context, const void *image);
	/* The last image of the module's context that has the symbol. CUDA_ERROR_NOT_FOUND;
	 * CUDA_ERROR_INVALID_VALUE: it takes other arguments. */
	CUresult (*mark)(CUmodule module, uint32_t patch, const char *symbol);
	/*
	 * Both wait for the end of kernels. A launch of the module's kernels in another thread at
	 * this time is an error of the context from then on, and CUDA_ERROR_UNKNOWN here: a GPU
	 * would execute half a patch.
	 */
	CUresult (*patch)(CUmodule module); /* with what is marked; marks stay until unpatch() */
	CUresult (*unpatch)(CUmodule module);
	CUresult (*set_data)(CUfunction function, uint64_t data); /* stays with the function */
	/* Memory, in captures too. context NULL: the current one. */
	CUresult (*alloc)(CUcontext context, CUdeviceptr *address, size_t size);
	CUresult (*free)(CUcontext context, CUdeviceptr address);
	CUresult (*write)(CUdeviceptr address, const void *bytes, size_t size);
};

const struct sim_patching *gpuprobe_sim_patching(void);
