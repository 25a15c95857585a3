/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The part of the CUDA driver API that the shim wraps or calls, declared from the public
 * documentation: the shim builds without a toolkit. Handles are opaque pointers; a result is 0 or
 * an error number.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int driver_result;
typedef void *driver_handle;
typedef unsigned long long driver_pointer;

#define DRIVER_ERROR_NOT_FOUND 500
#define DRIVER_ERROR_NOT_READY 600
#define DRIVER_ERROR_OUT_OF_RESOURCES 701
#define DRIVER_ERROR_NOT_REGISTERED 713
#define DRIVER_ERROR_CAPTURE_WRONG_THREAD 908
#define DRIVER_ERROR_GRAPH_UPDATE 910
#define DRIVER_ERROR_CLUSTER_SIZE 912
#define DRIVER_ATTRIBUTE_PROCESSORS 16 /* the number of multiprocessors */
#define DRIVER_ATTRIBUTE_CAPABILITY_MAJOR 75
#define DRIVER_ATTRIBUTE_CAPABILITY_MINOR 76
#define DRIVER_CAPTURE_MODE_RELAXED 2
#define DRIVER_STREAM_SPECIAL_MAX 2 /* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
#define DRIVER_FUNCTION_ATTRIBUTE_DYNAMIC_SHARED 8 /* the most bytes of it */
#define DRIVER_FUNCTION_ATTRIBUTE_CARVEOUT 9
#define DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_MUST_BE_SET 10
#define DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_WIDTH 11
#define DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_HEIGHT 12
#define DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_DEPTH 13
#define DRIVER_FUNCTION_ATTRIBUTE_NON_PORTABLE_CLUSTER 14
#define DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_SCHEDULING 15
#define DRIVER_LOADING_LAZY 2
#define DRIVER_EVENT_NO_TIMING 2
#define DRIVER_STREAM_NON_BLOCKING 1
#define DRIVER_REGISTER_PORTABLE 1u
#define DRIVER_REGISTER_DEVICE_MAP 2u
#define DRIVER_PROC_ADDRESS_PER_THREAD (UINT64_C(1) << 1)

/*
 * The driver's functions that the shim calls for itself, found in libcuda.so.1 once, when the first
 * module of the application is loaded that may get a twin. With the versions' suffixes, because the
 * plain names are the oldest forms.
 */
#define DRIVER_OWN_FUNCTIONS(X)                                                                  \
	X(ctx_get_current, "cuCtxGetCurrent", (driver_handle *))                                 \
	X(ctx_set_current, "cuCtxSetCurrent", (driver_handle))                                   \
	X(ctx_get_device, "cuCtxGetDevice", (int *))                                             \
	X(ctx_synchronize, "cuCtxSynchronize", (void))                                           \
	X(device_get, "cuDeviceGet", (int *, int))                                               \
	X(device_get_attribute, "cuDeviceGetAttribute", (int *, int, int))                       \
	X(driver_get_version, "cuDriverGetVersion", (int *))                                     \
	X(get_primary_state, "cuDevicePrimaryCtxGetState", (int, unsigned *, int *))             \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (driver_handle *, int))                    \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int))                                \
	X(mem_alloc, "cuMemAlloc_v2", (driver_pointer *, size_t))                                \
	X(mem_free, "cuMemFree_v2", (driver_pointer))                                            \
	X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                     \
	X(host_unregister, "cuMemHostUnregister", (void *))                                      \
	X(host_get_device_pointer, "cuMemHostGetDevicePointer_v2",                               \
	  (driver_pointer *, void *, unsigned))                                                  \
	X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                \
	  (driver_pointer, const void *, size_t, driver_handle))                                 \
	X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, driver_pointer, size_t, driver_handle)) \
	X(module_get_global, "cuModuleGetGlobal_v2",                                             \
	  (driver_pointer *, size_t *, driver_handle, const char *))                             \
	X(stream_create, "cuStreamCreate", (driver_handle *, unsigned))                          \
	X(stream_synchronize, "cuStreamSynchronize", (driver_handle))                            \
	X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))

/*
 * What an older driver may lack; NULL then. No library can be loaded without the first (CUDA 12);
 * ids of contexts, too; modules of functions came with 11.0, names with 12.3, lists of them
 * with 12.4, events of contexts with 12.5; affinities of contexts with 11.4, clusters with 11.8,
 * resources of contexts with 12.4.
 */
#define DRIVER_OPTIONAL_FUNCTIONS(X)                                                             \
	X(library_get_global, "cuLibraryGetGlobal",                                              \
	  (driver_pointer *, size_t *, driver_handle, const char *))                             \
	X(library_get_managed, "cuLibraryGetManaged",                                            \
	  (driver_pointer *, size_t *, driver_handle, const char *))                             \
	X(context_get_affinity, "cuCtxGetExecAffinity", (void *, int))                           \
	X(context_get_id, "cuCtxGetId", (driver_handle, unsigned long long *))                   \
	X(context_get_resource, "cuCtxGetDevResource", (driver_handle, void *, int))             \
	X(context_record_event, "cuCtxRecordEvent", (driver_handle, driver_handle))              \
	X(count_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                           \
	  (int *, driver_handle, int, size_t))                                                   \
	X(count_clusters, "cuOccupancyMaxActiveClusters", (int *, driver_handle, const void *))  \
	X(exec_set_kernel, "cuGraphExecKernelNodeSetParams",                                     \
	  (driver_handle, driver_handle, const void *))                                          \
	X(exec_set_kernel_v2, "cuGraphExecKernelNodeSetParams_v2",                               \
	  (driver_handle, driver_handle, const void *))                                          \
	X(event_create, "cuEventCreate", (driver_handle *, unsigned))                            \
	X(event_destroy, "cuEventDestroy_v2", (driver_handle))                                   \
	X(event_query, "cuEventQuery", (driver_handle))                                          \
	X(function_get_attribute, "cuFuncGetAttribute", (int *, int, driver_handle))             \
	X(function_get_name, "cuFuncGetName", (const char **, driver_handle))                    \
	X(function_get_parameter, "cuFuncGetParamInfo",                                          \
	  (driver_handle, size_t, size_t *, size_t *))                                           \
	X(function_load, "cuFuncLoad", (driver_handle))                                          \
	X(function_set_attribute, "cuFuncSetAttribute", (driver_handle, int, int))               \
	X(function_set_banks, "cuFuncSetSharedMemConfig", (driver_handle, int))                  \
	X(function_set_cache, "cuFuncSetCacheConfig", (driver_handle, int))                      \
	X(graph_child, "cuGraphChildGraphNodeGetGraph", (driver_handle, driver_handle *))        \
	X(graph_clone, "cuGraphClone", (driver_handle *, driver_handle))                         \
	X(graph_dependencies, "cuGraphNodeGetDependencies",                                      \
	  (driver_handle, driver_handle *, size_t *))                                            \
	X(graph_dependencies_v2, "cuGraphNodeGetDependencies_v2",                                \
	  (driver_handle, driver_handle *, void *, size_t *))                                    \
	X(graph_dependents, "cuGraphNodeGetDependentNodes",                                      \
	  (driver_handle, driver_handle *, size_t *))                                            \
	X(graph_dependents_v2, "cuGraphNodeGetDependentNodes_v2",                                \
	  (driver_handle, driver_handle *, void *, size_t *))                                    \
	X(graph_destroy, "cuGraphDestroy", (driver_handle))                                      \
	X(graph_exec_destroy, "cuGraphExecDestroy", (driver_handle))                             \
	X(graph_find_in_clone, "cuGraphNodeFindInClone",                                         \
	  (driver_handle *, driver_handle, driver_handle))                                       \
	X(graph_get_nodes, "cuGraphGetNodes", (driver_handle, driver_handle *, size_t *))        \
	X(graph_instantiate, "cuGraphInstantiateWithFlags",                                      \
	  (driver_handle *, driver_handle, unsigned long long))                                  \
	X(graph_node_get_type, "cuGraphNodeGetType", (driver_handle, int *))                     \
	X(graph_set_child, "cuGraphExecChildGraphNodeSetParams",                                 \
	  (driver_handle, driver_handle, driver_handle))                                         \
	X(graph_set_enabled, "cuGraphNodeSetEnabled", (driver_handle, driver_handle, unsigned))  \
	X(graph_update, "cuGraphExecUpdate_v2", (driver_handle, driver_handle, void *))          \
	X(node_get_attribute, "cuGraphKernelNodeGetAttribute", (driver_handle, int, void *))     \
	X(node_get_kernel, "cuGraphKernelNodeGetParams", (driver_handle, void *))                \
	X(node_get_kernel_v2, "cuGraphKernelNodeGetParams_v2", (driver_handle, void *))          \
	X(node_set_any, "cuGraphNodeSetParams", (driver_handle, const void *))                   \
	X(node_set_batch, "cuGraphBatchMemOpNodeSetParams", (driver_handle, const void *))       \
	X(node_set_copy, "cuGraphMemcpyNodeSetParams", (driver_handle, const void *))            \
	X(node_set_host, "cuGraphHostNodeSetParams", (driver_handle, const void *))              \
	X(node_set_kernel, "cuGraphKernelNodeSetParams", (driver_handle, const void *))          \
	X(node_set_kernel_v2, "cuGraphKernelNodeSetParams_v2", (driver_handle, const void *))    \
	X(node_set_memory, "cuGraphMemsetNodeSetParams", (driver_handle, const void *))          \
	X(node_set_record, "cuGraphEventRecordNodeSetEvent", (driver_handle, const void *))      \
	X(node_set_signal, "cuGraphExternalSemaphoresSignalNodeSetParams",                       \
	  (driver_handle, const void *))                                                         \
	X(node_set_wait, "cuGraphEventWaitNodeSetEvent", (driver_handle, const void *))          \
	X(node_set_wait_external, "cuGraphExternalSemaphoresWaitNodeSetParams",                  \
	  (driver_handle, const void *))                                                         \
	X(kernel_get_attribute, "cuKernelGetAttribute", (int *, int, driver_handle, int))        \
	X(kernel_get_function, "cuKernelGetFunction", (driver_handle *, driver_handle))          \
	X(kernel_get_name, "cuKernelGetName", (const char **, driver_handle))                    \
	X(kernel_get_parameter, "cuKernelGetParamInfo",                                          \
	  (driver_handle, size_t, size_t *, size_t *))                                           \
	X(kernel_set_attribute, "cuKernelSetAttribute", (int, int, driver_handle, int))          \
	X(kernel_set_cache, "cuKernelSetCacheConfig", (driver_handle, int, int))                 \
	X(library_load_data, "cuLibraryLoadData",                                                \
	  (driver_handle *, const void *, void *, void **, unsigned, void *, void **, unsigned)) \
	X(library_unload, "cuLibraryUnload", (driver_handle))                                    \
	X(module_load_data, "cuModuleLoadData", (driver_handle *, const void *))                 \
	X(module_unload, "cuModuleUnload", (driver_handle))                                      \
	X(module_get_loading_mode, "cuModuleGetLoadingMode", (int *))                            \
	X(library_get_kernel, "cuLibraryGetKernel",                                              \
	  (driver_handle *, driver_handle, const char *))                                        \
	X(library_get_kernel_count, "cuLibraryGetKernelCount", (unsigned *, driver_handle))      \
	X(library_enumerate_kernels, "cuLibraryEnumerateKernels",                                \
	  (driver_handle *, unsigned, driver_handle))                                            \
	X(module_get_function, "cuModuleGetFunction",                                            \
	  (driver_handle *, driver_handle, const char *))                                        \
	X(module_get_function_count, "cuModuleGetFunctionCount", (unsigned *, driver_handle))    \
	X(module_enumerate_functions, "cuModuleEnumerateFunctions",                              \
	  (driver_handle *, unsigned, driver_handle))                                            \
	X(stream_get_context, "cuStreamGetCtx", (driver_handle, driver_handle *))                \
	X(stream_get_contexts, "cuStreamGetCtx_v2",                                              \
	  (driver_handle, driver_handle *, driver_handle *))

struct driver {
#define X(field, name, arguments) driver_result(*field) arguments;
	DRIVER_OWN_FUNCTIONS(X)
	DRIVER_OPTIONAL_FUNCTIONS(X)
#undef X
};

/*
 * The table, or NULL if the driver lacks one of the functions (then nothing can be probed), or is
 * not in use yet.
 */
const struct driver *driver_own(void);

/*
 * What tells a context from a later one that has its handle. The context is alive: the driver may
 * crash on the handle of another. DRIVER_CONTEXT_ID_NONE: it cannot tell.
 */
#define DRIVER_CONTEXT_ID_NONE UINT64_MAX
uint64_t driver_context_id(driver_handle context);

/* The driver's own symbol, past every interposer; NULL if libcuda.so.1 is not loaded or lacks it.
 */
void *driver_symbol(const char *name);

/*
 * The driver has begun to work. From now on it stays in the process, even if the application
 * unloads it, and what was found of other drivers is forgotten.
 */
void driver_keep(void);
bool driver_is_kept(void);

/* Does it work? Then it is kept. */
bool driver_is_in_use(void);
