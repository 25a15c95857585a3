/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Green contexts: contexts with some of the device's
 * multiprocessors. Each is a context of its own here, also for libraries.
 */

#include <stdlib.h>

#include "api.h"

#define PARTITION 2 /* the fewest multiprocessors, and what their number is a multiple of */

struct CUgreenCtx_st {
	CUcontext context;
};

struct CUdevResourceDesc_st {
	unsigned int processors;
};

static CUdevResource resource_of(unsigned int processors) {
	CUdevResource resource = { .type = CU_DEV_RESOURCE_TYPE_SM };

	resource.sm.smCount = processors;
	resource.sm.minSmPartitionSize = resource.sm.smCoscheduledAlignment = PARTITION;
	return resource;
}

API_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
					   CUdevResourceType type) {
	if (device || !resource)
		return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	*resource = resource_of(SIM_SM_COUNT);
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
						const CUdevResource *input,
						CUdevResource *remaining, unsigned int useFlags,
						unsigned int minCount) {
	const unsigned int each = (minCount + PARTITION - 1) / PARTITION * PARTITION;
	unsigned int groups;

	if (!nbGroups || !input || useFlags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!each || each > input->sm.smCount)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	groups = input->sm.smCount / each;
	if (result && *nbGroups < groups)
		groups = *nbGroups;
	for (unsigned int n = 0; result && n < groups; n++)
		result[n] = resource_of(each);
	if (remaining)
		*remaining = resource_of(input->sm.smCount - groups * each);
	*nbGroups = groups;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
					      unsigned int nbResources) {
	if (!phDesc || !resources || nbResources != 1 || !resources->sm.smCount)
		return CUDA_ERROR_INVALID_VALUE;
	*phDesc = malloc(sizeof(**phDesc)); /* no call frees one */
	if (!*phDesc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*phDesc)->processors = resources->sm.smCount;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
				     unsigned int flags) {
	CUresult r = api_initialized();
	CUgreenCtx green;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phCtx || !desc || dev || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	green = calloc(1, sizeof(*green));
	r = green ? api_context_new(&green->context, 0) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		free(green);
		return r;
	}
	green->context->processors = desc->processors;
	green->context->green = green;
	*phCtx = green;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
	CUresult r = hCtx ? api_context_destroy(hCtx->context) : CUDA_ERROR_INVALID_CONTEXT;

	if (r == CUDA_SUCCESS)
		free(hCtx);
	return r;
}

API_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
	if (!pContext || !hCtx)
		return CUDA_ERROR_INVALID_VALUE;
	*pContext = hCtx->context;
	return CUDA_SUCCESS;
}

/* Of a stream of a green context the primary one, and the green one. */
API_EXPORT CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
	CUcontext context, retained;
	CUresult r = cuStreamGetCtx(hStream, &context);

	if (r != CUDA_SUCCESS)
		return r;
	if (!pCtx || !pGreenCtx)
		return CUDA_ERROR_INVALID_VALUE;
	*pCtx = context;
	*pGreenCtx = context->green;
	if (!context->green)
		return r;
	r = cuDevicePrimaryCtxRetain(&retained, 0);
	*pCtx = retained;
	return r == CUDA_SUCCESS ? cuDevicePrimaryCtxRelease_v2(0) : r;
}
API_ALIAS(cuStreamGetCtx_v2_ptsz, cuStreamGetCtx_v2);

API_EXPORT CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx,
					   unsigned int flags, int priority) {
	CUcontext before = api_current();
	CUresult r;

	if (!greenCtx || !(flags & CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	r = cuCtxSetCurrent(greenCtx->context);
	if (r == CUDA_SUCCESS)
		r = cuStreamCreateWithPriority(phStream, flags, priority);
	cuCtxSetCurrent(before);
	return r;
}

API_EXPORT CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource,
					CUdevResourceType type) {
	CUresult r = api_initialized();
	bool live;

	api_lock();
	live = api_live(hCtx, API_CONTEXT);
	api_unlock();
	if (r != CUDA_SUCCESS || !live)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_CONTEXT;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return resource ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE;
	*resource = resource_of(hCtx->processors ? hCtx->processors : SIM_SM_COUNT);
	return CUDA_SUCCESS;
}
