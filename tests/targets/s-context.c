/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Contexts that end with modules in them: destroyed, released,
 * reset; a new one after each. 7 launches in all; or, "none", MANY that end while none is current;
 * or, "attached", one that lives on when it is detached, till nobody is attached.
 */

#include <dlfcn.h>

#include "s.h"

#define MANY 20

static __typeof__(cuCtxCreate_v4) *create;
static __typeof__(cuCtxDestroy_v2) *destroy;
static __typeof__(cuCtxAttach) *attach;
static __typeof__(cuCtxDetach) *detach;
static __typeof__(cuDevicePrimaryCtxReset_v2) *reset;

/* Destroys contexts while none is current; what the program allocates next is its own. */
static void none_current(CUdevice device) {
	for (int i = 0; i < MANY; i++) {
		struct s_loaded loaded;
		CUcontext context;

		CHECK(driver.ctx_set_current(NULL));
		CHECK(create(&context, NULL, 0, device));
		loaded = s_load(S_MODULE);
		printf("context %d: %d\n", i, s_launch(&loaded));
		CHECK(driver.ctx_set_current(NULL));
		CHECK(destroy(context));
	}
}

/* Two launches in a context that ends with the second cuCtxDetach(), and one in the next. */
static void attached(CUdevice device) {
	struct s_loaded loaded;
	CUcontext context, again;

	for (int i = 0; i < 2; i++) {
		CHECK(create(&context, NULL, 0, device));
		loaded = s_load(S_MODULE);
		printf("context %d: %d\n", i, s_launch(&loaded));
		if (i == 0) {
			CHECK(attach(&again, 0));
			printf("detached: %d\n", detach(again));
			printf("still there: %d\n", s_launch(&loaded));
		}
		printf("detached: %d\n", detach(context));
	}
}

int main(int argc, char **argv) {
	struct s_loaded loaded, library;
	CUcontext context;
	CUdevice device;
	void *handle;

	driver_start(false);
	handle = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&create = dlsym(handle, "cuCtxCreate_v4");
	*(void **)&destroy = dlsym(handle, "cuCtxDestroy_v2");
	*(void **)&attach = dlsym(handle, "cuCtxAttach");
	*(void **)&detach = dlsym(handle, "cuCtxDetach");
	*(void **)&reset = dlsym(handle, "cuDevicePrimaryCtxReset_v2");
	CHECK(driver.device_get(&device, 0));
	if (argc > 1) {
		(strcmp(argv[1], "none") ? attached : none_current)(device);
		return 0;
	}
	library = s_load(S_LIBRARY);
	printf("library in the primary context: %d\n", s_launch(&library));
	s_unload(&library);
	for (int i = 0; i < 3; i++) {
		CHECK(create(&context, NULL, 0, device));
		loaded = s_load(S_MODULE);
		printf("context %d: %d\n", i, s_launch(&loaded));
		if (i == 1)
			s_unload(&loaded);
		CHECK(destroy(context));
	}
	printf("destroyed again: %d\n", destroy(context) != 0);
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.ctx_set_current(context));
	library = s_load(S_LIBRARY);
	printf("library again: %d\n", s_launch(&library));
	s_unload(&library);
	loaded = s_load(S_MODULE);
	printf("before the reset: %d\n", s_launch(&loaded));
	printf("reset: %d\n", reset(device));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.ctx_set_current(context));
	printf("after it: %d\n", s_once(S_MODULE));
	printf("release: %d\n", driver.primary_release(device));
	return 0;
}
