/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Variables with the names of driver functions, as loaders that
 * derive from NVIDIA's cuda_drvapi_dynlink.c have them: in a library, or in the program
 * (-DS_PROGRAM).
 */

#include <dlfcn.h>

#include "s.h"

#define VARIABLES(X)                          \
	X(cuInit, init)                       \
	X(cuModuleLoadData, module_load_data) \
	X(cuModuleUnload, module_unload)      \
	X(cuLaunchKernel, launch_kernel)      \
	X(cuMemAlloc_v2, mem_alloc)           \
	X(cuCtxSynchronize, ctx_synchronize)

#define DEFINE(name, member)                                     \
	extern __typeof__(name) *variable_##name __asm__(#name); \
	__typeof__(name) *variable_##name = NULL;
VARIABLES(DEFINE)

int s_variables(void);

int s_variables(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define PRINT(name, member) printf("%s is %s\n", #name, variable_##name ? "set" : "not set");
	VARIABLES(PRINT)
	if (!library) {
		printf("no driver\n");
		return 0;
	}
	driver_start(false);
#define SET(name, member)                                   \
	*(void **)&variable_##name = dlsym(library, #name); \
	driver.member = variable_##name;
	VARIABLES(SET)
	printf("%d\n", s_once(S_MODULE));
	return 0;
}

#ifdef S_PROGRAM
int main(void) {
	return s_variables();
}
#endif
