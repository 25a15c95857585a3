/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A mock library that interposes one driver function, for test-symbols.c. It asks for the driver's
 * own at each call.
 */

#include <dlfcn.h>
#include <stddef.h>

extern int interposed, (*interposed_real)(void *);
int interposed, (*interposed_real)(void *);

int cuCtxDestroy_v2(void *context);
int cuCtxDestroy_v2(void *context) {
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*real)(void *) = driver ? (int (*)(void *))dlsym(driver, "cuCtxDestroy_v2") : NULL;

	interposed++;
	interposed_real = real;
	return real ? real(context) : 1;
}
