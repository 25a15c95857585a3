/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library to preload, as sharing layers for GPUs
 * are. It counts launches and passes them on: by RTLD_NEXT, or (INTERPOSE=handle) by a handle of
 * the driver.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../sim/sim-cuda.h"

static _Atomic int launches;
static __thread int depth;

__attribute__((visibility("default"))) CUresult cuLaunchKernel(CUfunction f, unsigned int gx,
							       unsigned int gy, unsigned int gz,
							       unsigned int bx, unsigned int by,
							       unsigned int bz, unsigned int shared,
							       CUstream stream, void **arguments,
							       void **extra) {
	const char *how = getenv("INTERPOSE");
	__typeof__(cuLaunchKernel) *next;
	CUresult result;

	*(void **)&next =
		dlsym(how ? dlopen("libcuda.so.1", RTLD_NOW) : RTLD_NEXT, "cuLaunchKernel");
	launches++;
	if (!next || ++depth > 3) /* it came back to us */
		return CUDA_ERROR_UNKNOWN;
	result = next(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
	depth--;
	return result;
}

__attribute__((destructor)) static void end(void) {
	printf("interposed launches: %d\n", launches);
	fflush(stdout);
}
