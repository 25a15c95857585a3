/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The variants for per-thread streams, by cuGetProcAddress with
 * flag 2; old versions; the empty name.
 */

#include <dlfcn.h>

#include "s.h"

int main(void) {
	__typeof__(cuGetProcAddress_v2) *find;
	CUresult (*find_old)(const char *, void **, int, cuuint64_t);
	struct s_loaded loaded;
	void *function = &function, *handle;

	driver_start(true);
	handle = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&find = dlsym(handle, "cuGetProcAddress_v2");
	*(void **)&find_old = dlsym(handle, "cuGetProcAddress");
	loaded = s_load(S_LIBRARY);
	printf("%d\n", s_launch(&loaded));
	CHECK(find("cuLaunchKernel", (void **)&driver.launch_kernel, 12000, 2, NULL));
	printf("per thread: %d\n", s_launch(&loaded));
	CHECK(find("cuGetProcAddress", &function, 12000, 0, NULL));
	CHECK(((__typeof__(find))function)("cuLaunchKernel", (void **)&driver.launch_kernel, 12000,
					   0, NULL));
	printf("by the one found, 5 arguments: %d\n", s_launch(&loaded));
	CHECK(find("cuGetProcAddress", &function, 11030, 0, NULL));
	CHECK(((__typeof__(find_old))function)("cuLaunchKernel", (void **)&driver.launch_kernel,
					       11030, 2));
	printf("by the old one, 4 arguments: %d\n", s_launch(&loaded));
	CHECK(find_old("cuLaunchKernel", (void **)&driver.launch_kernel, 11030, 0));
	printf("4 arguments: %d\n", s_launch(&loaded));
	printf("no name: %d\n", find("", &function, 12000, 0, NULL));
	printf("unknown name: %d, too old: %d\n", find("cuNoSuchThing", &function, 12000, 0, NULL),
	       find("cuLaunchKernelEx", &function, 5000, 0, NULL));
	s_unload(&loaded);
	return 0;
}
