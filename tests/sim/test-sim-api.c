/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of the CPU driver. The driver API: errors, handles, images, memory, capture, the
 * look-up of functions, the linker.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "daemon/worker/fatbin/fatbin.h"
#include "sim-cuda.h"

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)
#define FAILS(call, error) assert_int_equal(call, error)

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char counter_ptx[] = HEAD
	".visible .global .align 8 .u64 count;\n"
	".visible .const .align 4 .u32 step = 3;\n"
	"// an instrumented module looks like this: the program, a function that calls it, a call "
	"at the entry\n"
	".func (.param .b64 r) program (.param .b64 context)\n"
	"{ .reg .b64 %x; .reg .u32 %s; ld.const.u32 %s, [step]; cvt.u64.u32 %x, %s; "
	"red.global.add.u64 [count], %x;"
	" mov.u64 %x, 0; st.param.b64 [r], %x; ret; }\n"
	".func __probe_func__fill ()\n"
	"{ { .param .b64 context; .param .b64 r; st.param.b64 [context], 0; call.uni (r), program, "
	"(context); } ret; }\n"
	".visible .entry fill (.param .u64 out, .param .u32 value, .param .align 8 .b8 pair[16])\n"
	".maxntid 128, 1, 1\n"
	"{ .reg .b64 %a<3>; .reg .b32 %r<4>; call.uni __probe_func__fill; ld.param.u64 %a0, [out]; "
	"ld.param.u32 %r0, [value];"
	" ld.param.u32 %r3, [pair+12]; add.u32 %r0, %r0, %r3;"
	" mov.u32 %r1, %tid.x; mul.wide.u32 %a1, %r1, 4; add.s64 %a2, %a0, %a1; st.global.u32 "
	"[%a2], %r0; ret; }\n"
	".visible .entry spin (.param .u64 out) { .reg .b32 %r; .reg .pred %p; .shared .u32 flag; "
	"mov.u32 %r, %tid.x; setp.ne.u32 %p, %r, 0;"
	" @%p bra SET; WAIT: ld.volatile.shared.u32 %r, [flag]; setp.eq.u32 %p, %r, 0; @%p bra "
	"WAIT; ret; SET: mov.u32 %r, 1;"
	" st.volatile.shared.u32 [flag], %r; ret; }\n"
	".visible .entry hang () { .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x; setp.ne.u32 "
	"%p, %r, 0; @%p bra W; bar.sync 0, 64; ret;"
	" W: bar.sync 1, 64; ret; }\n"
	".visible .entry stop () { trap; }\n"
	".visible .entry deep () { call.uni again; ret; }\n"
	".func again () { .local .b8 room[64]; call.uni again; ret; }\n";
/* `again` is used before it is defined: PTX wants a prototype */
static char *with_prototype(void) {
	char *text = malloc(sizeof(counter_ptx) + 64);

	assert_non_null(text);
	sprintf(text, "%s.func again ();\n%s", HEAD, counter_ptx + strlen(HEAD));
	return text;
}

static CUcontext context;

static int setup(void **state) {
	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

static int teardown(void **state) {
	cuDevicePrimaryCtxReset_v2(0);
	return cuCtxSetCurrent(NULL);
}

static CUmodule load_counter(void) {
	char *text = with_prototype();
	CUmodule module = NULL;

	OK(cuModuleLoadData(&module, text));
	free(text);
	return module;
}

static uint64_t read_count(CUmodule module) {
	CUdeviceptr address;
	uint64_t value;
	size_t size;

	OK(cuModuleGetGlobal_v2(&address, &size, module, "count"));
	assert_int_equal(size, 8);
	OK(cuMemcpyDtoH_v2(&value, address, 8));
	return value;
}

static void test_probe(void **state) {
	CUmodule module = load_counter();
	uint32_t value = 40, pair[4] = { 0, 0, 0, 2 }, out[128];
	CUdeviceptr memory;
	void *arguments[] = { &memory, &value, pair };
	struct {
		CUdeviceptr out;
		uint32_t value, padding;
		uint32_t pair[4];
	} buffer = { .value = 1, .pair = { 0, 0, 0, 6 } };
	size_t size = sizeof(buffer), offset;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, "fill"));
	OK(cuMemAlloc_v2(&memory, sizeof(out)));
	OK(cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(out, memory, sizeof(out)));
	assert_int_equal(out[0], 42);
	assert_int_equal(out[127], 42);
	assert_int_equal(read_count(module), 3 * 256);
	buffer.out = memory;
	OK(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH_v2(out, memory, sizeof(out)));
	assert_int_equal(out[5], 7);
	OK(cuFuncGetParamInfo(function, 2, &offset, &size));
	assert_int_equal(offset, 16);
	assert_int_equal(size, 16);
	FAILS(cuFuncGetParamInfo(function, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(memory));
	OK(cuModuleUnload(module));
}

static void test_launch_errors(void **state) {
	CUmodule module = load_counter();
	uint32_t value = 1, pair[4] = { 0 };
	CUdeviceptr memory;
	void *arguments[] = { &memory, &value, pair }, *holes[] = { &memory, NULL, pair };
	CUfunction function;
	int attribute;

	OK(cuMemAlloc_v2(&memory, 4096));
	FAILS(cuModuleGetFunction(&function, module, "program"), CUDA_ERROR_NOT_FOUND);
	FAILS(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&function, module, "fill"));
	FAILS(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 129, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60000, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, holes, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuLaunchKernel((CUfunction)(void *)module, 1, 1, 1, 1, 1, 1, 0, NULL, arguments,
			     NULL),
	      CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)(void *)module, arguments,
			     NULL),
	      CUDA_ERROR_INVALID_HANDLE);
	OK(cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	assert_int_equal(attribute, 128);
	OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60000, NULL, arguments, NULL));
	OK(cuCtxSynchronize());
	OK(cuModuleUnload(module));
	FAILS(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
	      CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemFree_v2(memory));
}

/* A kernel that fails spoils the context: the launch is fine, everything after it is not. */
static void kernel_fails(const char *name, unsigned int threads, CUresult error) {
	CUmodule module = load_counter();
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, name));
	OK(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, NULL, NULL, NULL));
	FAILS(cuCtxSynchronize(), error);
	FAILS(cuModuleUnload(module), error);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuModuleUnload(module));
}

static void test_kernel_errors(void **state) {
	CUmodule module = load_counter();
	uint32_t value = 1, pair[4] = { 0 };
	CUdeviceptr memory;
	void *arguments[] = { &memory, &value, pair };
	const CUdeviceptr bad[] = { 0, 4, 0xdead0000, UINT64_MAX - 3, 0 };
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, "fill"));
	for (int n = 0; n < 6; n++) {
		CUresult error =
			n == 5 ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
		CUdeviceptr room;

		OK(cuMemAlloc_v2(&room, 400));
		memory = n == 4 ? room : n == 5 ? room + 2 : bad[n]; /* 4: one element too many */
		OK(cuLaunchKernel(function, 1, 1, 1, n == 4 ? 101 : 1, 1, 1, 0, NULL, arguments,
				  NULL));
		FAILS(cuCtxSynchronize(), error);
		FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), error);
		OK(cuDevicePrimaryCtxReset_v2(0));
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuMemFree_v2(room));
	}
	OK(cuModuleUnload(module));
	kernel_fails("hang", 64, CUDA_ERROR_LAUNCH_FAILED);
	kernel_fails("stop", 1, CUDA_ERROR_LAUNCH_FAILED);
	kernel_fails("deep", 1, CUDA_ERROR_HARDWARE_STACK_ERROR);
}

/* Frames that do not fit in the usual stack: only recursion fills a stack. */
static void test_large_frames(void **state) {
	static const char text[] =
		HEAD ".func last () { .local .b8 room[200000]; ret; }\n"
		     ".func first () { .local .b8 room[200000]; call.uni last; ret; }\n"
		     ".visible .entry chain () { call.uni first; ret; }\n";
	CUmodule module;
	CUfunction function;

	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&function, module, "chain"));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
	OK(cuModuleUnload(module));
}

/* A thread that spins for another one of its block gets what it waits for. */
static void test_spin(void **state) {
	CUmodule module = load_counter();
	CUdeviceptr none = 0;
	void *arguments[] = { &none };
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, "spin"));
	OK(cuLaunchKernel(function, 1, 1, 1, 2, 1, 1, 0, NULL, arguments, NULL));
	OK(cuCtxSynchronize());
	OK(cuModuleUnload(module));
}

/* --- images --- */

static void *make_fatbin(bool with_ptx, bool with_new_ptx, enum fatbin_compression compression,
			 size_t *size) {
	struct fatbin_spec spec = { .kind = FATBIN_KIND_PTX,
				    .isa_major = 7,
				    .sm = 70,
				    .flags = FATBIN_FLAG_64BIT,
				    .compression = compression };
	char *text = with_prototype();
	struct fatbin_writer writer;
	uint8_t *data;

	OK(fatbin_writer_init(&writer));
	if (with_ptx)
		OK(fatbin_writer_add_ptx(&writer, &spec, text, strlen(text)));
	spec.sm = 120;
	if (with_new_ptx)
		OK(fatbin_writer_add_ptx(&writer, &spec, "nonsense", 8));
	spec.kind = FATBIN_KIND_ELF;
	spec.sm = 90;
	spec.payload = "\177ELF machine code";
	spec.payload_size = 16;
	OK(fatbin_writer_add(&writer, &spec));
	OK(fatbin_writer_finish(&writer, &data, size));
	fatbin_writer_deinit(&writer);
	free(text);
	return data;
}

static void test_images(void **state) {
	struct {
		uint32_t magic, version;
		const void *data, *filename;
	} wrapper = { FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
	static const enum fatbin_compression compressions[] = { FATBIN_RAW, FATBIN_LZ4,
								FATBIN_ZSTD };
	CUfunction function;
	CUmodule module;
	CUlibrary library;
	CUkernel kernel, kernels[8];
	unsigned int count;
	size_t size;
	void *image;

	for (int n = 0; n < 3; n++) {
		image = make_fatbin(true, true, compressions[n], &size);
		OK(cuModuleLoadFatBinary(&module, image));
		OK(cuModuleGetFunction(&function, module, "fill"));
		OK(cuModuleUnload(module));
		wrapper.data = image;
		OK(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
		free(image);
	}
	OK(cuLibraryGetKernel(&kernel, library, "fill"));
	OK(cuLibraryGetKernelCount(&count, library));
	assert_int_equal(count, 5);
	OK(cuLibraryEnumerateKernels(kernels, 8, library));
	assert_ptr_equal(kernels[0], kernel);
	OK(cuKernelGetFunction(&function, kernel));
	OK(cuLibraryGetModule(&module, library));
	FAILS(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	OK(cuLibraryUnload(library));
	FAILS(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
	image = make_fatbin(false, true, FATBIN_RAW, &size);
	FAILS(cuModuleLoadData(&module, image), CUDA_ERROR_NO_BINARY_FOR_GPU);
	free(image);
	FAILS(cuModuleLoadData(&module, "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0"),
	      CUDA_ERROR_NO_BINARY_FOR_GPU);
	FAILS(cuModuleLoadData(&module, "\1\2\3\4garbage here"), CUDA_ERROR_INVALID_IMAGE);
	FAILS(cuModuleLoadData(&module, "this is no PTX at all"), CUDA_ERROR_INVALID_PTX);
	FAILS(cuModuleLoadData(&module, ".version 99.0\n.target sm_70\n"),
	      CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	FAILS(cuModuleLoadData(&module, ".version 8.0\n.target sm_99\n.address_size 64\n"),
	      CUDA_ERROR_NO_BINARY_FOR_GPU);
	FAILS(cuModuleLoadData(NULL, counter_ptx), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuModuleLoad(&module, "/nowhere"), CUDA_ERROR_FILE_NOT_FOUND);
}

static void test_linker(void **state) {
	static char caller[] =
		HEAD ".extern .global .u32 shared_value;\n.extern .func (.param .b32 r) get ();\n"
		     ".visible .entry run (.param .u64 out) { .reg .b64 %a; .reg .b32 %r<3>; "
		     ".param .b32 v; ld.param.u64 %a, [out];"
		     " call (v), get, (); ld.param.b32 %r0, [v]; ld.global.u32 %r1, "
		     "[shared_value]; add.u32 %r2, %r0, %r1; st.global.u32 [%a], %r2; ret; }\n";
	static char callee[] = HEAD ".visible .global .u32 shared_value = 100;\n"
				    ".visible .func (.param .b32 r) get () { .reg .b32 %x; mov.u32 "
				    "%x, 11; st.param.b32 [r], %x; ret; }\n";
	CUlinkState link;
	CUmodule module;
	CUfunction function;
	CUdeviceptr out;
	void *image, *arguments[] = { &out };
	uint32_t result;
	size_t size;

	FAILS(cuModuleLoadData(&module, caller), CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
	OK(cuLinkCreate_v2(0, NULL, NULL, &link));
	OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, caller, sizeof(caller), "caller", 0, NULL,
			    NULL));
	OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, callee, sizeof(callee), "callee", 0, NULL,
			    NULL));
	OK(cuLinkComplete(link, &image, &size));
	OK(cuModuleLoadData(&module, image));
	OK(cuLinkDestroy(link));
	OK(cuModuleGetFunction(&function, module, "run"));
	OK(cuMemAlloc_v2(&out, 4));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(&result, out, 4));
	assert_int_equal(result, 111);
	OK(cuMemFree_v2(out));
	OK(cuModuleUnload(module));
}

/* --- memory --- */

static void test_memory(void **state) {
	CUdeviceptr memory, device, base;
	unsigned int type, flags;
	size_t size, before, after, total;
	uint32_t words[4] = { 0 };
	char *page;

	OK(cuMemGetInfo_v2(&before, &total));
	OK(cuMemAlloc_v2(&memory, 1000));
	OK(cuMemGetInfo_v2(&after, &total));
	assert_int_equal(before - after, 1000);
	FAILS(cuMemAlloc_v2(&device, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemAlloc_v2(&device, (size_t)1 << 40), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemsetD32_v2(memory, 0x01020304, 250));
	FAILS(cuMemsetD32_v2(memory, 0, 251), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemsetD8Async(memory + 4, 7, 1, NULL));
	OK(cuMemsetD16_v2(memory + 8, 0xabcd, 1));
	OK(cuMemcpyDtoH_v2(words, memory, 12));
	assert_int_equal(words[0], 0x01020304);
	assert_int_equal(words[1], 0x01020307);
	assert_int_equal(words[2], 0x0102abcd);
	FAILS(cuMemcpyDtoH_v2(words, memory + 996, 8), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemcpyHtoD_v2(12, words, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyDtoD_v2(memory + 500, memory, 12));
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)words, memory + 508, 4));
	assert_int_equal(words[0], 0x0102abcd);
	OK(cuMemGetAddressRange_v2(&base, &size, memory + 17));
	assert_true(base == memory && size == 1000);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	OK(cuMemFree_v2(memory));
	FAILS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory),
	      CUDA_ERROR_INVALID_VALUE);

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	OK(cuMemHostRegister_v2(page, 8192,
				CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	FAILS(cuMemHostRegister_v2(page + 4096, 4096, 0),
	      CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostGetDevicePointer_v2(&device, page + 8, 0));
	assert_true(device == (CUdeviceptr)(uintptr_t)(page + 8));
	OK(cuMemHostGetFlags(&flags, page));
	assert_int_equal(flags, 3);
	OK(cuMemHostUnregister(page));
	FAILS(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	munmap(page, 8192);
	FAILS(cuMemHostRegister_v2(page, 8192, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostAlloc((void **)&page, 100, CU_MEMHOSTALLOC_PORTABLE));
	OK(cuMemFreeHost(page));
}

/* --- capture --- */

static void *disturb(void *userdata) {
	CUdeviceptr memory;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	cuCtxSetCurrent(context);
	if (userdata)
		cuThreadExchangeStreamCaptureMode(&mode);
	return (void *)(uintptr_t)cuMemAlloc_v2(&memory, 64);
}

static void *synchronize(void *userdata) {
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	cuCtxSetCurrent(context);
	cuThreadExchangeStreamCaptureMode(&mode);
	return (void *)(uintptr_t)cuCtxSynchronize();
}

static void *unload(void *module) {
	cuCtxSetCurrent(context);
	return (void *)(uintptr_t)cuModuleUnload(module);
}

/* Who waits for the context ends its captures in all modes; who unloads, those of the global one.
 */
static void test_capture_ends(void **state) {
	CUstream stream;
	CUgraph graph;
	pthread_t thread;
	void *result;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
	     mode++) {
		CUmodule module = load_counter();

		OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
		assert_int_equal(pthread_create(&thread, NULL, synchronize, NULL), 0);
		pthread_join(thread, &result);
		assert_int_equal((uintptr_t)result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
		assert_int_equal(pthread_create(&thread, NULL, unload, module), 0);
		pthread_join(thread, &result);
		assert_int_equal((uintptr_t)result, CUDA_SUCCESS);
		assert_int_equal(cuStreamEndCapture(stream, &graph),
				 mode == CU_STREAM_CAPTURE_MODE_GLOBAL
					 ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
					 : CUDA_SUCCESS);
	}
	OK(cuStreamDestroy_v2(stream));
}

static void test_capture(void **state) {
	CUmodule module = load_counter();
	uint32_t value = 5, pair[4] = { 0 }, out = 0;
	CUdeviceptr memory, other;
	void *arguments[] = { &memory, &value, pair }, *result;
	CUDA_KERNEL_NODE_PARAMS params;
	CUstreamCaptureStatus status;
	CUgraphNode nodes[4];
	CUgraphExec exec;
	CUfunction function;
	CUstream stream;
	CUgraph graph;
	size_t count = 4;
	pthread_t thread;

	OK(cuModuleGetFunction(&function, module, "fill"));
	OK(cuMemAlloc_v2(&memory, 64));
	OK(cuMemsetD8_v2(memory, 0, 64));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	OK(cuMemsetD32Async(memory + 4, 9, 1, stream));
	value = 6; /* too late */
	OK(cuStreamIsCapturing(stream, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(pthread_create(&thread, NULL, disturb, &value), 0);
	pthread_join(thread, &result);
	assert_int_equal((uintptr_t)result, CUDA_SUCCESS); /* relaxed: harmless */
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuMemcpyDtoH_v2(&out, memory, 4));
	assert_int_equal(out, 0); /* nothing ran yet */
	OK(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 2);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuMemcpyDtoH_v2(&out, memory, 4));
	assert_int_equal(out, 5);
	OK(cuGraphKernelNodeGetParams_v2(nodes[0], &params));
	assert_int_equal(*(uint32_t *)params.kernelParams[1], 5);
	params.kernelParams = arguments;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params));
	OK(cuGraphDestroy(graph)); /* which the executable one has forgotten then */
	FAILS(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuMemcpyDtoH_v2(&out, memory, 4));
	assert_int_equal(out, 6);
	assert_int_equal(read_count(module), 6);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuGraphExecDestroy(exec));
	FAILS(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);

	/* a careless call spoils a capture: its own thread's, and any thread's in the global mode
	 */
	for (int n = 0; n < 2; n++) {
		OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		if (n) {
			FAILS(cuMemAlloc_v2(&other, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		} else {
			assert_int_equal(pthread_create(&thread, NULL, disturb, NULL), 0);
			pthread_join(thread, &result);
			assert_int_equal((uintptr_t)result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		}
		OK(cuStreamIsCapturing(stream, &status));
		assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	FAILS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
	      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamDestroy_v2(stream));
	FAILS(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemFree_v2(memory));
	OK(cuModuleUnload(module));
}

/* --- the rest --- */

static void count_ended(void *userdata) {
	++*(int *)userdata;
}

/* User objects end with the last graph or executable graph that has them; nodes can be destroyed.
 */
static void test_graph_ends(void **state) {
	CUgraphNode nodes[2];
	CUuserObject object;
	size_t count = 2;
	CUgraphExec exec;
	CUgraph graph;
	int ended = 0;

	(void)state;
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&nodes[0], graph, NULL, 0));
	OK(cuGraphAddEmptyNode(&nodes[1], graph, &nodes[0], 1));
	FAILS(cuUserObjectCreate(&object, &ended, count_ended, 0, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectCreate(&object, &ended, count_ended, 2, 1));
	OK(cuGraphRetainUserObject(graph, object, 1, 1));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuUserObjectRelease(object, 1));
	OK(cuGraphDestroyNode(nodes[0]));
	FAILS(cuGraphDestroyNode(nodes[0]), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 1);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuGraphDestroy(graph));
	FAILS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(ended, 0);
	OK(cuGraphExecDestroy(exec));
	assert_int_equal(ended, 1);
}

static void test_proc_address(void **state) {
	CUdriverProcAddressQueryResult status;
	void *plain, *thread, *old;

	OK(cuGetProcAddress_v2("cuLaunchKernel", &plain, 13000, CU_GET_PROC_ADDRESS_DEFAULT,
			       &status));
	assert_ptr_equal(plain, (void *)cuLaunchKernel);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress_v2("cuLaunchKernel", &thread, 13000,
			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	assert_non_null(thread);
	OK(cuGetProcAddress_v2("cuCtxCreate", &plain, 13000, 0, NULL));
	OK(cuGetProcAddress_v2("cuCtxCreate", &old, 11000, 0, NULL));
	assert_ptr_equal(plain, (void *)cuCtxCreate_v4);
	assert_ptr_not_equal(old, plain);
	OK(cuGetProcAddress_v2("cuMemAlloc", &plain, 12000, 0, &status));
	assert_ptr_equal(plain, (void *)cuMemAlloc_v2);
	OK(cuGetProcAddress_v2("cuLibraryLoadData", &plain, 11000, 0, &status));
	assert_null(plain);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(cuGetProcAddress_v2("cuFlyToTheMoon", &plain, 13000, 0, &status));
	assert_null(plain);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress_v2("", &plain, 13000, 0, &status));
	assert_null(plain);
	FAILS(cuGetProcAddress_v2(NULL, &plain, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

static void test_device(void **state) {
	const char *text;
	char name[64];
	int value, major, minor;
	CUdevice device;
	CUcontext own, popped;
	unsigned long long first, second;

	OK(cuDeviceGetName(name, sizeof(name), 0));
	assert_string_equal(name, "gpuprobe CPU driver (no GPU)");
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	assert_int_equal(value, 8);
	OK(cuDeviceComputeCapability(&major, &minor, 0));
	assert_int_equal(major * 10 + minor, 90);
	FAILS(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
	OK(cuGetErrorName(CUDA_ERROR_INVALID_PTX, &text));
	assert_string_equal(text, "CUDA_ERROR_INVALID_PTX");
	FAILS(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxCreate_v4(&own, NULL, 0, 0));
	OK(cuCtxGetId(own, &first));
	OK(cuCtxGetId(context, &second));
	assert_true(first != second);
	OK(cuCtxPopCurrent_v2(&popped));
	assert_ptr_equal(popped, own);
	OK(cuCtxDestroy_v2(own));
	FAILS(cuCtxSetCurrent(own), CUDA_ERROR_INVALID_CONTEXT);
	FAILS(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(NULL));
	FAILS(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(context));
}

/* A context that was attached twice is detached twice; a primary one that is retained anew has
 * another id. */
static void test_context_ends(void **state) {
	unsigned long long first, second;
	CUcontext own, again, current;
	CUstream stream;

	OK(cuCtxCreate_v4(&own, NULL, 0, 0));
	OK(cuStreamCreate(&stream, 0));
	OK(cuCtxAttach(&again, 0));
	assert_ptr_equal(again, own);
	OK(cuCtxDetach(own));
	OK(cuStreamSynchronize(stream));
	OK(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, own);
	FAILS(cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxDetach(own));
	OK(cuCtxGetCurrent(&current));
	assert_ptr_not_equal(current, own);
	OK(cuCtxSetCurrent(context));
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);

	OK(cuStreamCreate(&stream, 0));
	OK(cuCtxGetId(context, &first));
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuStreamSynchronize(stream));
	OK(cuCtxGetId(context, &second));
	assert_true(first == second);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	FAILS(cuCtxGetId(context, &second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	assert_ptr_equal(again, context);
	OK(cuCtxGetId(context, &second));
	assert_true(first != second);
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

static uint64_t count_in(CUlibrary library, CUdeviceptr *where) {
	uint64_t count;
	size_t size;

	OK(cuLibraryGetGlobal(where, &size, library, "count"));
	OK(cuMemcpyDtoH_v2(&count, *where, sizeof(count)));
	return count;
}

/* A managed variable of a library is asked for in a way of its own, and is one in all contexts. */
static void test_managed(void **state) {
	static const char text[] =
		".version 7.0\n.target sm_70\n.address_size 64\n.visible .global "
		".attribute(.managed) .u32 shared = 7;\n.visible .global .u32 own;\n";
	CUdeviceptr first, second;
	CUcontext other;
	CUlibrary library;
	CUmodule module;
	size_t size;

	OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetManaged(&first, &size, library, "shared"));
	assert_int_equal(size, 4);
	assert_int_equal(*(uint32_t *)(uintptr_t)first, 7);
	FAILS(cuLibraryGetGlobal(&second, &size, library, "shared"), CUDA_ERROR_NOT_FOUND);
	FAILS(cuLibraryGetManaged(&second, &size, library, "own"), CUDA_ERROR_NOT_FOUND);
	FAILS(cuLibraryGetManaged(&second, &size, library, "none"), CUDA_ERROR_NOT_FOUND);
	OK(cuCtxCreate_v4(&other, NULL, 0, 0));
	OK(cuLibraryGetManaged(&second, &size, library, "shared"));
	assert_true(first == second);
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(context));
	OK(cuLibraryUnload(library));
	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetGlobal_v2(&second, &size, module, "shared"));
	assert_true(first != second);
	OK(cuModuleUnload(module));
}

/* Launches `fill` with 32 threads. */
static CUresult fill(CUfunction function, CUstream stream, CUdeviceptr out,
		     CUlaunchAttribute *attribute, unsigned int blocks) {
	uint32_t value = 0, pair[4] = { 0 };
	void *parameters[] = { &out, &value, pair };
	const CUlaunchConfig config = { .gridDimX = blocks,
					.gridDimY = 1,
					.gridDimZ = 1,
					.blockDimX = 32,
					.blockDimY = 1,
					.blockDimZ = 1,
					.hStream = stream,
					.attrs = attribute,
					.numAttrs = attribute != NULL };

	return cuLaunchKernelEx(&config, function, parameters, NULL);
}

/* A library has variables of its own in each context; functions are of one. */
static void test_library_contexts(void **state) {
	char *text = with_prototype();
	CUdeviceptr here, there, out;
	CUfunction functions[2];
	CUstream streams[2];
	CUcontext other;
	CUlibrary library;
	CUkernel kernel;
	int value;

	OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	free(text);
	OK(cuLibraryGetKernel(&kernel, library, "fill"));
	OK(cuMemAlloc_v2(&out, 128));
	OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
	OK(cuKernelGetFunction(&functions[0], kernel));
	assert_int_equal(count_in(library, &here), 0);
	OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, kernel, 0));
	OK(cuCtxCreate_v4(&other, NULL, 0, 0));
	OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	OK(cuKernelGetFunction(&functions[1], kernel));
	assert_ptr_not_equal(functions[0], functions[1]);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			      functions[1]));
	assert_int_equal(value, 60000);
	OK(fill((CUfunction)(void *)kernel, streams[1], out, NULL, 1));
	OK(fill(functions[1], streams[1], out, NULL, 1));
	OK(fill((CUfunction)(void *)kernel, streams[0], out, NULL, 1));
	FAILS(fill(functions[1], streams[0], out, NULL, 1), CUDA_ERROR_INVALID_HANDLE);
	FAILS(fill(functions[0], streams[1], out, NULL, 1), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(count_in(library, &there), 2 * 32 * 3);
	assert_true(here != there);
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(context));
	assert_int_equal(count_in(library, &here), 32 * 3);
	FAILS(fill(functions[1], streams[0], out, NULL, 1), CUDA_ERROR_INVALID_HANDLE);
	OK(fill(functions[0], streams[0], out, NULL, 1));
	OK(cuLibraryUnload(library));
	OK(cuMemFree_v2(out));
}

/* Attributes of launches; and a green context has room for as many blocks as its multiprocessors
 * have. */
static void test_attributes(void **state) {
	CUlaunchAttribute cooperative = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE },
			  cluster = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };
	CUdevResource all, some;
	CUdevResourceDesc description;
	unsigned int groups = 1;
	CUfunction function;
	CUcontext current;
	CUdeviceptr out;
	CUstream stream;
	CUmodule module;
	CUgreenCtx green;
	int most, clusters;

	module = load_counter();
	OK(cuMemAlloc_v2(&out, 128));
	OK(cuModuleGetFunction(&function, module, "fill"));
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&most, function, 32, 0));
	cooperative.value.cooperative = 1;
	OK(fill(function, NULL, out, &cooperative, (unsigned)most * 8));
	FAILS(fill(function, NULL, out, &cooperative, (unsigned)most * 8 + 1),
	      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	cluster.value.clusterDim.x = 2;
	cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	OK(fill(function, NULL, out, &cluster, 4));
	FAILS(fill(function, NULL, out, &cluster, 3), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	cluster.value.clusterDim.x = 0;
	FAILS(fill(function, NULL, out, &cluster, 4), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	cluster.id = (CUlaunchAttributeID)99;
	FAILS(fill(function, NULL, out, &cluster, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuOccupancyMaxActiveClusters(
		&clusters, function,
		&(CUlaunchConfig){ .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1 }));
	assert_int_equal(clusters, 0); /* without clusters, as on a GPU */

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	assert_int_equal(all.sm.smCount, 8);
	FAILS(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, 9),
	      CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	OK(cuDevSmResourceSplitByCount(&some, &groups, &all, &all, 0, 3));
	assert_true(groups == 1 && some.sm.smCount == 4 && all.sm.smCount == 4);
	OK(cuDevResourceGenerateDesc(&description, &some, 1));
	OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	OK(cuStreamGetCtx(stream, &current));
	OK(cuCtxGetDevResource(current, &some, CU_DEV_RESOURCE_TYPE_SM));
	assert_int_equal(some.sm.smCount, 4);
	FAILS(cuCtxDestroy_v2(current), CUDA_ERROR_INVALID_CONTEXT);
	FAILS(fill(function, stream, out, NULL, 1), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxSetCurrent(current));
	module = load_counter();
	OK(cuModuleGetFunction(&function, module, "fill"));
	OK(fill(function, stream, out, &cooperative, (unsigned)most * 4));
	FAILS(fill(function, stream, out, &cooperative, (unsigned)most * 4 + 1),
	      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	OK(cuStreamGetCtx_v2(stream, &current, &green));
	assert_ptr_equal(current, context);
	OK(cuGreenCtxDestroy(green));
	OK(cuCtxSetCurrent(context));
	free(description);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_probe, setup, teardown),
		cmocka_unit_test_setup_teardown(test_launch_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kernel_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_large_frames, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spin, setup, teardown),
		cmocka_unit_test_setup_teardown(test_images, setup, teardown),
		cmocka_unit_test_setup_teardown(test_linker, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_capture, setup, teardown),
		cmocka_unit_test_setup_teardown(test_capture_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_graph_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_context_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_library_contexts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_managed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_proc_address, setup, teardown),
		cmocka_unit_test_setup_teardown(test_device, setup, teardown),
	};

	if (cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED) /* before any cuInit() */
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
