/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. fork() before CUDA is touched (the child then uses it), and after
 * (the child exits, with its exit handlers). s-fork N: N modules and then N children, each of which
 * calls the driver. s-fork lock: children all the time, while a thread loads and launches with a
 * lock that fork() takes as well.
 */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "s.h"

static int wait_for(pid_t child) {
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return status;
}

/* At any time nobody but this thread is in the driver, so none of its locks is held in a child. */
static int many(int count) {
	struct s_loaded loaded;
	int good = 0;

	driver_start(false);
	for (int i = 0; i < count; i++)
		loaded = s_load(S_LIBRARY);
	printf("parent: %d\n", s_launch(&loaded));
	fflush(stdout);
	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			(void)driver.library_unload(loaded.library);
			_exit(0);
		}
		good += wait_for(child) == 0;
	}
	printf("children: %d, parent again: %d\n", good, s_launch(&loaded));
	s_unload(&loaded);
	return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext context;
static _Atomic int over;

static void take(void) {
	pthread_mutex_lock(&lock);
}

static void give(void) {
	pthread_mutex_unlock(&lock);
}

static void *work(void *unused) {
	long sum = 0;

	CHECK(driver.ctx_set_current(context));
	for (int i = 0; i < 100; i++) {
		take();
		sum += s_once(i % 2 ? S_LIBRARY : S_MODULE);
		give();
	}
	over = 1;
	return (void *)sum;
}

static int with_lock(void) {
	pthread_t thread;
	CUdevice device;
	void *sum;

	pthread_atfork(take, give, give);
	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	if (pthread_create(&thread, NULL, work, NULL))
		return 1;
	while (!over) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		if (wait_for(child))
			return 1;
	}
	pthread_join(thread, &sum);
	printf("%ld\n", (long)sum);
	return 0;
}

int main(int argc, char **argv) {
	struct s_loaded loaded;
	pid_t child;

	if (argc > 1 && !strcmp(argv[1], "lock"))
		return with_lock();
	if (argc > 1)
		return many(atoi(argv[1]));
	child = fork();
	if (!child) {
		driver_start(false);
		printf("child before: %d\n", s_once(S_LIBRARY));
		exit(3);
	}
	printf("status %d\n", wait_for(child));
	driver_start(false);
	loaded = s_load(S_LIBRARY);
	printf("parent: %d\n", s_launch(&loaded));
	fflush(stdout);
	for (int how = 0; how < 3; how++) {
		child = fork();
		if (!child) {
			if (how == 0)
				exit(4);
			if (how == 1)
				_exit(5);
			/* CUDA does not work here, but calling it must come back */
			(void)driver.library_unload(loaded.library);
			exit(6);
		}
		printf("status %d\n", wait_for(child));
		fflush(stdout);
	}
	printf("parent again: %d %d\n", s_launch(&loaded), s_once(S_MODULE));
	s_unload(&loaded);
	return 0;
}
