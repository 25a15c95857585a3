/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What all target programs share: a table of driver functions, filled in from libcuda.so.1 at run
 * time (dlopen and dlsym, or cuGetProcAddress_v2 alone, as the runtime does it) or by the linker
 * (-DDRIVER_LINKED: by what the code refers to, with -DDRIVER_WEAK weakly; -DDRIVER_TABLE: by a
 * table in memory). Types come from our own declarations, so no toolkit is needed.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../sim/sim-cuda.h"

/* X(member, exported name, name that cuGetProcAddress knows) */
#define DRIVER_FUNCTIONS(X)                                                                      \
	X(get_error_string, cuGetErrorString, "cuGetErrorString")                                \
	X(init, cuInit, "cuInit")                                                                \
	X(device_get, cuDeviceGet, "cuDeviceGet")                                                \
	X(device_get_name, cuDeviceGetName, "cuDeviceGetName")                                   \
	X(primary_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                  \
	X(primary_release, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease")            \
	X(primary_reset, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset")                  \
	X(ctx_set_current, cuCtxSetCurrent, "cuCtxSetCurrent")                                   \
	X(ctx_synchronize, cuCtxSynchronize, "cuCtxSynchronize")                                 \
	X(module_load, cuModuleLoad, "cuModuleLoad")                                             \
	X(module_load_data, cuModuleLoadData, "cuModuleLoadData")                                \
	X(module_load_data_ex, cuModuleLoadDataEx, "cuModuleLoadDataEx")                         \
	X(module_unload, cuModuleUnload, "cuModuleUnload")                                       \
	X(module_get_function, cuModuleGetFunction, "cuModuleGetFunction")                       \
	X(function_get_attribute, cuFuncGetAttribute, "cuFuncGetAttribute")                      \
	X(module_get_global, cuModuleGetGlobal_v2, "cuModuleGetGlobal")                          \
	X(library_load_data, cuLibraryLoadData, "cuLibraryLoadData")                             \
	X(library_unload, cuLibraryUnload, "cuLibraryUnload")                                    \
	X(library_get_kernel, cuLibraryGetKernel, "cuLibraryGetKernel")                          \
	X(kernel_get_function, cuKernelGetFunction, "cuKernelGetFunction")                       \
	X(mem_alloc, cuMemAlloc_v2, "cuMemAlloc")                                                \
	X(mem_free, cuMemFree_v2, "cuMemFree")                                                   \
	X(memcpy_to_device, cuMemcpyHtoD_v2, "cuMemcpyHtoD")                                     \
	X(memcpy_to_host, cuMemcpyDtoH_v2, "cuMemcpyDtoH")                                       \
	X(memset_d8, cuMemsetD8_v2, "cuMemsetD8")                                                \
	X(stream_create, cuStreamCreate, "cuStreamCreate")                                       \
	X(stream_destroy, cuStreamDestroy_v2, "cuStreamDestroy")                                 \
	X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize")                        \
	X(stream_begin_capture, cuStreamBeginCapture_v2, "cuStreamBeginCapture")                 \
	X(stream_end_capture, cuStreamEndCapture, "cuStreamEndCapture")                          \
	X(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent")                             \
	X(event_create, cuEventCreate, "cuEventCreate")                                          \
	X(event_record, cuEventRecord, "cuEventRecord")                                          \
	X(launch_host_func, cuLaunchHostFunc, "cuLaunchHostFunc")                                \
	X(launch_kernel, cuLaunchKernel, "cuLaunchKernel")                                       \
	X(launch_kernel_ex, cuLaunchKernelEx, "cuLaunchKernelEx")                                \
	X(launch_cooperative, cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel")            \
	X(graph_create, cuGraphCreate, "cuGraphCreate")                                          \
	X(graph_destroy, cuGraphDestroy, "cuGraphDestroy")                                       \
	X(graph_add_kernel_node, cuGraphAddKernelNode_v2, "cuGraphAddKernelNode")                \
	X(graph_add_child_node, cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode")            \
	X(graph_get_child, cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph")       \
	X(graph_set_child, cuGraphExecChildGraphNodeSetParams,                                   \
	  "cuGraphExecChildGraphNodeSetParams")                                                  \
	X(graph_instantiate, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")         \
	X(graph_launch, cuGraphLaunch, "cuGraphLaunch")                                          \
	X(graph_exec_destroy, cuGraphExecDestroy, "cuGraphExecDestroy")                          \
	X(graph_exec_update, cuGraphExecUpdate_v2, "cuGraphExecUpdate")                          \
	X(graph_get_nodes, cuGraphGetNodes, "cuGraphGetNodes")                                   \
	X(graph_get_params, cuGraphKernelNodeGetParams_v2, "cuGraphKernelNodeGetParams")         \
	X(graph_set_params, cuGraphExecKernelNodeSetParams_v2, "cuGraphExecKernelNodeSetParams") \
	X(graph_set_enabled, cuGraphNodeSetEnabled, "cuGraphNodeSetEnabled")

struct driver {
#define DRIVER_MEMBER(member, symbol, name) __typeof__(symbol) *member;
	DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

extern struct driver driver;

/* Fills in `driver`; by cuGetProcAddress_v2 if asked. Exits with a line on stderr if there is no
 * driver. */
void driver_open(bool by_proc_address);

/* driver_open(), the first device and its primary context, made current. */
void driver_start(bool by_proc_address);

/* Writes bytes to a file; exits if it cannot. NULL as path does nothing. */
void driver_dump(const char *path, const void *bytes, size_t size);

/* Exits with a line that names the call and the driver's own words. */
void driver_check(CUresult result, const char *call);

#define CHECK(call) driver_check((call), #call)
