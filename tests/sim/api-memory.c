/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Memory. Device memory is the process's own, and every
 * device pointer is a host pointer. Copies and sets check that the device's side is an allocation;
 * on a stream that captures they become nodes.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

#define DEVICE_MEMORY (UINT64_C(8) << 30)

static size_t page_round(size_t size) {
	size_t page = sysconf(_SC_PAGESIZE);

	return (size + page - 1) & ~(page - 1);
}

static void *map(size_t size) {
	void *p = mmap(NULL, page_round(size), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Maps memory and makes it known. */
CUresult api_memory_map(void **out, size_t size, enum sim_region_kind kind, unsigned int flags) {
	CUresult r;
	void *p;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > DEVICE_MEMORY || ((kind == SIM_REGION_DEVICE || kind == SIM_REGION_TOOL) &&
				     sim_memory_used() + size > DEVICE_MEMORY))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = map(size);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = sim_memory_add((uintptr_t)p, size, kind, flags);
	if (r != CUDA_SUCCESS) {
		munmap(p, page_round(size));
		return r;
	}
	*out = p;
	return CUDA_SUCCESS;
}

static CUresult allocate(void **out, size_t size, enum sim_region_kind kind, unsigned int flags) {
	CUresult r = api_enter();

	if (r == CUDA_SUCCESS && out && size)
		r = api_unsafe_in_capture();
	return r == CUDA_SUCCESS ? api_memory_map(out, size, kind, flags) : r;
}

CUresult api_memory_unmap(uintptr_t base, enum sim_region_kind kind) {
	CUresult r = CUDA_SUCCESS;
	struct sim_region region;

	sim_run_lock();
	if (sim_memory_remove(base, kind, &region))
		munmap((void *)base, page_round(region.size));
	else
		r = CUDA_ERROR_INVALID_VALUE;
	sim_run_unlock();
	return r;
}

static CUresult release(uintptr_t base, enum sim_region_kind kind) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!base)
		return CUDA_SUCCESS;
	r = api_unsafe_in_capture();
	return r == CUDA_SUCCESS ? api_memory_unmap(base, kind) : r;
}

API_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!free || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*total = DEVICE_MEMORY;
	*free = DEVICE_MEMORY - sim_memory_used();
	return CUDA_SUCCESS;
}
API_ALIAS(cuMemGetInfo, cuMemGetInfo_v2);

API_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
	API_SLOW(cuMemAlloc_v2);
	void *p;
	CUresult r = allocate(dptr ? &p : NULL, bytesize, SIM_REGION_DEVICE, 0);

	if (r == CUDA_SUCCESS)
		*dptr = (CUdeviceptr)(uintptr_t)p;
	return r;
}
API_ALIAS(cuMemAlloc, cuMemAlloc_v2);

API_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr) {
	API_SLOW(cuMemFree_v2);

	return release(dptr, SIM_REGION_DEVICE);
}
API_ALIAS(cuMemFree, cuMemFree_v2);

API_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
	return cuMemAlloc_v2(dptr, bytesize);
}
API_ALIAS(cuMemAllocAsync_ptsz, cuMemAllocAsync);

API_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
	return dptr ? cuMemFree_v2(dptr) : CUDA_ERROR_INVALID_VALUE;
}
API_ALIAS(cuMemFreeAsync_ptsz, cuMemFreeAsync);

API_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
	struct sim_region region;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!sim_memory_find(dptr, &region))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = region.base;
	if (psize)
		*psize = region.size;
	return CUDA_SUCCESS;
}
API_ALIAS(cuMemGetAddressRange, cuMemGetAddressRange_v2);

API_EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
	if (Flags &
	    ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(pp, bytesize, SIM_REGION_HOST, Flags);
}

API_EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
	return allocate(pp, bytesize, SIM_REGION_HOST, CU_MEMHOSTALLOC_DEVICEMAP);
}
API_ALIAS(cuMemAllocHost, cuMemAllocHost_v2);

API_EXPORT CUresult cuMemFreeHost(void *p) {
	return release((uintptr_t)p, SIM_REGION_HOST);
}

/* GPUPROBE_SIM_REGISTER_MAX: bytes that can be registered in all; a real driver has limits, too. */
static bool may_register(size_t size) {
	const char *text = getenv("GPUPROBE_SIM_REGISTER_MAX");

	return !text || sim_memory_registered() + size <= strtoull(text, NULL, 10);
}

/* Pages that are not there are refused, as on a GPU: mincore() knows. */
API_EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
	CUresult r = api_enter();
	uintptr_t first = (uintptr_t)p & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
	size_t size = page_round((uintptr_t)p + bytesize - first);
	unsigned char *pages;

	if (r != CUDA_SUCCESS)
		return r;
	if (!p || !bytesize || size < bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = api_unsafe_in_capture();
	if (r != CUDA_SUCCESS)
		return r;
	if (!may_register(bytesize))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pages = malloc(size / sysconf(_SC_PAGESIZE) + 1);
	if (!pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mincore((void *)first, size, pages))
		r = CUDA_ERROR_INVALID_VALUE;
	free(pages);
	return r == CUDA_SUCCESS
		       ? sim_memory_add((uintptr_t)p, bytesize, SIM_REGION_REGISTERED, Flags)
		       : r;
}
API_ALIAS(cuMemHostRegister, cuMemHostRegister_v2);

API_EXPORT CUresult cuMemHostUnregister(void *p) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	r = api_unsafe_in_capture();
	if (r != CUDA_SUCCESS)
		return r;
	sim_run_lock();
	if (!sim_memory_remove((uintptr_t)p, SIM_REGION_REGISTERED, NULL))
		r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	sim_run_unlock();
	return r;
}

static bool find_host(const void *p, struct sim_region *region) {
	return sim_memory_find((uintptr_t)p, region) &&
	       (region->kind == SIM_REGION_HOST || region->kind == SIM_REGION_REGISTERED);
}

API_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
	struct sim_region region;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pdptr || Flags || !find_host(p, &region))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}
API_ALIAS(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2);

API_EXPORT CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
	struct sim_region region;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pFlags || !find_host(p, &region))
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = region.flags;
	return CUDA_SUCCESS;
}

/* --- copies and sets --- */

enum side {
	SIDE_DEVICE = 1,
	SIDE_HOST = 2,
	SIDE_ANY = 3
};

/* Does a device's side lie in one allocation? The host's is the caller's own affair. */
static bool good_side(uintptr_t address, size_t size, enum side side) {
	struct sim_region region;

	if (side == SIDE_HOST)
		return address;
	if (side == SIDE_ANY && address && !sim_memory_find(address, &region))
		return true;
	return sim_memory_holds(address, size) && sim_memory_find(address, &region) &&
	       region.kind != SIM_REGION_TOOL;
}

/* Now, or into the graph that the stream captures into. */
static CUresult submit(const struct CUgraphNode_st *node, bool async, CUstream handle) {
	CUstream stream = NULL;
	int captured = 0;
	CUresult r;

	if (!async) {
		r = api_unsafe_in_capture();
		return r == CUDA_SUCCESS ? api_node_run(node, NULL) : r;
	}
	api_lock();
	if (!api_stream(handle, &stream))
		captured = -(int)CUDA_ERROR_INVALID_HANDLE;
	else if (stream)
		captured = api_capture(stream, node);
	api_unlock();
	if (captured)
		return captured < 0 ? (CUresult)-captured : CUDA_SUCCESS;
	return api_node_run(node, handle);
}

static CUresult copy(uintptr_t to, enum side to_side, uintptr_t from, enum side from_side,
		     size_t size, bool async, CUstream stream) {
	struct CUgraphNode_st node = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.destination = (void *)to,
		.source = (const void *)from,
		.size = size,
	};
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS || !size)
		return r;
	if (!good_side(to, size, to_side) || !good_side(from, size, from_side))
		return CUDA_ERROR_INVALID_VALUE;
	return submit(&node, async, stream);
}

API_EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
	return copy(dst, SIDE_ANY, src, SIDE_ANY, ByteCount, false, NULL);
}
API_ALIAS(cuMemcpy_ptds, cuMemcpy);

API_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
	return copy(dstDevice, SIDE_DEVICE, (uintptr_t)srcHost, SIDE_HOST, ByteCount, false, NULL);
}
API_ALIAS(cuMemcpyHtoD, cuMemcpyHtoD_v2);
API_ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2);

API_EXPORT CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
	return copy((uintptr_t)dstHost, SIDE_HOST, srcDevice, SIDE_DEVICE, ByteCount, false, NULL);
}
API_ALIAS(cuMemcpyDtoH, cuMemcpyDtoH_v2);
API_ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2);

API_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
				    size_t ByteCount) {
	return copy(dstDevice, SIDE_DEVICE, srcDevice, SIDE_DEVICE, ByteCount, false, NULL);
}
API_ALIAS(cuMemcpyDtoD, cuMemcpyDtoD_v2);
API_ALIAS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2);

API_EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
				  CUstream hStream) {
	return copy(dst, SIDE_ANY, src, SIDE_ANY, ByteCount, true, hStream);
}
API_ALIAS(cuMemcpyAsync_ptsz, cuMemcpyAsync);

/* GPUPROBE_SIM_NO_UPLOAD: it fails while there is a file of that name. */
API_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost,
					 size_t ByteCount, CUstream hStream) {
	const char *file = getenv("GPUPROBE_SIM_NO_UPLOAD");

	if (file && !access(file, F_OK))
		return CUDA_ERROR_UNKNOWN;
	return copy(dstDevice, SIDE_DEVICE, (uintptr_t)srcHost, SIDE_HOST, ByteCount, true,
		    hStream);
}
API_ALIAS(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2);
API_ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2);

API_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
					 CUstream hStream) {
	return copy((uintptr_t)dstHost, SIDE_HOST, srcDevice, SIDE_DEVICE, ByteCount, true,
		    hStream);
}
API_ALIAS(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2);
API_ALIAS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2);

API_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
					 size_t ByteCount, CUstream hStream) {
	return copy(dstDevice, SIDE_DEVICE, srcDevice, SIDE_DEVICE, ByteCount, true, hStream);
}
API_ALIAS(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2);
API_ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2);

static CUresult set(CUdeviceptr to, uint32_t value, size_t element, size_t count, bool async,
		    CUstream stream) {
	struct CUgraphNode_st node = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.destination = (void *)(uintptr_t)to,
		.size = count,
		.element = element,
		.value = value,
	};
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS || !count)
		return r;
	if (count > SIZE_MAX / element || !sim_memory_holds(to, count * element) || to % element)
		return CUDA_ERROR_INVALID_VALUE;
	return submit(&node, async, stream);
}

API_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
	return set(dstDevice, uc, 1, N, false, NULL);
}
API_ALIAS(cuMemsetD8, cuMemsetD8_v2);
API_ALIAS(cuMemsetD8_v2_ptds, cuMemsetD8_v2);

API_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
	return set(dstDevice, us, 2, N, false, NULL);
}
API_ALIAS(cuMemsetD16, cuMemsetD16_v2);
API_ALIAS(cuMemsetD16_v2_ptds, cuMemsetD16_v2);

API_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
	return set(dstDevice, ui, 4, N, false, NULL);
}
API_ALIAS(cuMemsetD32, cuMemsetD32_v2);
API_ALIAS(cuMemsetD32_v2_ptds, cuMemsetD32_v2);

API_EXPORT CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
				    CUstream hStream) {
	return set(dstDevice, uc, 1, N, true, hStream);
}
API_ALIAS(cuMemsetD8Async_ptsz, cuMemsetD8Async);

API_EXPORT CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
				     CUstream hStream) {
	return set(dstDevice, us, 2, N, true, hStream);
}
API_ALIAS(cuMemsetD16Async_ptsz, cuMemsetD16Async);

API_EXPORT CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
				     CUstream hStream) {
	return set(dstDevice, ui, 4, N, true, hStream);
}
API_ALIAS(cuMemsetD32Async_ptsz, cuMemsetD32Async);

API_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
					  CUdeviceptr ptr) {
	struct sim_region region;
	CUresult r = api_enter();
	bool host;

	if (r != CUDA_SUCCESS)
		return r;
	if (!data || !sim_memory_find(ptr, &region))
		return CUDA_ERROR_INVALID_VALUE;
	host = region.kind == SIM_REGION_HOST || region.kind == SIM_REGION_REGISTERED;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = api_current();
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = region.id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = region.base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = region.size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = 1;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}
