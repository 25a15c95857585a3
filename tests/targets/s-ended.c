/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The primary context ends while another thread's first launch is
 * on its way; the next context has its handle, and launches, too.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "s.h"

atomic_int s_slow; /* s-slow.c */

static void *work(void *create) {
	CUcontext context;

	CHECK((*(__typeof__(cuCtxCreate_v4) **)create)(&context, NULL, 0, 0));
	s_slow = 1;
	printf("%d\n", s_once(S_MODULE));
	return NULL;
}

int main(void) {
	__typeof__(cuCtxCreate_v4) *create;
	CUcontext context;
	pthread_t thread;
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	*(void **)&create = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v4");
	printf("%d\n", s_once(S_MODULE));
	if (pthread_create(&thread, NULL, work, &create))
		return 1;
	usleep(200000);
	CHECK(driver.primary_release(device));
	CHECK(driver.primary_retain(&context, device));
	pthread_join(thread, NULL);
	CHECK(driver.ctx_set_current(context));
	printf("%d\n", s_once(S_MODULE));
	return 0;
}
