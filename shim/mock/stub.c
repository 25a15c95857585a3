/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A mock library that defines functions of the driver itself and loads the driver when the first
 * one is called. test-symbols.c opens it with RTLD_LOCAL.
 */

#include <dlfcn.h>
#include <stddef.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int stub_start(int *version);

static int calls;

static void *find(const char *name) {
	static void *driver;

	calls++;
	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return driver ? dlsym(driver, name) : NULL;
}

int cuDriverGetVersion(int *version) {
	int (*next)(int *) = (int (*)(int *))find("cuDriverGetVersion");

	return next ? next(version) : 35;
}

int cuInit(unsigned flags) {
	int (*next)(unsigned) = (int (*)(unsigned))find("cuInit");

	return next ? next(flags) : 35;
}

/* By the linker's tables, as calls of other files of the library are. */
int stub_start(int *version) {
	int result = cuInit(0);

	return result ? result : cuDriverGetVersion(version);
}
