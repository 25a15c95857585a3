/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The first call of the driver is made by a thread that has as
 * little stack as there may be, and has used some of it: there is enough left for the call.
 */

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int (*get_version)(int *);

static void *work(void *version) {
	volatile char used[4096];

	used[0] = 0;
	return get_version(version) || used[0] ? NULL : version;
}

int main(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *result = NULL;
	pthread_attr_t attributes;
	pthread_t thread;
	int version = 0;

	*(void **)&get_version = library ? dlsym(library, "cuDriverGetVersion") : NULL;
	if (!get_version || pthread_attr_init(&attributes) ||
	    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) ||
	    pthread_create(&thread, &attributes, work, &version))
		return 1;
	pthread_join(thread, &result);
	printf("%d\n", result && version);
	return 0;
}
