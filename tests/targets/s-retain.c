/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library to preload behind the shim. Another
 * thread that retains the primary context in the moment in which it was released for the last time.
 */

#include <dlfcn.h>

#include "../sim/sim-cuda.h"

__attribute__((visibility("default"))) CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	__typeof__(cuDevicePrimaryCtxRelease_v2) *release;
	CUcontext context;
	CUresult result;

	*(void **)&release = dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRelease_v2");
	result = release(device);
	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, device);
	return result;
}
