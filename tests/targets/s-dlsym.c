/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The ways to find a function of the driver, and what dlsym and
 * dlerror say when there is none. With a driver loaded where RTLD_DEFAULT does not see it, and with
 * none, the names must stay unknown.
 */

#include <dlfcn.h>

#include "s.h"

static const char *const names[] = { "cuLaunchKernel",
				     "cuModuleLoadData",
				     "cuGetProcAddress_v2",
				     "cuInit",
				     "cuNoSuchThing",
				     "",
				     "puts" };

static void look(const char *where, void *handle) {
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *found;
		const char *error;

		dlerror();
		found = dlsym(handle, names[i]);
		error = dlerror();
		printf("%s \"%s\": %s, %s\n", where, names[i], found ? "found" : "null",
		       error ? "error" : "no error");
	}
}

/* As wrappers of the driver do it: the function may be asked for by any handle and must work. */
static int use(void *handle) {
	*(void **)&driver.launch_kernel = dlsym(handle, "cuLaunchKernel");
	*(void **)&driver.module_load_data = dlsym(handle, "cuModuleLoadData");
	*(void **)&driver.module_unload = dlsym(handle, "cuModuleUnload");
	return s_once(S_MODULE);
}

int main(void) {
	void *local, *global;

	look("default, no driver", RTLD_DEFAULT);
	local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!local)
		return 1;
	look("default, local driver", RTLD_DEFAULT);
	look("handle", local);
	driver_start(false);
	printf("%d\n", use(local));
	global = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	look("default, global driver", RTLD_DEFAULT);
	printf("%d\n", use(RTLD_DEFAULT));
	printf("%d\n", use(global));
	look("next", RTLD_NEXT);
	return 0;
}
