/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). What functions and kernels say about themselves, and
 * occupancy.
 */

#include "api.h"

static CUresult get_attribute(const struct sim_function *function, CUfunction_attribute attribute,
			      int *value) {
	int capability = (int)function->module->target.number;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)function->max_threads;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)sim_function_shared(function);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)function->local_size;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)function->registers;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = capability;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = function->max_dynamic_shared;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = function->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_attribute(struct sim_function *function, CUfunction_attribute attribute,
			      int value) {
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || (uint32_t)value + sim_function_shared(function) > SIM_SHARED_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		function->max_dynamic_shared = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		function->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* The function behind a handle, once the API may be used; *r says why there is none. */
static struct sim_function *function_of(CUfunction handle, CUresult *r) {
	CUfunction function;

	*r = api_enter();
	if (*r != CUDA_SUCCESS)
		return NULL;
	handle = api_kernel_use(handle, api_current());
	api_lock();
	function = api_function(handle);
	api_unlock();
	if (!function)
		*r = CUDA_ERROR_INVALID_HANDLE;
	return function ? function->function : NULL;
}

API_EXPORT CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
	CUresult r;
	struct sim_function *function = function_of(hfunc, &r);

	if (!function)
		return r;
	return pi ? get_attribute(function, attrib, pi) : CUDA_ERROR_INVALID_VALUE;
}

API_EXPORT CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
	CUresult r;
	struct sim_function *function = function_of(hfunc, &r);

	return function ? set_attribute(function, attrib, value) : r;
}

API_EXPORT CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
					 CUdevice dev) {
	return dev ? CUDA_ERROR_INVALID_DEVICE
		   : cuFuncGetAttribute(pi, attrib, (CUfunction)(void *)kernel);
}

API_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
					 CUdevice dev) {
	CUresult r = dev ? CUDA_ERROR_INVALID_DEVICE
			 : cuFuncSetAttribute((CUfunction)(void *)kernel, attrib, val);

	if (r != CUDA_SUCCESS)
		return r;
	for (CUmodule module = kernel->library->module; module; module = module->next)
		set_attribute(module->functions[kernel - kernel->library->kernels].function, attrib,
			      val);
	return r;
}

API_EXPORT CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
	CUresult r;
	struct sim_function *function = function_of(hfunc, &r);

	if (!function)
		return r;
	if (!hmod)
		return CUDA_ERROR_INVALID_VALUE;
	*hmod = ((CUfunction)function->user)->module;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
	CUresult r;
	struct sim_function *function = function_of(hfunc, &r);

	if (!function)
		return r;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = function->name;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
	return cuFuncGetName(name, (CUfunction)(void *)hfunc);
}

API_EXPORT CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
				       size_t *paramSize) {
	CUresult r;
	struct sim_function *function = function_of(func, &r);

	if (!function)
		return r;
	if (!paramOffset || paramIndex >= function->parameter_count)
		return CUDA_ERROR_INVALID_VALUE;
	*paramOffset = function->parameters[paramIndex].buffer_offset;
	if (paramSize)
		*paramSize = function->parameters[paramIndex].size;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
					 size_t *paramSize) {
	return cuFuncGetParamInfo((CUfunction)(void *)kernel, paramIndex, paramOffset, paramSize);
}

API_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
	CUresult r;
	struct sim_function *own = function_of(function, &r);

	if (!own)
		return r;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = ((CUfunction)own->user)->loaded ? CU_FUNCTION_LOADING_STATE_LOADED
						 : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuFuncLoad(CUfunction function) {
	CUresult r;
	struct sim_function *own = function_of(function, &r);

	if (own)
		api_function_used(own->user);
	return own ? CUDA_SUCCESS : r;
}

API_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks,
									 CUfunction func,
									 int blockSize,
									 size_t dynamicSMemSize,
									 unsigned int flags) {
	CUresult r;
	struct sim_function *function = function_of(func, &r);
	size_t shared;
	int blocks;

	if (!function)
		return r;
	if (!numBlocks || blockSize < 1)
		return CUDA_ERROR_INVALID_VALUE;
	shared = sim_function_shared(function) + dynamicSMemSize;
	blocks = 2048 / ((blockSize + 31) / 32 * 32);
	if (blocks > 32)
		blocks = 32;
	if (shared && (size_t)blocks > (228u << 10) / shared)
		blocks = (int)((228u << 10) / shared);
	if (function->resident && blocks > (int)function->resident / blockSize)
		blocks = (int)function->resident / blockSize;
	*numBlocks = blockSize > (int)function->max_threads ? 0 : blocks;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func,
								int blockSize,
								size_t dynamicSMemSize) {
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
								    dynamicSMemSize, 0);
}

API_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize,
						     CUfunction func,
						     CUoccupancyB2DSize blockSizeToDynamicSMemSize,
						     size_t dynamicSMemSize, int blockSizeLimit) {
	CUresult r;
	struct sim_function *function = function_of(func, &r);
	int size, blocks = 0;

	if (!function)
		return r;
	if (!minGridSize || !blockSize)
		return CUDA_ERROR_INVALID_VALUE;
	size = (int)function->max_threads;
	if (blockSizeLimit > 0 && blockSizeLimit < size)
		size = blockSizeLimit;
	if (blockSizeToDynamicSMemSize)
		dynamicSMemSize = blockSizeToDynamicSMemSize(size);
	r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, func, size, dynamicSMemSize);
	*blockSize = size;
	*minGridSize = (blocks ? blocks : 1) * SIM_SM_COUNT;
	return r;
}

#define GPC_PROCESSORS 4 /* a cluster lies in one group of so many multiprocessors */
#define CLUSTER_PORTABLE 8
#define CLUSTER_MAX 16

uint64_t api_cluster_size(const CUlaunchConfig *config) {
	uint64_t size = 0;

	for (unsigned int n = 0; n < config->numAttrs; n++)
		if (config->attrs[n].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			size = (uint64_t)config->attrs[n].value.clusterDim.x *
			       config->attrs[n].value.clusterDim.y *
			       config->attrs[n].value.clusterDim.z;
	return size;
}

/* 0 without clusters: so does an H100. */
API_EXPORT CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
						 const CUlaunchConfig *config) {
	const uint64_t size = config ? api_cluster_size(config) : 0;
	int blocks;
	CUresult r;

	if (!numClusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > CLUSTER_MAX)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
		&blocks, func, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
		config->sharedMemBytes);
	if (r == CUDA_SUCCESS)
		*numClusters =
			size ? SIM_SM_COUNT / GPC_PROCESSORS * (GPC_PROCESSORS * blocks / (int)size)
			     : 0;
	return r;
}
