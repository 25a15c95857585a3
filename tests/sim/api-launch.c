/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Launches. A kernel runs in the thread that launches
 * it, before the call returns. What it does wrong is the context's error from then on: the launch
 * itself has succeeded, as on a GPU.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

static CUstream
	running; /* where the kernel is that runs; NULL: in the default stream, or there is none */

/* GPUPROBE_SIM_NO_LOCAL: while there is a file of that name, there is no memory for stacks. */
static bool has_local_memory(const struct sim_function *function) {
	const char *file = getenv("GPUPROBE_SIM_NO_LOCAL");

	return !function->local_size || !file || access(file, F_OK);
}

static CUresult check_shape(const struct sim_function *function, const unsigned int grid[3],
			    const unsigned int block[3], unsigned int shared) {
	uint64_t threads;

	for (int n = 0; n < 3; n++)
		if (!grid[n] || !block[n])
			return CUDA_ERROR_INVALID_VALUE;
	if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535 || block[0] > 1024 ||
	    block[1] > 1024 || block[2] > 64)
		return CUDA_ERROR_INVALID_VALUE;
	threads = (uint64_t)block[0] * block[1] * block[2];
	if (threads > SIM_BLOCK_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > function->max_threads)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (function->required[0] && memcmp(function->required, block, sizeof(function->required)))
		return CUDA_ERROR_INVALID_VALUE;
	if (shared > (unsigned int)function->max_dynamic_shared)
		return CUDA_ERROR_INVALID_VALUE;
	if (!has_local_memory(function))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

/* From an array of pointers, or from the one buffer of `extra`. */
static CUresult copy_parameters(const struct sim_function *function, unsigned char *out,
				void **parameters, void **extra) {
	const void *buffer = NULL;
	size_t size = 0;

	if (parameters && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function->parameter_count)
		return CUDA_SUCCESS;
	if (parameters) {
		for (uint32_t n = 0; n < function->parameter_count; n++) {
			if (!parameters[n])
				return CUDA_ERROR_INVALID_VALUE;
			memcpy(out + function->parameters[n].buffer_offset, parameters[n],
			       function->parameters[n].size);
		}
		return CUDA_SUCCESS;
	}
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
			size = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!buffer || size < function->parameter_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, buffer, function->parameter_bytes);
	return CUDA_SUCCESS;
}

CUresult api_kernel_node(struct CUgraphNode_st *node, CUfunction f, const unsigned int grid[3],
			 const unsigned int block[3], unsigned int shared, void **parameters,
			 void **extra) {
	CUfunction function = api_function(f);
	CUresult r;

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	r = check_shape(function->function, grid, block, shared);
	if (r != CUDA_SUCCESS)
		return r;
	*node = (struct CUgraphNode_st){ .type = CU_GRAPH_NODE_TYPE_KERNEL,
					 .function = function,
					 .shared = shared };
	memcpy(node->grid, grid, sizeof(node->grid));
	memcpy(node->block, block, sizeof(node->block));
	node->parameters = calloc(1, function->function->parameter_bytes + 1);
	node->pointers = calloc(function->function->parameter_count + 1, sizeof(*node->pointers));
	if (!node->parameters || !node->pointers)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else
		r = copy_parameters(function->function, node->parameters, parameters, extra);
	if (r != CUDA_SUCCESS) {
		api_node_deinit(node);
		return r;
	}
	for (uint32_t n = 0; n < function->function->parameter_count; n++)
		node->pointers[n] =
			node->parameters + function->function->parameters[n].buffer_offset;
	return CUDA_SUCCESS;
}

void api_node_deinit(struct CUgraphNode_st *node) {
	free(node->parameters);
	free(node->pointers);
	free(node->frozen);
	free(node->dependencies);
	node->dependencies = NULL;
	node->parameters = NULL;
	node->pointers = NULL;
	node->frozen = NULL;
}

/* It may have been unloaded since the graph was made. */
static bool function_live(CUfunction function) {
	bool live;

	api_lock();
	live = api_live(function, API_FUNCTION);
	api_unlock();
	return live;
}

bool api_may_run_on(CUstream stream) {
	bool blocks = true;

	api_lock();
	if (api_live(stream, API_STREAM))
		blocks = !(stream->flags & CU_STREAM_NON_BLOCKING) || running == stream;
	api_unlock();
	return blocks;
}

static void set_running(CUstream stream) {
	api_lock();
	running = stream;
	api_unlock();
}

static CUresult run_kernel(const struct CUgraphNode_st *node, CUstream stream) {
	struct sim_launch launch;
	CUcontext context = api_current();
	bool begun;
	CUresult r;

	if (!function_live(node->function))
		return CUDA_ERROR_INVALID_HANDLE;
	api_function_used(node->function);
	begun = api_launch_begin(node->function->module);
	sim_run_lock();
	if (!function_live(node->function)) { /* unloaded by another thread */
		sim_run_unlock();
		return CUDA_ERROR_INVALID_HANDLE;
	}
	launch = (struct sim_launch){ .function = node->function->function,
				      .dynamic_shared = node->shared,
				      .parameters = node->parameters };
	memcpy(launch.grid, node->grid, sizeof(launch.grid));
	memcpy(launch.block, node->block, sizeof(launch.block));
	set_running(stream);
	r = begun ? api_patched_run(node, &launch) : CUDA_ERROR_ILLEGAL_INSTRUCTION;
	set_running(NULL);
	api_launch_end(node->function->module);
	sim_run_unlock();
	if (r == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
		return r;
	if (r != CUDA_SUCCESS && context) {
		api_lock();
		if (api_live(context, API_CONTEXT))
			context->error = r;
		api_unlock();
	}
	return CUDA_SUCCESS;
}

static void run_set(const struct CUgraphNode_st *node) {
	if (node->element == 1)
		memset(node->destination, (int)node->value, node->size);
	else if (node->element == 2)
		for (size_t n = 0; n < node->size; n++)
			((uint16_t *)node->destination)[n] = node->value;
	else
		for (size_t n = 0; n < node->size; n++)
			((uint32_t *)node->destination)[n] = node->value;
}

CUresult api_node_run(const struct CUgraphNode_st *node, CUstream stream) {
	switch (node->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return run_kernel(node, stream);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		memmove(node->destination, node->source, node->size);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		run_set(node);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		node->host(node->userdata);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return api_graph_run(node->child, stream);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return api_condition_run(node, stream);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Runs the node now, or adds a copy to what the stream captures. Takes the node's memory. */
static CUresult submit_consume(struct CUgraphNode_st *node, CUstream handle) {
	CUstream stream = NULL;
	int captured = 0;
	CUresult r;

	api_lock();
	if (!api_stream(handle, &stream))
		captured = -(int)CUDA_ERROR_INVALID_HANDLE;
	else if (stream)
		captured = api_capture(stream, node);
	api_unlock();
	r = captured < 0 ? (CUresult)-captured
	    : captured   ? CUDA_SUCCESS
			 : api_node_run(node, handle);
	api_node_deinit(node);
	return r;
}

/* What is launched in the context of a stream; NULL: a function of another context, or none. */
static CUfunction function_in(CUstream handle, CUfunction f) {
	CUcontext context = api_current();
	CUstream stream;
	bool good;

	api_lock();
	if (api_stream(handle, &stream) && stream)
		context = stream->context;
	api_unlock();
	f = api_kernel_use(f, context);
	api_lock();
	good = api_live(f, API_FUNCTION) && (!f->module->home || f->module->home == context);
	api_unlock();
	return good ? f : NULL;
}

static CUresult launch(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
		       unsigned int shared, CUstream stream, void **parameters, void **extra) {
	struct CUgraphNode_st node;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	f = function_in(stream, f);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	api_lock();
	r = api_kernel_node(&node, f, grid, block, shared, parameters, extra);
	api_unlock();
	return r == CUDA_SUCCESS ? submit_consume(&node, stream) : r;
}

API_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				   unsigned int gridDimZ, unsigned int blockDimX,
				   unsigned int blockDimY, unsigned int blockDimZ,
				   unsigned int sharedMemBytes, CUstream hStream,
				   void **kernelParams, void **extra) {
	const unsigned int grid[] = { gridDimX, gridDimY, gridDimZ },
			   block[] = { blockDimX, blockDimY, blockDimZ };

	return launch(f, grid, block, sharedMemBytes, hStream, kernelParams, extra);
}
API_ALIAS(cuLaunchKernel_ptsz, cuLaunchKernel);

/* All blocks run at once, or none does. */
static bool fits_at_once(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
			 unsigned int shared, CUstream stream) {
	const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	unsigned int processors = SIM_SM_COUNT;
	CUstream own;
	int blocks;

	f = function_in(stream, f);
	if (!f || !threads || threads > SIM_BLOCK_MAX ||
	    cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, (int)threads, shared) !=
		    CUDA_SUCCESS ||
	    !blocks)
		return true; /* another error comes first */
	api_lock();
	if (api_stream(stream, &own) && own && own->context->processors)
		processors = own->context->processors;
	api_unlock();
	return (uint64_t)grid[0] * grid[1] * grid[2] <= (uint64_t)blocks * processors;
}

API_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
					      unsigned int gridDimY, unsigned int gridDimZ,
					      unsigned int blockDimX, unsigned int blockDimY,
					      unsigned int blockDimZ, unsigned int sharedMemBytes,
					      CUstream hStream, void **kernelParams) {
	const unsigned int grid[] = { gridDimX, gridDimY, gridDimZ },
			   block[] = { blockDimX, blockDimY, blockDimZ };

	if (!fits_at_once(f, grid, block, sharedMemBytes, hStream))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return launch(f, grid, block, sharedMemBytes, hStream, kernelParams, NULL);
}
API_ALIAS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel);

/*
 * What attributes say. Clusters run as blocks without: what a kernel asks about its cluster is not
 * there. Attributes of a newer driver than ours are refused, as by a real one.
 */
static CUresult check_attributes(CUfunction f, const CUlaunchConfig *config) {
	const unsigned int grid[] = { config->gridDimX, config->gridDimY, config->gridDimZ },
			   block[] = { config->blockDimX, config->blockDimY, config->blockDimZ };
	bool cooperative = false;
	int clusters;

	for (unsigned int n = 0; n < config->numAttrs; n++) {
		const CUlaunchAttribute *attribute = &config->attrs[n];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			cooperative = attribute->value.cooperative;
		if (attribute->id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING ||
		    attribute->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
			return CUDA_ERROR_INVALID_VALUE;
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
		    (cuOccupancyMaxActiveClusters(&clusters, f, config) != CUDA_SUCCESS ||
		     !clusters || config->gridDimX % attribute->value.clusterDim.x ||
		     config->gridDimY % attribute->value.clusterDim.y ||
		     config->gridDimZ % attribute->value.clusterDim.z))
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	}
	return cooperative && !fits_at_once(f, grid, block, config->sharedMemBytes, config->hStream)
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

API_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f,
				     void **kernelParams, void **extra) {
	CUresult r;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	r = check_attributes(f, config);
	if (r != CUDA_SUCCESS)
		return r;
	return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
			      config->blockDimX, config->blockDimY, config->blockDimZ,
			      config->sharedMemBytes, config->hStream, kernelParams, extra);
}
API_ALIAS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx);

API_EXPORT CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
	struct CUgraphNode_st node = { .type = CU_GRAPH_NODE_TYPE_HOST,
				       .host = fn,
				       .userdata = userData };
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	return fn ? submit_consume(&node, hStream) : CUDA_ERROR_INVALID_VALUE;
}
API_ALIAS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc);
