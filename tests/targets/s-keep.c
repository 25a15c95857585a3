/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A reference to the primary context is released, which takes long
 * (s-slow.c), while a module is loaded into the context; that ends later.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "s.h"

atomic_int s_slow; /* s-slow.c */

static void *release(void *unused) {
	CUcontext context;

	CHECK(driver.primary_retain(&context, 0));
	s_slow = 2; /* who looks whether it is the last reference retains it, too */
	CHECK(driver.primary_release(0));
	return NULL;
}

int main(void) {
	struct s_loaded first, second;
	CUcontext context;
	pthread_t thread;

	driver_start(false);
	first = s_load(S_MODULE);
	printf("%d\n", s_launch(&first));
	if (pthread_create(&thread, NULL, release, NULL))
		return 1;
	usleep(200000);
	second = s_load(S_MODULE);
	printf("%d\n", s_launch(&second));
	pthread_join(thread, NULL);
	printf("%d %d\n", s_launch(&first), s_launch(&second));
	s_unload(&first);
	s_unload(&second);
	for (int i = 0; i < 2; i++) {
		CHECK(driver.primary_release(0));
		CHECK(driver.primary_retain(&context, 0));
		CHECK(driver.ctx_set_current(context));
		printf("%d\n", s_once(S_MODULE));
	}
	return 0;
}
