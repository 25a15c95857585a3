/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A thread that is cancelled while it loads modules; others go on
 * to load.
 */

#include <pthread.h>
#include <unistd.h>

#include "s.h"

static CUcontext context;

static void *work(void *unused) {
	CHECK(driver.ctx_set_current(context));
	for (;;) {
		struct s_loaded loaded = s_load(S_MODULE);

		s_unload(&loaded);
		pthread_testcancel();
	}
	return NULL;
}

int main(void) {
	pthread_t thread;
	CUdevice device;
	void *result;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	if (pthread_create(&thread, NULL, work, NULL))
		return 1;
	usleep(300000); /* it waits for somebody by then, if it does */
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("cancelled: %d\n", result == PTHREAD_CANCELED);
	for (int i = 0; i < 3; i++)
		printf("%d\n", s_once(i % 2 ? S_LIBRARY : S_MODULE));
	return 0;
}
