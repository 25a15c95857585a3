/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A context has the handle of an older one, by s-slow.c, which has
 * to be there. Without an argument that ended while another thread's first launch took long; with
 * one its end takes long, and the new one is used meanwhile.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "s.h"

#define TRIES 1000

atomic_int s_slow, s_slow_waits; /* s-slow.c */

static __typeof__(cuCtxCreate_v4) *context_create;
static __typeof__(cuCtxDestroy_v2) *context_destroy;

static CUcontext create(void) {
	CUcontext context;

	CHECK(context_create(&context, NULL, 0, 0));
	return context;
}

static void *launch(void *unused) {
	struct s_loaded loaded;

	create();
	s_slow = 1;
	loaded = s_load(S_MODULE);
	printf("%d\n", s_launch(&loaded));
	return NULL;
}

static void *destroy(void *context) {
	s_slow = 1;
	CHECK(context_destroy(context));
	return NULL;
}

/* Makes a context with that handle, which is free. */
static void create_again(CUcontext handle) {
	for (int i = 0; i < TRIES; i++)
		if (create() == handle)
			return;
	printf("no context has the handle of one that was destroyed\n");
}

int main(int argc, char **argv) {
	bool meanwhile = argc > 1;
	struct s_loaded loaded;
	CUcontext context;
	pthread_t thread;

	driver_start(false);
	*(void **)&context_create = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v4");
	*(void **)&context_destroy = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxDestroy_v2");
	context = create();
	loaded = s_load(S_MODULE);
	printf("%d\n", s_launch(&loaded));
	if (pthread_create(&thread, NULL, meanwhile ? destroy : launch, context))
		return 1;
	while (!s_slow_waits)
		usleep(1000);
	if (!meanwhile) {
		CHECK(context_destroy(context));
		pthread_join(thread, NULL);
	}
	create_again(context);
	loaded = s_load(S_MODULE);
	printf("%d\n", s_launch(&loaded));
	if (meanwhile)
		pthread_join(thread, NULL);
	printf("%d\n", s_launch(&loaded));
	s_unload(&loaded);
	return 0;
}
