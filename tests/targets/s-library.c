/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A library (the argument) is loaded whose constructor loads a
 * module and launches, while another thread does so for the first time: libc's lock of dlopen() is
 * the constructor's.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "s.h"

static CUcontext context;

void s_constructed(void);
void s_constructed(void) {
	printf("%d\n", s_once(S_LIBRARY));
}

static void *work(void *unused) {
	CHECK(driver.ctx_set_current(context));
	printf("%d\n", s_once(S_LIBRARY));
	return NULL;
}

int main(int argc, char **argv) {
	pthread_t thread;
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	if (argc < 2 || pthread_create(&thread, NULL, work, NULL))
		return 1;
	usleep(200000); /* it looks for what it needs by then: s-construct.c */
	if (!dlopen(argv[1], RTLD_NOW))
		return 1;
	return pthread_join(thread, NULL);
}
