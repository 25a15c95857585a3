/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library to preload, as layers that share GPUs
 * are (HAMi and its like): functions of the driver under their names, among them
 * cuGetProcAddress_v2, and with -DS_LAYER_DLSYM a dlsym of its own. It finds the driver's by libc's
 * dlsym and a handle.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/sim-cuda.h"

#if defined(__x86_64__)
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"
#endif
#define EXPORT __attribute__((visibility("default")))

static _Atomic int calls;
static _Thread_local int depth;

static void *real_dlsym(void *handle, const char *name) {
	void *(*real)(void *, const char *);

	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", VERSION);
	return real(handle, name);
}

#define LAYER(name, parameters, arguments)                                              \
	EXPORT CUresult name parameters {                                               \
		__typeof__(name) *next;                                                 \
		CUresult result;                                                        \
                                                                                        \
		*(void **)&next = real_dlsym(dlopen("libcuda.so.1", RTLD_LAZY), #name); \
		calls++;                                                                \
		if (!next || ++depth > 1) /* it came back to us */                      \
			abort();                                                        \
		result = next arguments;                                                \
		depth--;                                                                \
		return result;                                                          \
	}
LAYER(cuInit, (unsigned int flags), (flags))
LAYER(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size), (pointer, size))
LAYER(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
LAYER(cuLaunchKernel,
      (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
       unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters,
       void **extra),
      (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))

static void *find_own(const char *name) {
#define OWN(function)                 \
	if (!strcmp(name, #function)) \
		return (void *)function;
	OWN(cuInit)
	OWN(cuMemAlloc_v2)
	OWN(cuModuleLoadData)
	OWN(cuLaunchKernel)
	OWN(cuGetProcAddress_v2)
	return NULL;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
				    cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
	__typeof__(cuGetProcAddress_v2) *next;
	CUresult result;
	void *own = find_own(strcmp(symbol, "cuMemAlloc") ? symbol : "cuMemAlloc_v2");

	*(void **)&next = real_dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2");
	calls++;
	result = next(symbol, function, version, flags, status);
	if (result == CUDA_SUCCESS && own)
		*function = own;
	return result;
}

#ifdef S_LAYER_DLSYM
EXPORT void *dlsym(void *handle, const char *name) {
	void *own = find_own(name);

	return own ? own : real_dlsym(handle, name);
}
#endif

static __attribute__((destructor)) void end(void) {
	printf("calls of the layer: %d\n", calls);
	fflush(stdout);
}
