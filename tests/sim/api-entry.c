/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Names of errors, and cuGetProcAddress: a table of
 * names, the CUDA version each form came with, and its per-thread-stream variant.
 */

#include <string.h>

#include "api.h"

API_EXPORT CUresult cuGetErrorName(CUresult error, const char **pStr) {
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = NULL;
	switch ((int)error) {
#define RESULT_NAME(name, value, text) \
	case value:                    \
		*pStr = #name;         \
		return CUDA_SUCCESS;
		SIM_RESULTS(RESULT_NAME)
#undef RESULT_NAME
	}
	return CUDA_ERROR_INVALID_VALUE;
}

API_EXPORT CUresult cuGetErrorString(CUresult error, const char **pStr) {
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = NULL;
	switch ((int)error) {
#define RESULT_TEXT(name, value, text) \
	case value:                    \
		*pStr = text;          \
		return CUDA_SUCCESS;
		SIM_RESULTS(RESULT_TEXT)
#undef RESULT_TEXT
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Private tables of the driver, for NVIDIA's own libraries: there are none here. */
API_EXPORT CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
	if (ppExportTable)
		*ppExportTable = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

/* What no header of ours declares: older forms and per-thread variants. Addresses are all that is
 * needed. */
/* clang-format off */
#define OTHERS(X)                                                                                                      \
	X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuGetProcAddress) X(cuGraphAddKernelNode) X(cuGraphKernelNodeGetParams)  \
	X(cuGraphKernelNodeSetParams) X(cuGraphExecKernelNodeSetParams) X(cuGraphInstantiate_v2) X(cuStreamBeginCapture) \
	X(cuGraphExecUpdate) X(cuStreamBeginCapture_ptsz) X(cuStreamBeginCapture_v2_ptsz) X(cuMemAllocAsync_ptsz) X(cuMemFreeAsync_ptsz)    \
	X(cuMemcpy_ptds) X(cuMemcpyHtoD_v2_ptds) X(cuMemcpyDtoH_v2_ptds) X(cuMemcpyDtoD_v2_ptds) X(cuMemcpyAsync_ptsz) \
	X(cuMemcpyHtoDAsync_v2_ptsz) X(cuMemcpyDtoHAsync_v2_ptsz) X(cuMemcpyDtoDAsync_v2_ptsz) X(cuMemsetD8_v2_ptds)   \
	X(cuMemsetD16_v2_ptds) X(cuMemsetD32_v2_ptds) X(cuMemsetD8Async_ptsz) X(cuMemsetD16Async_ptsz)                 \
	X(cuMemsetD32Async_ptsz) X(cuStreamGetFlags_ptsz) X(cuStreamGetPriority_ptsz) X(cuStreamGetCtx_ptsz)           \
	X(cuStreamGetId_ptsz) X(cuStreamSynchronize_ptsz) X(cuStreamQuery_ptsz) X(cuStreamWaitEvent_ptsz)              \
	X(cuStreamEndCapture_ptsz) X(cuStreamIsCapturing_ptsz) X(cuEventRecord_ptsz) X(cuEventRecordWithFlags_ptsz)    \
	X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx_ptsz) X(cuLaunchCooperativeKernel_ptsz) X(cuLaunchHostFunc_ptsz)     \
	X(cuGraphInstantiateWithParams_ptsz) X(cuGraphLaunch_ptsz) X(cuGraphUpload_ptsz)
/* clang-format on */

#define OTHER_DECLARE(name) extern char address_of_##name[] __asm__(#name);
OTHERS(OTHER_DECLARE)

struct row {
	const char *name;
	int version;
	void *function;
	void *per_thread; /* NULL: the same */
};

#define PLAIN(name, version) { #name, version, (void *)name, NULL }
#define AS(name, version, symbol) { #name, version, (void *)symbol, NULL }
#define OTHER(name, version, symbol) { #name, version, address_of_##symbol, NULL }
#define THREAD(name, version, symbol, variant) \
	{ #name, version, (void *)symbol, address_of_##variant }

static const struct row rows[] = {
	PLAIN(cuGetErrorString, 6000),
	PLAIN(cuGetErrorName, 6000),
	PLAIN(cuInit, 2000),
	PLAIN(cuDriverGetVersion, 2020),
	OTHER(cuGetProcAddress, 11030, cuGetProcAddress),
	AS(cuGetProcAddress, 12000, cuGetProcAddress_v2),
	PLAIN(cuGetExportTable, 3000),
	PLAIN(cuDeviceGet, 2000),
	PLAIN(cuDeviceGetCount, 2000),
	PLAIN(cuDeviceGetName, 2000),
	AS(cuDeviceGetUuid, 9020, cuDeviceGetUuid_v2),
	AS(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
	PLAIN(cuDeviceGetAttribute, 2000),
	PLAIN(cuDeviceComputeCapability, 2000),
	PLAIN(cuDeviceGetPCIBusId, 4010),
	PLAIN(cuDevicePrimaryCtxRetain, 7000),
	AS(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease_v2),
	AS(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset_v2),
	AS(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags_v2),
	PLAIN(cuDevicePrimaryCtxGetState, 7000),
	OTHER(cuCtxCreate, 3020, cuCtxCreate_v2),
	OTHER(cuCtxCreate, 11040, cuCtxCreate_v3),
	AS(cuCtxCreate, 12050, cuCtxCreate_v4),
	AS(cuCtxDestroy, 4000, cuCtxDestroy_v2),
	AS(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
	AS(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
	PLAIN(cuCtxSetCurrent, 4000),
	PLAIN(cuCtxGetCurrent, 4000),
	PLAIN(cuCtxAttach, 2000),
	PLAIN(cuCtxDetach, 2000),
	PLAIN(cuCtxGetDevice, 2000),
	PLAIN(cuCtxGetFlags, 7000),
	PLAIN(cuCtxGetId, 12000),
	PLAIN(cuCtxGetApiVersion, 3020),
	PLAIN(cuCtxRecordEvent, 12050),
	PLAIN(cuCtxSynchronize, 2000),
	PLAIN(cuCtxSetLimit, 3010),
	PLAIN(cuCtxGetLimit, 3010),
	PLAIN(cuCtxGetStreamPriorityRange, 5050),
	PLAIN(cuModuleLoad, 2000),
	PLAIN(cuModuleLoadData, 2000),
	PLAIN(cuModuleLoadDataEx, 2010),
	PLAIN(cuModuleLoadFatBinary, 2000),
	PLAIN(cuModuleUnload, 2000),
	PLAIN(cuModuleGetLoadingMode, 11070),
	PLAIN(cuModuleGetFunction, 2000),
	PLAIN(cuModuleGetFunctionCount, 12040),
	PLAIN(cuModuleEnumerateFunctions, 12040),
	AS(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2),
	AS(cuLinkCreate, 6050, cuLinkCreate_v2),
	AS(cuLinkAddData, 6050, cuLinkAddData_v2),
	AS(cuLinkAddFile, 6050, cuLinkAddFile_v2),
	PLAIN(cuLinkComplete, 5050),
	PLAIN(cuLinkDestroy, 5050),
	PLAIN(cuLibraryLoadData, 12000),
	PLAIN(cuLibraryLoadFromFile, 12000),
	PLAIN(cuLibraryUnload, 12000),
	PLAIN(cuLibraryGetKernel, 12000),
	PLAIN(cuLibraryGetKernelCount, 12040),
	PLAIN(cuLibraryEnumerateKernels, 12040),
	PLAIN(cuLibraryGetModule, 12000),
	PLAIN(cuLibraryGetGlobal, 12000),
	PLAIN(cuLibraryGetManaged, 12000),
	PLAIN(cuKernelGetFunction, 12000),
	PLAIN(cuKernelGetLibrary, 12050),
	PLAIN(cuKernelGetName, 12030),
	PLAIN(cuKernelGetAttribute, 12000),
	PLAIN(cuKernelSetAttribute, 12000),
	PLAIN(cuKernelGetParamInfo, 12040),
	PLAIN(cuFuncGetAttribute, 2020),
	PLAIN(cuFuncSetAttribute, 9000),
	PLAIN(cuFuncGetModule, 11000),
	PLAIN(cuFuncGetName, 12030),
	PLAIN(cuFuncGetParamInfo, 12040),
	PLAIN(cuFuncIsLoaded, 12040),
	PLAIN(cuFuncLoad, 12040),
	PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
	PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000),
	PLAIN(cuOccupancyMaxPotentialBlockSize, 6050),
	PLAIN(cuOccupancyMaxActiveClusters, 11070),
	PLAIN(cuDeviceGetDevResource, 12040),
	PLAIN(cuDevSmResourceSplitByCount, 12040),
	PLAIN(cuDevResourceGenerateDesc, 12040),
	PLAIN(cuGreenCtxCreate, 12040),
	PLAIN(cuGreenCtxDestroy, 12040),
	PLAIN(cuGreenCtxStreamCreate, 12050),
	PLAIN(cuCtxFromGreenCtx, 12040),
	PLAIN(cuCtxGetDevResource, 12040),
	AS(cuMemGetInfo, 3020, cuMemGetInfo_v2),
	AS(cuMemAlloc, 3020, cuMemAlloc_v2),
	AS(cuMemFree, 3020, cuMemFree_v2),
	AS(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
	THREAD(cuMemAllocAsync, 11020, cuMemAllocAsync, cuMemAllocAsync_ptsz),
	THREAD(cuMemFreeAsync, 11020, cuMemFreeAsync, cuMemFreeAsync_ptsz),
	AS(cuMemAllocHost, 3020, cuMemAllocHost_v2),
	PLAIN(cuMemFreeHost, 2000),
	PLAIN(cuMemHostAlloc, 2020),
	AS(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2),
	PLAIN(cuMemHostGetFlags, 2030),
	AS(cuMemHostRegister, 6050, cuMemHostRegister_v2),
	PLAIN(cuMemHostUnregister, 4000),
	THREAD(cuMemcpy, 4000, cuMemcpy, cuMemcpy_ptds),
	THREAD(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds),
	THREAD(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds),
	THREAD(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds),
	THREAD(cuMemcpyAsync, 4000, cuMemcpyAsync, cuMemcpyAsync_ptsz),
	THREAD(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz),
	THREAD(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz),
	THREAD(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz),
	THREAD(cuMemsetD8, 3020, cuMemsetD8_v2, cuMemsetD8_v2_ptds),
	THREAD(cuMemsetD16, 3020, cuMemsetD16_v2, cuMemsetD16_v2_ptds),
	THREAD(cuMemsetD32, 3020, cuMemsetD32_v2, cuMemsetD32_v2_ptds),
	THREAD(cuMemsetD8Async, 3020, cuMemsetD8Async, cuMemsetD8Async_ptsz),
	THREAD(cuMemsetD16Async, 3020, cuMemsetD16Async, cuMemsetD16Async_ptsz),
	THREAD(cuMemsetD32Async, 3020, cuMemsetD32Async, cuMemsetD32Async_ptsz),
	PLAIN(cuPointerGetAttribute, 4000),
	PLAIN(cuStreamCreate, 2000),
	PLAIN(cuStreamCreateWithPriority, 5050),
	AS(cuStreamDestroy, 4000, cuStreamDestroy_v2),
	THREAD(cuStreamGetFlags, 5050, cuStreamGetFlags, cuStreamGetFlags_ptsz),
	THREAD(cuStreamGetPriority, 5050, cuStreamGetPriority, cuStreamGetPriority_ptsz),
	THREAD(cuStreamGetCtx, 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz),
	THREAD(cuStreamGetId, 12000, cuStreamGetId, cuStreamGetId_ptsz),
	THREAD(cuStreamSynchronize, 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz),
	THREAD(cuStreamQuery, 2000, cuStreamQuery, cuStreamQuery_ptsz),
	THREAD(cuStreamWaitEvent, 3020, cuStreamWaitEvent, cuStreamWaitEvent_ptsz),
	{ "cuStreamBeginCapture", 10000, address_of_cuStreamBeginCapture,
	  address_of_cuStreamBeginCapture_ptsz },
	THREAD(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz),
	THREAD(cuStreamEndCapture, 10000, cuStreamEndCapture, cuStreamEndCapture_ptsz),
	THREAD(cuStreamIsCapturing, 10000, cuStreamIsCapturing, cuStreamIsCapturing_ptsz),
	PLAIN(cuThreadExchangeStreamCaptureMode, 10010),
	PLAIN(cuEventCreate, 2000),
	AS(cuEventDestroy, 4000, cuEventDestroy_v2),
	THREAD(cuEventRecord, 2000, cuEventRecord, cuEventRecord_ptsz),
	THREAD(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz),
	PLAIN(cuEventQuery, 2000),
	PLAIN(cuEventSynchronize, 2000),
	AS(cuEventElapsedTime, 2000, cuEventElapsedTime_v2),
	THREAD(cuLaunchKernel, 4000, cuLaunchKernel, cuLaunchKernel_ptsz),
	THREAD(cuLaunchKernelEx, 11060, cuLaunchKernelEx, cuLaunchKernelEx_ptsz),
	THREAD(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel,
	       cuLaunchCooperativeKernel_ptsz),
	THREAD(cuLaunchHostFunc, 10000, cuLaunchHostFunc, cuLaunchHostFunc_ptsz),
	PLAIN(cuGraphCreate, 10000),
	PLAIN(cuGraphDestroy, 10000),
	PLAIN(cuGraphDestroyNode, 10000),
	PLAIN(cuGraphRetainUserObject, 11030),
	PLAIN(cuUserObjectCreate, 11030),
	PLAIN(cuUserObjectRelease, 11030),
	PLAIN(cuGraphClone, 10000),
	OTHER(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode),
	AS(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2),
	PLAIN(cuGraphAddEmptyNode, 10000),
	OTHER(cuGraphKernelNodeGetParams, 10000, cuGraphKernelNodeGetParams),
	AS(cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2),
	OTHER(cuGraphKernelNodeSetParams, 10000, cuGraphKernelNodeSetParams),
	AS(cuGraphKernelNodeSetParams, 12000, cuGraphKernelNodeSetParams_v2),
	PLAIN(cuGraphNodeGetType, 10000),
	PLAIN(cuGraphGetNodes, 10000),
	OTHER(cuGraphInstantiate, 11000, cuGraphInstantiate_v2),
	AS(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags),
	PLAIN(cuGraphInstantiateWithFlags, 11040),
	THREAD(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams,
	       cuGraphInstantiateWithParams_ptsz),
	OTHER(cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams),
	AS(cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2),
	THREAD(cuGraphUpload, 11010, cuGraphUpload, cuGraphUpload_ptsz),
	THREAD(cuGraphLaunch, 10000, cuGraphLaunch, cuGraphLaunch_ptsz),
	OTHER(cuGraphExecUpdate, 10020, cuGraphExecUpdate),
	AS(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2),
	PLAIN(cuGraphExecDestroy, 10000),
	PLAIN(cuGraphNodeFindInClone, 10000),
	PLAIN(cuGraphNodeSetEnabled, 11060),
	AS(cuGraphAddNode, 13000, cuGraphAddNode_v2),
	PLAIN(cuGraphConditionalHandleCreate, 12030),
	PLAIN(cuGraphAddChildGraphNode, 10000),
	PLAIN(cuGraphChildGraphNodeGetGraph, 10000),
	PLAIN(cuGraphExecChildGraphNodeSetParams, 11010),
};

/* The newest form that the version knows; *known says whether the name exists at all. */
static void *find(const char *name, int version, cuuint64_t flags, bool *known) {
	const struct row *best = NULL;

	*known = false;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		if (strcmp(rows[n].name, name))
			continue;
		*known = true;
		if (rows[n].version <= version && (!best || best->version < rows[n].version))
			best = &rows[n];
	}
	if (!best)
		return NULL;
	return (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && best->per_thread
		       ? best->per_thread
		       : best->function;
}

API_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
					cuuint64_t flags,
					CUdriverProcAddressQueryResult *symbolStatus) {
	bool known;

	if (!symbol || !pfn || cudaVersion > CUDA_VERSION ||
	    flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = find(symbol, cudaVersion, flags, &known);
	if (symbolStatus)
		*symbolStatus = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
				: known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

/* The first form: no status, and what is not found is an error. */
API_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
				     cuuint64_t flags);
API_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
				     cuuint64_t flags) {
	CUresult r = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);

	return r == CUDA_SUCCESS && !*pfn && *symbol ? CUDA_ERROR_NOT_FOUND : r;
}
