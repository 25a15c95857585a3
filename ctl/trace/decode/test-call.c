/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of call.c: golden records of functions of all kinds, also cut off at every length and
 * with each byte changed. Structs are written byte by byte, at offsets that were looked up in
 * cuda.h.
 */

#include "call.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lib/function.h"

#define RECORD_MAX 2048
#define WORDS(...) (const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8
#define EXTRAS(...)                            \
	(const struct extra[]){ __VA_ARGS__ }, \
		sizeof((const struct extra[]){ __VA_ARGS__ }) / sizeof(struct extra)
#define ENTRY(argument, ...)                                         \
	{                                                            \
		argument, TRACE_EXTRA_ENTRY, (const struct part[]) { \
			__VA_ARGS__, { 0 }                           \
		}                                                    \
	}
#define RETURN(argument, ...)                                         \
	{                                                             \
		argument, TRACE_EXTRA_RETURN, (const struct part[]) { \
			__VA_ARGS__, { 0 }                            \
		}                                                     \
	}

/* What lies in a struct: `size` bytes at `offset`, or a text. Size 0 and no text: the end. */
struct part {
	uint16_t offset, size;
	uint64_t number;
	const char *text;
};

struct extra {
	uint8_t argument, when;
	const struct part *parts;
};

struct golden {
	const char *function;
	const uint64_t *words;
	size_t n_words;
	const struct extra *extras;
	size_t n_extras;
	int32_t result;
	uint8_t flags;
	const char *expected;
};

static const struct golden goldens[] = {
	/* nothing, numbers, enums */
	{ "cuCtxSynchronize", NULL, 0, NULL, 0, 719, 0,
	  "sync cuCtxSynchronize() = CUDA_ERROR_LAUNCH_FAILED failed" },
	{ "cuInit", WORDS(0xdeadbeef00000000), NULL, 0, 0, 0,
	  "device cuInit(Flags=0) = CUDA_SUCCESS" },
	{ "cuDeviceGetAttribute", WORDS(0x1000, 75, 1), EXTRAS(RETURN(0, { 0, 4, 9 })), 0, 0,
	  "query cuDeviceGetAttribute(pi=*9, attrib=CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "
	  "dev=1) = CUDA_SUCCESS device=1" },
	{ "cuCtxSetLimit", WORDS(0x7700000002, 65536), NULL, 0, 0, 0,
	  "context cuCtxSetLimit(limit=CU_LIMIT_MALLOC_HEAP_SIZE, value=65536) = CUDA_SUCCESS" },
	{ "cuCtxSetCacheConfig", WORDS(77), NULL, 0, 1, 0,
	  "context cuCtxSetCacheConfig(config=#77) = CUDA_ERROR_INVALID_VALUE failed" },
	{ "cuDeviceGet", WORDS(0x1000, UINT32_MAX), EXTRAS(RETURN(0, { 0, 4, 0xfffffffe })), 0, 0,
	  "device cuDeviceGet(device=*-2, ordinal=-1) = CUDA_SUCCESS" },
	{ "cuGetErrorName", WORDS(700, 0x1000), EXTRAS(RETURN(1, { 0, 8, 0x7f00 })), 0, 0,
	  "query cuGetErrorName(error=CUDA_ERROR_ILLEGAL_ADDRESS, pStr=*0x7f00) = CUDA_SUCCESS" },
	{ "cuEventQuery", WORDS(0x55), NULL, 0, 600, 0,
	  "query cuEventQuery(hEvent=0x55) = CUDA_ERROR_NOT_READY" },
	{ "cuStreamQuery", WORDS(0x66), NULL, 0, 12345, 0,
	  "query cuStreamQuery(hStream=0x66) = 12345 failed stream=0x66" },
	/* memory */
	{ "cuMemAlloc_v2", WORDS(0x7ffc0010, 1048576), EXTRAS(RETURN(0, { 0, 8, 0x7f0000a00000 })),
	  0, 0,
	  "memory cuMemAlloc_v2(dptr=*0x7f0000a00000, bytesize=1048576B) = CUDA_SUCCESS "
	  "size=1048576" },
	{ "cuMemAlloc_v2", WORDS(0x7ffc0010, UINT64_C(1) << 60), NULL, 0, 2, 0,
	  "memory cuMemAlloc_v2(dptr=0x7ffc0010, bytesize=1152921504606846976B) = "
	  "CUDA_ERROR_OUT_OF_MEMORY failed size=1152921504606846976" },
	{ "cuMemAllocPitch_v2", WORDS(0x1, 0x2, 1000, 30, 4),
	  EXTRAS(RETURN(0, { 0, 8, 0xa000 }), RETURN(1, { 0, 8, 1024 })), 0, 0,
	  "memory cuMemAllocPitch_v2(dptr=*0xa000, pPitch=*1024, WidthInBytes=1000B, Height=30, "
	  "ElementSizeBytes=4) = CUDA_SUCCESS size=30000" },
	{ "cuMemAlloc", WORDS(0x1, 0xffffffff00000020), EXTRAS(RETURN(0, { 0, 4, 0x1000 })), 0, 0,
	  "memory cuMemAlloc(dptr=*0x1000, bytesize=32B) = CUDA_SUCCESS size=32" },
	{ "cuMemFree_v2", WORDS(0x7f0000a00000), NULL, 0, 0, 0,
	  "memory cuMemFree_v2(dptr=0x7f0000a00000) = CUDA_SUCCESS" },
	{ "cuMemHostAlloc", WORDS(0x1, 4096, 3), EXTRAS(RETURN(0, { 0, 8, 0x7e0000 })), 0, 0,
	  "memory cuMemHostAlloc(pp=*0x7e0000, bytesize=4096B, Flags=3) = CUDA_SUCCESS size=4096" },
	{ "cuMemCreate", WORDS(0x1, 2097152, 0x2, 0),
	  EXTRAS(RETURN(0, { 0, 8, 0x33 }),
		 ENTRY(2, { 0, 4, 1 }, { 4, 4, 1 }, { 8, 4, 1 }, { 12, 4, 3 }, { 25, 1, 1 },
		       { 26, 2, 4 }, { 31, 1, 0 })),
	  0, 0,
	  "memory cuMemCreate(handle=*0x33, size=2097152B, "
	  "prop={type=CU_MEM_ALLOCATION_TYPE_PINNED, "
	  "requestedHandleTypes=CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "
	  "location={type=CU_MEM_LOCATION_TYPE_DEVICE, id=3}, win32HandleMetaData=0x0, "
	  "allocFlags={compressionType=0, gpuDirectRDMACapable=1, usage=4}}, flags=0) "
	  "= CUDA_SUCCESS size=2097152" },
	{ "cuMemSetAccess", WORDS(0xa000, 4096, 0x3, 1),
	  EXTRAS(ENTRY(2, { 0, 4, 1 }, { 4, 4, 0 }, { 8, 4, 3 })), 0, 0,
	  "memory cuMemSetAccess(ptr=0xa000, size=4096B, "
	  "desc={location={type=CU_MEM_LOCATION_TYPE_DEVICE, id=0}, "
	  "flags=CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, count=1) "
	  "= CUDA_SUCCESS size=4096" },
	{ "cuArrayCreate_v2", WORDS(0x1, 0x2),
	  EXTRAS(RETURN(0, { 0, 8, 0xc0 }),
		 ENTRY(1, { 0, 8, 64 }, { 8, 8, 0 }, { 16, 4, 0x20 }, { 20, 4, 4 })),
	  0, 0,
	  "memory cuArrayCreate_v2(pHandle=*0xc0, pAllocateArray={Width=64, Height=0, "
	  "Format=CU_AD_FORMAT_FLOAT, NumChannels=4}) = CUDA_SUCCESS size=1024" },
	/* copies */
	{ "cuMemcpyHtoDAsync_v2", WORDS(0xa000, 0x5500, 4096, 0x7), NULL, 0, 0, 0,
	  "transfer cuMemcpyHtoDAsync_v2(dstDevice=0xa000, srcHost=0x5500, ByteCount=4096B, "
	  "hStream=0x7) = CUDA_SUCCESS size=4096 stream=0x7" },
	{ "cuMemcpyPeer", WORDS(0xa000, 0xc1, 0xb000, 0xc2, 8), NULL, 0, 0, 0,
	  "transfer cuMemcpyPeer(dstDevice=0xa000, dstContext=0xc1, srcDevice=0xb000, "
	  "srcContext=0xc2, ByteCount=8B) = CUDA_SUCCESS size=8 context=0xc1" },
	{ "cuMemsetD2D32_v2", WORDS(0xa000, 512, UINT64_C(0x900000001), 100, 7), NULL, 0, 0, 0,
	  "transfer cuMemsetD2D32_v2(dstDevice=0xa000, dstPitch=512, ui=1, Width=100, Height=7) = "
	  "CUDA_SUCCESS size=2800" },
	{ "cuMemsetD16Async", WORDS(0xa000, 0xffff0007, 10, 2), NULL, 0, 0, 0,
	  "transfer cuMemsetD16Async(dstDevice=0xa000, us=7, N=10, hStream=0x2) = CUDA_SUCCESS "
	  "size=20 stream=0x2" },
	{ "cuMemsetD32_v2", WORDS(0xa000, 0, UINT64_MAX), NULL, 0, 1, 0,
	  "transfer cuMemsetD32_v2(dstDevice=0xa000, ui=0, N=18446744073709551615) = "
	  "CUDA_ERROR_INVALID_VALUE failed" },
	{ "cuMemcpy2DAsync_v2", WORDS(0x1, 0x9),
	  EXTRAS(ENTRY(0, { 0, 8, 4 }, { 16, 4, 1 }, { 24, 8, 0x5500 }, { 48, 8, 256 },
		       { 72, 4, 2 }, { 88, 8, 0xa000 }, { 104, 8, 512 }, { 112, 8, 200 },
		       { 120, 8, 10 })),
	  0, 0,
	  "transfer cuMemcpy2DAsync_v2(pCopy={srcXInBytes=4, srcY=0, "
	  "srcMemoryType=CU_MEMORYTYPE_HOST, srcHost=0x5500, srcDevice=0x0, srcArray=0x0, "
	  "srcPitch=256, dstXInBytes=0, "
	  "dstY=0, dstMemoryType=CU_MEMORYTYPE_DEVICE, dstHost=0x0, dstDevice=0xa000, "
	  "dstArray=0x0, dstPitch=512, WidthInBytes=200, Height=10}, hStream=0x9) = CUDA_SUCCESS "
	  "size=2000 stream=0x9" },
	{ "cuMemcpy3D_v2", WORDS(0x1),
	  EXTRAS(ENTRY(0, { 32, 4, 2 }, { 48, 8, 0xa000 }, { 120, 4, 2 }, { 136, 8, 0xb000 },
		       { 176, 8, 16 }, { 184, 8, 4 }, { 192, 8, 2 })),
	  0, 0,
	  "transfer cuMemcpy3D_v2(pCopy={srcXInBytes=0, srcY=0, srcZ=0, srcLOD=0, "
	  "srcMemoryType=CU_MEMORYTYPE_DEVICE, srcHost=0x0, srcDevice=0xa000, srcArray=0x0, "
	  "srcPitch=0, "
	  "srcHeight=0, dstXInBytes=0, dstY=0, dstZ=0, dstLOD=0, "
	  "dstMemoryType=CU_MEMORYTYPE_DEVICE, dstHost=0x0, dstDevice=0xb000, dstArray=0x0, "
	  "dstPitch=0, dstHeight=0, "
	  "WidthInBytes=16, Height=4, Depth=2}) = CUDA_SUCCESS size=128" },
	{ "cuMemPrefetchAsync_v2", WORDS(0xa000, 65536, UINT64_C(0x100000001), 0, 0x5), NULL, 0, 0,
	  0,
	  "transfer cuMemPrefetchAsync_v2(devPtr=0xa000, count=65536B, "
	  "location={type=CU_MEM_LOCATION_TYPE_DEVICE, id=1}, flags=0, hStream=0x5) = CUDA_SUCCESS "
	  "size=65536 stream=0x5" },
	{ "cuMemcpyBatchAsync", WORDS(0x1, 0x2, 0x3, 5, 0x4, 0x5, 1, 0x6, 0x7),
	  EXTRAS(RETURN(7, { 0, 8, 3 })), 0, 0,
	  "transfer cuMemcpyBatchAsync(dsts=0x1, srcs=0x2, sizes=0x3, count=5, attrs=0x4, "
	  "attrsIdxs=0x5, numAttrs=1, failIdx=*3, hStream=0x7) = CUDA_SUCCESS stream=0x7" },
	/* launches */
	{ "cuLaunchKernel", WORDS(0xf1, 1, 2, 3, 4, 5, 6, 49152, 0x8, 0x1000, 0), NULL, 0, 0, 0,
	  "launch cuLaunchKernel(f=0xf1, gridDimX=1, gridDimY=2, gridDimZ=3, blockDimX=4, "
	  "blockDimY=5, blockDimZ=6, sharedMemBytes=49152, hStream=0x8, kernelParams=0x1000, "
	  "extra=0x0) = CUDA_SUCCESS stream=0x8 kernel=_Z3addPf" },
	{ "cuLaunchKernelEx_ptsz", WORDS(0x1, 0xf2, 0x1000, 0),
	  EXTRAS(ENTRY(0, { 0, 4, 10 }, { 4, 4, 1 }, { 8, 4, 1 }, { 12, 4, 256 }, { 16, 4, 1 },
		       { 20, 4, 1 }, { 24, 4, 1024 }, { 32, 8, 0xabc }, { 40, 8, 0x77 },
		       { 48, 4, 2 }, { 55, 1, 0 })),
	  0, 0,
	  "launch cuLaunchKernelEx_ptsz(config={gridDimX=10, gridDimY=1, gridDimZ=1, "
	  "blockDimX=256, blockDimY=1, blockDimZ=1, sharedMemBytes=1024, hStream=0xabc, "
	  "attrs=0x77, "
	  "numAttrs=2}, f=0xf2, kernelParams=0x1000, extra=0x0) = CUDA_SUCCESS stream=0xabc" },
	{ "cuLaunchCooperativeKernel", WORDS(0xf1, 1, 1, 1, 32, 1, 1, 0, 0, 0x1000), NULL, 0, 720,
	  0,
	  "launch cuLaunchCooperativeKernel(f=0xf1, gridDimX=1, gridDimY=1, gridDimZ=1, "
	  "blockDimX=32, blockDimY=1, blockDimZ=1, sharedMemBytes=0, hStream=0x0, "
	  "kernelParams=0x1000) = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE failed kernel=_Z3addPf" },
	{ "cuGraphLaunch", WORDS(0x99, 0x8), NULL, 0, 0, TRACE_CALL_OPEN,
	  "launch cuGraphLaunch(hGraph=0x99, hStream=0x8) open stream=0x8" },
	/* strings */
	{ "cuModuleGetFunction", WORDS(0x1, 0x2, 0x3),
	  EXTRAS(RETURN(0, { 0, 8, 0xf1 }), ENTRY(2, { .text = "_Z3addPf" })), 0, 0,
	  "module cuModuleGetFunction(hfunc=*0xf1, hmod=0x2, name=\"_Z3addPf\") = CUDA_SUCCESS" },
	{ "cuModuleLoad", WORDS(0x1, 0x2), EXTRAS(ENTRY(1, { .text = "" })), 301, 0,
	  "module cuModuleLoad(module=0x1, fname=\"\") = CUDA_ERROR_FILE_NOT_FOUND failed" },
	{ "cuLinkAddData_v2", WORDS(0x1, 1, 0x2, 100, 0x3, 1, 0x4, 0x5),
	  EXTRAS(ENTRY(4, { .text = "a.ptx" })), 0, 0,
	  "module cuLinkAddData_v2(state=0x1, type=CU_JIT_INPUT_PTX, data=0x2, size=100, "
	  "name=\"a.ptx\", numOptions=1, options=0x4, optionValues=0x5) = CUDA_SUCCESS" },
	{ "cuGetProcAddress_v2", WORDS(0x1, 0x2, 13000, 0, 0x3),
	  EXTRAS(ENTRY(0, { .text = "cuMemAlloc" }), RETURN(1, { 0, 8, 0x7f11 }),
		 RETURN(4, { 0, 4, 0 })),
	  0, 0,
	  "query cuGetProcAddress_v2(symbol=\"cuMemAlloc\", pfn=*0x7f11, cudaVersion=13000, "
	  "flags=0, symbolStatus=*CU_GET_PROC_ADDRESS_SUCCESS) = CUDA_SUCCESS" },
	/* structs by value, floats, the longest */
	{ "cuIpcOpenMemHandle_v2",
	  WORDS(0x1, 1, 0xbad, 0xbad, 0xbad, 0xbad, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0, 0, 0,
		0, 0, 0xff00000000000000),
	  EXTRAS(RETURN(0, { 0, 8, 0xa000 })), 0, 0,
	  "ipc cuIpcOpenMemHandle_v2(pdptr=*0xa000, "
	  "handle={reserved=<000102030405060708090a0b0c0d0e0f"
	  "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
	  "000000ff>}, Flags=1) = CUDA_SUCCESS" },
	{ "cuParamSetf", WORDS(0xf1, 16, 0x40200000), NULL, 0, 0, 0,
	  "module cuParamSetf(hfunc=0xf1, offset=16, value=2.5) = CUDA_SUCCESS" },
	{ "cuTexRefSetMipmapLevelClamp", WORDS(0x1, 0xbfc00000, 0x1234567841000000), NULL, 0, 0, 0,
	  "other cuTexRefSetMipmapLevelClamp(hTexRef=0x1, minMipmapLevelClamp=-1.5, "
	  "maxMipmapLevelClamp=8) = CUDA_SUCCESS" },
	{ "cuTexRefSetMipmapLevelClamp", WORDS(0x1), NULL, 0, 0, TRACE_CALL_CUT,
	  "other cuTexRefSetMipmapLevelClamp(hTexRef=0x1) = CUDA_SUCCESS" },
	{ "cuEventElapsedTime_v2", WORDS(0x1, 0xe1, 0xe2), EXTRAS(RETURN(0, { 0, 4, 0x3e000000 })),
	  0, 0,
	  "event cuEventElapsedTime_v2(pMilliseconds=*0.125, hStart=0xe1, hEnd=0xe2) = "
	  "CUDA_SUCCESS" },
	{ "cuTensorMapEncodeIm2colWide",
	  WORDS(0x1, 7, 4, 0x2, 0x3, 0x4, 0xffffffff, 1, 64, 32, 0x5, 0, 0, 3, 1, 0), NULL, 0, 0, 0,
	  "other cuTensorMapEncodeIm2colWide(tensorMap=0x1, "
	  "tensorDataType=CU_TENSOR_MAP_DATA_TYPE_FLOAT32, tensorRank=4, globalAddress=0x2, "
	  "globalDim=0x3, globalStrides=0x4, "
	  "pixelBoxLowerCornerWidth=-1, pixelBoxUpperCornerWidth=1, channelsPerPixel=64, "
	  "pixelsPerColumn=32, elementStrides=0x5, interleave=CU_TENSOR_MAP_INTERLEAVE_NONE, "
	  "mode=CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, swizzle=CU_TENSOR_MAP_SWIZZLE_128B, "
	  "l2Promotion=CU_TENSOR_MAP_L2_PROMOTION_L2_64B, "
	  "oobFill=CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) = CUDA_SUCCESS" },
	/* streams, contexts, graphs */
	{ "cuStreamCreateWithPriority", WORDS(0x1, 1, UINT32_MAX - 4),
	  EXTRAS(RETURN(0, { 0, 8, 0x700 })), 0, 0,
	  "stream cuStreamCreateWithPriority(phStream=*0x700, flags=1, priority=-5) = "
	  "CUDA_SUCCESS" },
	{ "cuStreamBeginCapture_v2", WORDS(0x700, 2), NULL, 0, 0, 0,
	  "graph cuStreamBeginCapture_v2(hStream=0x700, mode=CU_STREAM_CAPTURE_MODE_RELAXED) = "
	  "CUDA_SUCCESS stream=0x700" },
	{ "cuStreamGetCaptureInfo_v2", WORDS(0x700, 0x1, 0x2, 0x3, 0x4, 0x5),
	  EXTRAS(RETURN(1, { 0, 4, 1 }), RETURN(2, { 0, 8, 42 }), RETURN(3, { 0, 8, 0x99 }),
		 RETURN(5, { 0, 8, 2 })),
	  0, 0,
	  "query cuStreamGetCaptureInfo_v2(hStream=0x700, "
	  "captureStatus_out=*CU_STREAM_CAPTURE_STATUS_ACTIVE, id_out=*42, graph_out=*0x99, "
	  "dependencies_out=0x4, "
	  "numDependencies_out=*2) = CUDA_SUCCESS stream=0x700" },
	{ "cuCtxPushCurrent_v2", WORDS(0xc1), NULL, 0, 0, TRACE_CALL_NO_RESULT,
	  "query cuCtxPushCurrent_v2(ctx=0xc1) context=0xc1" },
	{ "cuGraphAddKernelNode_v2", WORDS(0x1, 0x99, 0, 0, 0x2),
	  EXTRAS(RETURN(0, { 0, 8, 0x91 }),
		 ENTRY(4, { 0, 8, 0xf1 }, { 8, 4, 80 }, { 12, 4, 1 }, { 16, 4, 1 }, { 20, 4, 64 },
		       { 24, 4, 1 }, { 28, 4, 1 }, { 40, 8, 0x1000 }, { 71, 1, 0 })),
	  0, 0,
	  "graph cuGraphAddKernelNode_v2(phGraphNode=*0x91, hGraph=0x99, dependencies=0x0, "
	  "numDependencies=0, nodeParams={func=0xf1, gridDimX=80, gridDimY=1, gridDimZ=1, "
	  "blockDimX=64, blockDimY=1, blockDimZ=1, sharedMemBytes=0, kernelParams=0x1000, "
	  "extra=0x0, kern=0x0, ctx=0x0}) = CUDA_SUCCESS" },
	{ "cuStreamAddCallback", WORDS(0x700, 0x401000, 0x1, 0), NULL, 0, 0, 0,
	  "stream cuStreamAddCallback(hStream=0x700, callback=0x401000, userData=0x1, flags=0) = "
	  "CUDA_SUCCESS stream=0x700" },
};

/* ---- records ---- */

static struct trace_decoder *decoder;

static size_t build_extra(uint8_t *at, const struct extra *extra) {
	struct trace_extra header = { .argument = extra->argument, .when = extra->when };
	uint8_t *bytes = at + sizeof(header);

	for (const struct part *part = extra->parts; part->size || part->text; part++) {
		size_t n = part->text ? strlen(part->text) : part->size;

		memcpy(bytes + part->offset, part->text ? part->text : (const void *)&part->number,
		       n);
		if (header.size < part->offset + n)
			header.size = (uint16_t)(part->offset + n);
	}
	memcpy(at, &header, sizeof(header));
	return sizeof(header) + ((header.size + 7u) & ~7u);
}

static struct trace_call *build(const struct golden *golden) {
	struct trace_call *call = calloc(1, RECORD_MAX);
	uint8_t *at = (uint8_t *)(call + 1) + 8 * golden->n_words;

	assert_non_null(call);
	assert_non_null(function_by_name(golden->function));
	*call = (struct trace_call){ .record = { .type = TRACE_CALL,
						 .source = TRACE_SOURCE_SHIM,
						 .flags = golden->flags },
				     .start = 1000,
				     .end = 2000,
				     .pid = 42,
				     .tid = 43,
				     .sequence = 7,
				     .result = golden->result,
				     .function = function_by_name(golden->function)->number,
				     .n_arguments = (uint8_t)golden->n_words,
				     .n_extras = (uint8_t)golden->n_extras };
	if (golden->n_words > 0)
		memcpy(call->words, golden->words, 8 * golden->n_words);
	for (size_t i = 0; i < golden->n_extras; i++)
		at += build_extra(at, &golden->extras[i]);
	call->record.size = (uint32_t)(at - (uint8_t *)call);
	assert_true(call->record.size <= RECORD_MAX);
	return call;
}

/* ---- items as text ---- */

static size_t print_value(FILE *out, const struct trace_item *item, size_t i) {
	const struct trace_value *value = &item->values[i++];

	assert_true(i <= item->n_values);
	fprintf(out, "%s=%s", value->name, value->out ? "*" : "");
	switch (value->kind) {
	case VALUE_INT:
		fprintf(out, "%" PRId64, value->number);
		break;
	case VALUE_UINT:
		fprintf(out, "%" PRIu64, (uint64_t)value->number);
		break;
	case VALUE_HEX:
		fprintf(out, "0x%" PRIx64, (uint64_t)value->number);
		break;
	case VALUE_FLOAT:
		fprintf(out, "%g", value->real);
		break;
	case VALUE_SIZE:
		fprintf(out, "%" PRIu64 "B", (uint64_t)value->number);
		break;
	case VALUE_NAME:
		if (value->text)
			fputs(value->text, out);
		else
			fprintf(out, "#%" PRId64, value->number);
		break;
	case VALUE_STRING:
		fprintf(out, "\"%s\"", value->text);
		break;
	case VALUE_BYTES:
		fprintf(out, "<%s>", value->text);
		break;
	case VALUE_GROUP:
		fputc('{', out);
		for (int64_t member = 0; member < value->number; member++) {
			fputs(member ? ", " : "", out);
			i = print_value(out, item, i);
		}
		fputc('}', out);
		break;
	default:
		fail_msg("%s: a value of kind %d", item->name, value->kind);
	}
	return i;
}

static char *print_item(const struct trace_item *item) {
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	assert_non_null(out);
	fprintf(out, "%s %s(", item->class, item->name);
	for (size_t i = 0; i < item->n_values;) {
		fputs(i ? ", " : "", out);
		i = print_value(out, item, i);
	}
	fputc(')', out);
	if (item->result_name)
		fprintf(out, " = %s", item->result_name);
	else if (item->has_result)
		fprintf(out, " = %" PRId64, item->result);
	fputs(item->failed ? " failed" : "", out);
	fputs(item->open ? " open" : "", out);
	if (item->size)
		fprintf(out, " size=%" PRIu64, item->size);
	if (item->stream)
		fprintf(out, " stream=0x%" PRIx64, item->stream);
	if (item->context)
		fprintf(out, " context=0x%" PRIx64, item->context);
	if (item->device)
		fprintf(out, " device=%u", item->device);
	if (item->kernel)
		fprintf(out, " kernel=%s", item->kernel);
	fclose(out);
	return text;
}

/* Copies a record into memory that is exactly as large, so that ASan sees any read behind it. */
static char *decode(const struct trace_call *call, size_t size) {
	struct trace_call *copy = malloc(size);
	struct trace_item *item = malloc(sizeof(*item));
	char *text = NULL;

	assert_non_null(copy);
	assert_non_null(item);
	memcpy(copy, call, size);
	copy->record.size = (uint32_t)size;
	if (trace_record_is_whole(&copy->record)) {
		assert_true(trace_decoder_item(decoder, &copy->record, 1, item));
		text = print_item(item);
	}
	free(item);
	free(copy);
	return text;
}

static int setup(void **state) {
	static const char kernel[16] = "_Z3addPf";
	struct trace_name *name = calloc(1, sizeof(*name) + sizeof(kernel));

	assert_non_null(name);
	*name = (struct trace_name){ .record = { .size = sizeof(*name) + sizeof(kernel),
						 .type = TRACE_NAME },
				     .pid = 42,
				     .kind = TRACE_NAME_KERNEL,
				     .id = 0xf1 };
	memcpy(name->name, kernel, sizeof(kernel));
	assert_int_equal(trace_decoder_new(&decoder), 0);
	trace_decoder_learn(decoder, &name->record, 0);
	free(name);
	return 0;
}

static int teardown(void **state) {
	decoder = trace_decoder_free(decoder);
	return 0;
}

/* ---- tests ---- */

static void test_goldens(void **state) {
	for (size_t i = 0; i < sizeof(goldens) / sizeof(*goldens); i++) {
		struct trace_call *call = build(&goldens[i]);
		char *text = decode(call, call->record.size);

		assert_non_null(text);
		if (strcmp(text, goldens[i].expected) != 0)
			fail_msg("got\n%s\nnot\n%s", text, goldens[i].expected);
		free(text);
		free(call);
	}
}

/* A record that ends early, whatever its head says of words and extras: what is told of it is what
 * is there. */
static void test_cut(void **state) {
	for (size_t i = 0; i < sizeof(goldens) / sizeof(*goldens); i++) {
		struct trace_call *call = build(&goldens[i]);

		for (size_t size = sizeof(*call); size < call->record.size; size++) {
			struct trace_call *copy = malloc(size);
			struct trace_item item = { 0 };

			assert_non_null(copy);
			memcpy(copy, call, size);
			copy->record.size = (uint32_t)size;
			assert_false(trace_record_is_whole(&copy->record));
			assert_true(trace_decode_call(
				decoder, copy, &item)); /* although nobody asks for it then */
			free(print_item(&item));
			free(copy);
		}
		/* the same with a head that knows how many words are left */
		for (size_t n = 0; n < goldens[i].n_words; n++) {
			char *text;

			call->n_arguments = (uint8_t)n;
			call->n_extras = 0;
			text = decode(call, sizeof(*call) + 8 * n);
			assert_non_null(text);
			assert_true(strlen(text) < strlen(goldens[i].expected) + 32);
			free(text);
		}
		free(call);
	}
}

static void test_changed(void **state) {
	static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };

	for (size_t i = 0; i < sizeof(goldens) / sizeof(*goldens); i++) {
		struct trace_call *call = build(&goldens[i]);
		uint32_t size = call->record.size;

		for (size_t at = sizeof(call->record); at < size; at++) {
			uint8_t *byte = (uint8_t *)call + at, before = *byte;

			for (size_t j = 0; j < sizeof(values); j++) {
				*byte = values[j];
				free(decode(call, size));
			}
			*byte = before;
		}
		free(call);
	}
}

/* What no golden record has: more words and extras than the function has arguments, and functions
 * that nobody knows. */
static void test_odd(void **state) {
	const struct golden more = { "cuInit",
				     WORDS(1, 2, 3),
				     EXTRAS(RETURN(5, { 0, 8, 1 }), ENTRY(0, { 0, 4, 1 }),
					    RETURN(255, { 0, 8, 1 })),
				     0,
				     0,
				     "" };
	const struct golden twice = { "cuMemAlloc_v2",
				      WORDS(1, 2),
				      EXTRAS(RETURN(0, { 0, 8, 1 }), RETURN(0, { 0, 8, 2 })),
				      0,
				      0,
				      "" };
	const struct golden little = {
		"cuMemAlloc_v2", WORDS(1, 2), EXTRAS(RETURN(0, { 0, 3, 1 })), 0, 0, ""
	};
	const struct golden prefix = { "cuLaunchKernelEx",
				       WORDS(1, 2, 3, 4),
				       EXTRAS(ENTRY(0, { 0, 4, 1 }, { 4, 3, 1 })),
				       0,
				       0,
				       "" };
	static const char *const expected[] = {
		"device cuInit(Flags=1) = CUDA_SUCCESS",
		"memory cuMemAlloc_v2(dptr=*0x1, bytesize=2B) = CUDA_SUCCESS size=2",
		"memory cuMemAlloc_v2(dptr=0x1, bytesize=2B) = CUDA_SUCCESS size=2",
		"launch cuLaunchKernelEx(config={gridDimX=1}, f=0x2, kernelParams=0x3, extra=0x4) "
		"= CUDA_SUCCESS"
	};
	const struct golden *odd[] = { &more, &twice, &little, &prefix };

	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		struct trace_call *call = build(odd[i]);
		char *text = decode(call, call->record.size);

		assert_string_equal(text, expected[i]);
		free(text);
		if (i == 0) {
			call->function = TRACE_FUNCTION_DYNAMIC + 3;
			call->result = 2;
			text = decode(call, call->record.size);
			assert_non_null(strstr(text, "0x1, "));
			assert_non_null(strstr(text, "=0x3) = CUDA_ERROR_OUT_OF_MEMORY failed"));
			free(text);
		}
		free(call);
	}
}

static void test_launches(void **state) {
	static const struct {
		const char *name;
		bool launches;
	} cases[] = {
		{ "cuLaunchKernel", true },      { "cuLaunchKernelEx_ptsz", true },
		{ "cuGraphLaunch", true },       { "cuLaunchHostFunc", false },
		{ "cuMemcpyAsync", true },       { "cuMemsetD8_v2", true },
		{ "cuMemPrefetchAsync", false }, { "cuMemAlloc_v2", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(trace_call_launches(function_by_name(cases[i].name)->number),
				 cases[i].launches);
	assert_false(trace_call_launches(0));
	assert_false(trace_call_launches(UINT16_MAX));
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goldens),  cmocka_unit_test(test_cut),
		cmocka_unit_test(test_changed),  cmocka_unit_test(test_odd),
		cmocka_unit_test(test_launches),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
