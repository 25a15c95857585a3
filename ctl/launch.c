/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobe-launch: launches an empty kernel, for `gpuprobectl run`. The shim is in this process as
 * in any other, so the kernel becomes whatever programs are attached to it. The CUDA driver is the
 * only thing that it needs.
 *
 *     gpuprobe-launch GRID_X GRID_Y GRID_Z BLOCK_X BLOCK_Y BLOCK_Z COUNT DEVICE
 *
 * Prints the microseconds that all launches took together. Exit status: 0, 1 (the driver says no),
 * 2 usage, 69 no driver or device.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ctl/base/launch.h"
#include "lib/base/clock.h"

static const char kernel[] = ".version 7.0\n"
			     ".target sm_75\n"
			     ".address_size 64\n"
			     ".visible .entry " LAUNCH_KERNEL "()\n"
			     "{\n"
			     "\tret;\n"
			     "}\n";

/* What is used of the driver API, as cuda.h declares it. */
static struct {
	int (*init)(unsigned int);
	int (*device_get)(int *, int);
	int (*primary_retain)(void **, int);
	int (*set_current)(void *);
	int (*module_load)(void **, const void *);
	int (*get_function)(void **, void *, const char *);
	int (*launch)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		      unsigned int, unsigned int, void *, void **, void **);
	int (*synchronize)(void);
	int (*module_unload)(void *);
	int (*primary_release)(int);
	int (*error_string)(int, const char **);
} cuda;

static const struct {
	const char *name;
	void *function;
} symbols[] = {
	{ "cuInit", &cuda.init },
	{ "cuDeviceGet", &cuda.device_get },
	{ "cuDevicePrimaryCtxRetain", &cuda.primary_retain },
	{ "cuCtxSetCurrent", &cuda.set_current },
	{ "cuModuleLoadData", &cuda.module_load },
	{ "cuModuleGetFunction", &cuda.get_function },
	{ "cuLaunchKernel", &cuda.launch },
	{ "cuCtxSynchronize", &cuda.synchronize },
	{ "cuModuleUnload", &cuda.module_unload },
	{ "cuDevicePrimaryCtxRelease_v2", &cuda.primary_release },
	{ "cuGetErrorString", &cuda.error_string },
};

static int find_driver(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		fprintf(stderr, "gpuprobe-launch: there is no CUDA driver: %s\n", dlerror());
		return LAUNCH_NO_DEVICE;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		*(void **)symbols[i].function = dlsym(library, symbols[i].name);
		if (!*(void **)symbols[i].function) {
			fprintf(stderr, "gpuprobe-launch: the CUDA driver has no %s\n",
				symbols[i].name);
			return LAUNCH_NO_DEVICE;
		}
	}
	return 0;
}

/* Says what failed. Returns status, or 0 if result is no error. */
static int check(int result, const char *what, int status) {
	const char *text = NULL;

	if (!result)
		return 0;
	cuda.error_string(result, &text);
	fprintf(stderr, "gpuprobe-launch: %s: %s (%d)\n", what, text ? text : "unknown error",
		result);
	return status;
}

/* Launches it as often as asked. */
static int launch(const unsigned int *size, uint64_t count) {
	void *module, *function;
	int64_t start;
	int r;

	r = check(cuda.module_load(&module, kernel), "loading the kernel", 1);
	if (!r)
		r = check(cuda.get_function(&function, module, LAUNCH_KERNEL), "finding the kernel",
			  1);
	start = clock_us(CLOCK_MONOTONIC);
	for (uint64_t i = 0; i < count && !r; i++)
		r = check(cuda.launch(function, size[0], size[1], size[2], size[3], size[4],
				      size[5], 0, NULL, NULL, NULL),
			  "launching the kernel", 1);
	if (!r)
		r = check(cuda.synchronize(), "running the kernel", 1);
	if (!r) {
		printf("%lld\n", (long long)(clock_us(CLOCK_MONOTONIC) - start));
		r = check(cuda.module_unload(module), "unloading the kernel", 1);
	}
	return r;
}

int main(int argc, char **argv) {
	unsigned int size[6];
	uint64_t numbers[8];
	void *context;
	int device, r;

	if (argc != 9) {
		fprintf(stderr, "usage: gpuprobe-launch GRID_X GRID_Y GRID_Z BLOCK_X BLOCK_Y "
				"BLOCK_Z COUNT DEVICE\n");
		return 2;
	}
	for (int i = 0; i < 8; i++) {
		char *end;

		numbers[i] = strtoull(argv[i + 1], &end, 10);
		if (!*argv[i + 1] || *end) {
			fprintf(stderr, "gpuprobe-launch: %s is no number\n", argv[i + 1]);
			return 2;
		}
		if (i < 6)
			size[i] = (unsigned int)numbers[i];
	}
	r = find_driver();
	if (!r)
		r = check(cuda.init(0), "starting CUDA", LAUNCH_NO_DEVICE);
	if (!r)
		r = check(cuda.device_get(&device, (int)numbers[7]), "finding the device",
			  LAUNCH_NO_DEVICE);
	if (!r)
		r = check(cuda.primary_retain(&context, device), "making a context",
			  LAUNCH_NO_DEVICE);
	if (r)
		return r;
	r = check(cuda.set_current(context), "using the context", 1);
	if (!r)
		r = launch(size, numbers[6]);
	return r ? r : check(cuda.primary_release(device), "giving the context back", 1);
}
