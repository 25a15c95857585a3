/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libcuda.so.1 for tests of tracing (shim/tests/test-trace.py). Functions say whether they got
 * what tests/targets/s-trace.c gives them: each is called with known values.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mock.h"

#define NOT_FOUND 500
#define NOT_READY 600
#define WRONG 999
#define LAUNCH_KERNEL 307 /* CUPTI's numbers */
#define CTX_SYNCHRONIZE 17
#define ALIGNED (((uintptr_t)__builtin_frame_address(0) & 15) == 0)

FUNCTION(cuInit, unsigned flags) {
	return 0;
}

FUNCTION(cuDriverGetVersion, int *version) {
	*version = 13000;
	return 0;
}

static __thread void *current = (void *)0x1000;

FUNCTION(cuCtxGetCurrent, void **context) {
	*context = current;
	return 0;
}

FUNCTION(cuCtxSetCurrent, void *context) {
	current = context;
	return 0;
}

FUNCTION(cuMemAlloc_v2, uint64_t *pointer, size_t size) {
	if (!size)
		return 1;
	*pointer = 0x7000000 + size;
	errno = 0; /* as a driver does */
	return 0;
}

FUNCTION(cuMemFree_v2, uint64_t pointer) {
	return 0;
}

FUNCTION(cuEventQuery, void *event) {
	return gpu_query(event);
}

/* It calls itself through its own exports. */
FUNCTION(cuCtxSynchronize, void) {
	uint32_t correlation = gpu_call_begin(CTX_SYNCHRONIZE);
	void *context;

	gpu_wait();
	gpu_call_end(CTX_SYNCHRONIZE, correlation);
	return gpu_failed() ? gpu_failed() : cuCtxGetCurrent(&context);
}

/* ---- arguments of all sorts ----------------------------------------------------------------- */

static void moment(unsigned milliseconds) {
	if (milliseconds)
		usleep(milliseconds * 1000);
}

/* A slow one runs for gx milliseconds; the call takes gy before it has reached its stream, less
 * one, and gz behind that. */
FUNCTION(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	 unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
	uint32_t correlation;

	if (f == (void *)0x5000 &&
	    !(gx == 1 && gy == 2 && gz == 3 && bx == 4 && by == 5 && bz == 6 && shared == 7 &&
	      stream == (void *)8 && arguments == (void *)9 && extra == (void *)10 && ALIGNED))
		return WRONG;
	correlation = gpu_call_begin(LAUNCH_KERNEL);
	if (f >= SLOW) {
		moment(gy - 1);
		gpu_launch_long(stream, gx * UINT64_C(1000000), correlation, "a slow kernel", 0);
		moment(gz - 1);
	} else {
		gpu_launch(stream, correlation, "a kernel", 0);
	}
	gpu_call_end(LAUNCH_KERNEL, correlation);
	return 0;
}

FUNCTION(cuLaunchKernel_ptsz, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	 unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
	return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream ? stream : (void *)2,
			      arguments, extra);
}

struct handle {
	char bytes[64];
};

FUNCTION(cuIpcOpenMemHandle_v2, uint64_t *pointer, struct handle handle, unsigned flags) {
	for (int i = 0; i < 64; i++)
		if (handle.bytes[i] != i)
			return WRONG;
	*pointer = flags;
	return ALIGNED ? 0 : WRONG;
}

FUNCTION(cuTexRefSetMipmapLevelClamp, void *reference, float least, float most) {
	return reference == (void *)3 && least == 1.5f && most == 2.5f ? 0 : WRONG;
}

/* A function of a driver that is newer than the shim. */
FUNCTION(cuFutureFunction, int a, double b, long c, float d, long e, long f, long g, double h,
	 long i, long j, long k) {
	return a == 1 && b == 2.5 && c == 3 && d == 4.5f && e == 5 && f == 6 && g == 7 &&
			       h == 8.5 && i == 9 && j == 10 && k == 11 && ALIGNED
		       ? 0
		       : WRONG;
}

FUNCTION(cuFutureFunction_v2, int a) {
	return a == 2 ? 0 : WRONG;
}

/* ---- modules -------------------------------------------------------------------------------- */

FUNCTION(cuModuleGetFunction, void **function, void *module, const char *name) {
	if (!strcmp(name, "nothing"))
		return NOT_FOUND;
	*function = (void *)(0x5000 + strlen(name) - strlen("kernel"));
	return 0;
}

FUNCTION(cuModuleUnload, void *module) {
	return 0;
}

#ifndef OLD_DRIVER
FUNCTION(cuFuncGetName, const char **name, void *function) {
	static const char *const names[] = { "kernel", "kernel_", "kernel__" };
	uintptr_t number = (uintptr_t)function - 0x5000;

	errno = EAGAIN;
	pthread_testcancel();
	if (function == (void *)0x5f00)
		raise(SIGUSR1); /* one could come just then */
	if (number >= 3)
		return 400;
	*name = names[number];
	return 0;
}

FUNCTION(cuKernelGetName, const char **name, void *kernel) {
	*name = "of a CUkernel";
	return 0;
}
#endif

/* ---- callbacks ------------------------------------------------------------------------------ */

/* In the thread of the caller. */
FUNCTION(cuLaunchHostFunc, void *stream, void (*function)(void *), void *data) {
	function(data);
	return 0;
}

struct callback {
	void (*function)(void *);
	void *data;
};

static void *call_back(void *argument) {
	struct callback *callback = argument;

	callback->function(callback->data);
	free(callback);
	return NULL;
}

/* In a thread of the driver's. */
FUNCTION(cuStreamAddCallback, void *stream, void (*function)(void *), void *data, unsigned flags) {
	struct callback *callback = malloc(sizeof(*callback));
	pthread_t thread;

	*callback = (struct callback){ function, data };
	pthread_create(&thread, NULL, call_back, callback);
	pthread_join(thread, NULL);
	return 0;
}
