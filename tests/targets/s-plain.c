/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. No CUDA at all: dlsym and dlerror in every way that a program may
 * use them.
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void look(const char *where, void *handle, const char *name) {
	const char *error;
	void *found;

	dlerror();
	errno = 4242;
	found = dlsym(handle, name);
	error = dlerror();
	printf("%s %s: %s, %s, errno %d\n", where, name, found ? "found" : "null",
	       error ? error : "no error", errno);
}

int main(void) {
	void *m = dlopen("libm.so.6", RTLD_NOW);

	look("default", RTLD_DEFAULT, "puts");
	look("default", RTLD_DEFAULT, "no_such_symbol");
	look("default", RTLD_DEFAULT, "");
	look("default", RTLD_DEFAULT, "c");
	look("default", RTLD_DEFAULT, "cu");
	look("next", RTLD_NEXT, "puts");
	look("next", RTLD_NEXT, "main");
	look("libm", m, "cos");
	look("libm", m, "cuLaunchKernelNot");
	printf("dlsym itself: %d\n", dlsym(RTLD_DEFAULT, "dlsym") != NULL);
	return 0;
}
