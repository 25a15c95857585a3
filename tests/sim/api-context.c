/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU driver's API for programs (api.h). Initialisation, the one device, contexts. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "sim-program.h"

#define CONTEXT_STACK 16
#define DEVICE_MEMORY (UINT64_C(8) << 30)

pthread_mutex_t api_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool initialized;
static struct CUctx_st primary = { .primary = true };
static uint64_t last_id;
static struct {
	void **handles;
	uint8_t *kinds;
	size_t size, used; /* used counts removed ones too */
} live;

static __thread CUcontext stack[CONTEXT_STACK];
static __thread unsigned int stack_top; /* number of contexts on it */

/* --- live handles: open addressing; a removed one keeps its place with kind 0 --- */

static size_t live_find(const void *handle) {
	size_t at = ((uintptr_t)handle >> 4) * 2654435761u % live.size;

	while (live.handles[at] && live.handles[at] != handle)
		at = (at + 1) % live.size;
	return at;
}

static bool live_grow(void) {
	size_t size = live.size ? live.size * 2 : 1024, old_size = live.size;
	void **handles = calloc(size, sizeof(*handles)), **old = live.handles;
	uint8_t *kinds = calloc(size, 1), *old_kinds = live.kinds;

	if (!handles || !kinds) {
		free(handles);
		free(kinds);
		return false;
	}
	live.handles = handles;
	live.kinds = kinds;
	live.size = size;
	live.used = 0;
	for (size_t n = 0; n < old_size; n++)
		if (old[n] && old_kinds[n])
			api_live_add(old[n], old_kinds[n]);
	free(old);
	free(old_kinds);
	return true;
}

bool api_live_add(void *handle, enum api_kind kind) {
	size_t at;

	if (live.used * 2 >= live.size && !live_grow())
		return false;
	at = live_find(handle);
	live.used += !live.handles[at];
	live.handles[at] = handle;
	live.kinds[at] = kind;
	return true;
}

void api_live_remove(void *handle) {
	if (live.size)
		live.kinds[live_find(handle)] = 0;
}

bool api_live(const void *handle, enum api_kind kind) {
	size_t at;

	if (!handle || !live.size)
		return false;
	at = live_find(handle);
	return live.handles[at] && live.kinds[at] == kind;
}

uint64_t api_next_id(void) {
	return ++last_id;
}

uint64_t api_thread_id(void) {
	static __thread char place;

	return (uint64_t)(uintptr_t)&place;
}

/* --- the device --- */

uint32_t sim_capability(void) {
	const char *text = getenv("GPUPROBE_SIM_SM");
	int value = text ? atoi(text) : 0;

	return value >= 50 && value < 200 ? (uint32_t)value : 90;
}

API_EXPORT CUresult cuInit(unsigned int Flags) {
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (!initialized) {
		primary.id = api_next_id();
		initialized = api_live_add(&primary, API_CONTEXT);
	}
	api_unlock();
	return initialized ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult api_initialized(void) {
	return initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUcontext api_current(void) {
	return stack_top ? stack[stack_top - 1] : NULL;
}

CUresult api_enter(void) {
	CUcontext context = api_current();
	CUresult r = CUDA_SUCCESS;

	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	api_lock();
	if (!api_live(context, API_CONTEXT))
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else if (context->primary && !context->primary_references)
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else
		r = context->error;
	api_unlock();
	return r;
}

static CUresult check_device(CUdevice dev) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	return dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

API_EXPORT CUresult cuDriverGetVersion(int *driverVersion) {
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = CUDA_VERSION;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	CUresult r = check_device(ordinal);

	if (r != CUDA_SUCCESS)
		return r;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = 0;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDeviceGetCount(int *count) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = 1;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!name || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, len, "gpuprobe CPU driver (no GPU)");
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid->bytes, "gpuprobe-cpu-sim", 16);
	return CUDA_SUCCESS;
}
API_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2);

API_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = DEVICE_MEMORY;
	return CUDA_SUCCESS;
}
API_ALIAS(cuDeviceTotalMem, cuDeviceTotalMem_v2);

API_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = (int)sim_capability() / 10;
	*minor = (int)sim_capability() % 10;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!pciBusId || len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(pciBusId, len, "0000:00:00.0");
	return CUDA_SUCCESS;
}

static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, SIM_BLOCK_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SIM_SHARED_DEFAULT },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SIM_SHARED_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10 },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, SIM_WARP },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, SIM_SM_COUNT },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1 },
};

/* What is not listed is 0: not supported. */
API_EXPORT CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!pi || (int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = 0;
	if (attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
		*pi = (int)sim_capability() / 10;
	if (attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
		*pi = (int)sim_capability() % 10;
	for (size_t n = 0; n < sizeof(attributes) / sizeof(attributes[0]); n++)
		if (attributes[n].attribute == attrib)
			*pi = attributes[n].value;
	return CUDA_SUCCESS;
}

/* --- contexts --- */

static CUresult push(CUcontext context) {
	if (stack_top == CONTEXT_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[stack_top++] = context;
	return CUDA_SUCCESS;
}

static void set_limits(CUcontext context) {
	context->limits[CU_LIMIT_STACK_SIZE] = 1024;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
}

CUresult api_context_new(CUcontext *out, unsigned int flags) {
	CUcontext context = calloc(1, sizeof(*context));
	bool good;

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->flags = flags;
	context->attached = 1;
	context->patchable = api_patchable();
	set_limits(context);
	api_lock();
	context->id = api_next_id();
	good = api_live_add(context, API_CONTEXT);
	api_unlock();
	if (good)
		*out = context;
	else
		free(context);
	return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API_EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
API_EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
	CUresult r = check_device(dev);
	CUcontext context;

	if (r != CUDA_SUCCESS)
		return r;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	r = api_context_new(&context, flags);
	if (r != CUDA_SUCCESS)
		return r;
	r = push(context);
	if (r != CUDA_SUCCESS) {
		api_context_destroy(context);
		return r;
	}
	*pctx = context;
	return CUDA_SUCCESS;
}
API_ALIAS(cuCtxCreate, cuCtxCreate_v2);

API_EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, void *affinity, int count, unsigned int flags,
				   CUdevice dev);
API_EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, void *affinity, int count, unsigned int flags,
				   CUdevice dev) {
	if (affinity || count)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v2(pctx, flags, dev);
}

API_EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
				   unsigned int flags, CUdevice dev) {
	if (ctxCreateParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v2(pctx, flags, dev);
}

static CUresult check_context(CUcontext ctx) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!api_live(ctx, API_CONTEXT))
		r = CUDA_ERROR_INVALID_CONTEXT;
	api_unlock();
	return r;
}

CUresult api_context_destroy(CUcontext context) {
	CUresult r = CUDA_SUCCESS;

	api_context_ending(context);
	sim_run_lock();
	api_lock();
	if (!api_live(context, API_CONTEXT)) {
		r = CUDA_ERROR_INVALID_CONTEXT;
	} else {
		api_streams_end(context);
		api_libraries_end(context);
		api_live_remove(context);
		free(context);
	}
	api_unlock();
	sim_run_unlock();
	if (r == CUDA_SUCCESS && stack_top && stack[stack_top - 1] == context)
		stack_top--;
	return r;
}

API_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx) {
	API_SLOW(cuCtxDestroy_v2);
	CUresult r = api_initialized();

	if (r == CUDA_SUCCESS)
		r = check_context(ctx);
	if (r != CUDA_SUCCESS || ctx->primary || ctx->processors)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_CONTEXT;
	return api_context_destroy(ctx);
}
API_ALIAS(cuCtxDestroy, cuCtxDestroy_v2);

API_EXPORT CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = api_current();
	api_lock();
	(*pctx)->attached++;
	api_unlock();
	return CUDA_SUCCESS;
}

/* The context ends when nobody is attached any more. */
API_EXPORT CUresult cuCtxDetach(CUcontext ctx) {
	CUresult r = check_context(ctx);
	bool last;

	if (r != CUDA_SUCCESS || ctx != api_current())
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_CONTEXT;
	api_lock();
	last = ctx->attached <= 1;
	ctx->attached -= !last;
	api_unlock();
	return last ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
	CUresult r = check_context(ctx);

	return r == CUDA_SUCCESS ? push(ctx) : r;
}
API_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2);

API_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!stack_top)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack_top--;
	if (pctx)
		*pctx = stack[stack_top];
	return CUDA_SUCCESS;
}
API_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2);

API_EXPORT CUresult cuCtxSetCurrent(CUcontext ctx) {
	CUresult r = ctx ? check_context(ctx) : api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (stack_top)
		stack_top--;
	return ctx ? push(ctx) : CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = api_current();
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!api_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = 0;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetFlags(unsigned int *flags) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = api_current()->flags;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx)
		ctx = api_current();
	r = check_context(ctx);
	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_INVALID_CONTEXT && ctx ? CUDA_ERROR_CONTEXT_IS_DESTROYED : r;
	if (ctx->primary && !ctx->primary_references)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	*ctxId = ctx->id;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
	CUresult r = check_context(ctx ? ctx : api_current());

	if (r != CUDA_SUCCESS)
		return r;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 3020;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned int)limit > CU_LIMIT_MALLOC_HEAP_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	api_current()->limits[limit] = value;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pvalue || (unsigned int)limit > CU_LIMIT_MALLOC_HEAP_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	*pvalue = api_current()->limits[limit];
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuCtxSynchronize(void) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	r = api_not_in_captures(api_current());
	if (r != CUDA_SUCCESS)
		return r;
	sim_run_lock(); /* kernels of other threads */
	sim_run_unlock();
	return api_enter();
}

/* --- the primary context --- */

API_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (!primary.primary_references++) {
		primary.id = api_next_id(); /* it is another one each time */
		primary.error = CUDA_SUCCESS;
		primary.patchable = api_patchable();
		set_limits(&primary);
	}
	api_unlock();
	*pctx = &primary;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
	API_SLOW(cuDevicePrimaryCtxRelease_v2);
	CUresult r = check_device(dev);
	bool last;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	last = primary.primary_references <= 1;
	if (!last)
		primary.primary_references--;
	api_unlock();
	if (!last) /* nothing happens then, and nothing is waited for */
		return CUDA_SUCCESS;
	if (primary.primary_references == 1)
		api_context_ending(&primary);
	sim_run_lock();
	api_lock();
	if (!primary.primary_references)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (!--primary.primary_references) {
		api_streams_end(&primary);
		api_libraries_end(&primary);
	}
	api_unlock();
	sim_run_unlock();
	return r;
}
API_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

API_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (primary.primary_references)
		api_context_ending(&primary);
	sim_run_lock();
	api_lock();
	primary.primary_references = 0;
	primary.error = CUDA_SUCCESS;
	api_streams_end(&primary);
	api_libraries_end(&primary);
	api_unlock();
	sim_run_unlock();
	return CUDA_SUCCESS;
}
API_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

API_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
	CUresult r = check_device(dev);

	if (r == CUDA_SUCCESS)
		primary.flags = flags;
	return r;
}
API_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

API_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
	CUresult r = check_device(dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	*flags = primary.flags;
	*active = primary.primary_references > 0;
	api_unlock();
	return CUDA_SUCCESS;
}
