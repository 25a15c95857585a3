/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Threads that load, launch and unload at the same time. s-threads
 * N: N times each, in place of 5.
 */

#include <pthread.h>

#include "s.h"

#define THREADS 8

static CUcontext context;
static int rounds = 5;

static void *work(void *userdata) {
	long sum = 0;

	CHECK(driver.ctx_set_current(context));
	for (int i = 0; i < rounds; i++)
		sum += s_once((i + (userdata != NULL)) % 2 ? S_LIBRARY : S_MODULE);
	return (void *)sum;
}

int main(int argc, char **argv) {
	pthread_t threads[THREADS];
	CUdevice device;

	if (argc > 1)
		rounds = atoi(argv[1]);
	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(i % 2)))
			return 1;
	for (int i = 0; i < THREADS; i++) {
		void *sum;

		pthread_join(threads[i], &sum);
		printf("%ld\n", (long)sum);
	}
	return 0;
}
