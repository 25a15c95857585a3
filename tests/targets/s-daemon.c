/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A target for tests of the shim. A program that goes into the background as daemon(3) does and
 * uses CUDA there at once: its parents are gone by then. It waits for that, so that a trace of it
 * has not ended. (tests/e2e/test-trace-command.py)
 *
 *   s-daemon MODE COUNT     MODE: fork, clone (unseen by libc), exec (of a program that calls),
 *                           clear (its environment, but for the daemon's name)
 *   s-daemon calls COUNT    in the foreground
 *   s-daemon threads COUNT  by eight threads at once, which make the first calls of the process
 */

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8

static int (*init)(unsigned), (*get)(int *, int);
static pthread_barrier_t together;
static long count;

static void find_driver(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("%s\n", dlerror());
		exit(2);
	}
	*(void **)&init = dlsym(library, "cuInit");
	*(void **)&get = dlsym(library, "cuDeviceGet");
}

static void calls(void) {
	int device;

	init(0);
	for (long i = 0; i < count; i++)
		get(&device, 0);
}

static void *thread_calls(void *unused) {
	pthread_barrier_wait(&together);
	calls();
	return NULL;
}

static void threads(void) {
	pthread_t thread[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, thread_calls, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static pid_t fork_by(const char *mode) {
	return strcmp(mode, "clone") ? fork()
				     : (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void clear(void) {
	const char *name = getenv("GPUPROBE_SESSION");
	char *kept = name ? strdup(name) : NULL;

	clearenv();
	if (kept)
		setenv("GPUPROBE_SESSION", kept, 1);
}

static void in_background(const char *mode, char **argv) {
	if (!strcmp(mode, "exec")) {
		execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
		_exit(127);
	}
	if (!strcmp(mode, "clear"))
		clear();
	calls();
	_exit(0);
}

int main(int argc, char **argv) {
	int ends[2];
	pid_t child;
	char byte;

	if (argc != 3)
		return 2;
	count = atol(argv[2]);
	find_driver();
	if (!strcmp(argv[1], "calls")) {
		calls();
		return 0;
	}
	if (!strcmp(argv[1], "threads")) {
		threads();
		return 0;
	}
	if (pipe(ends))
		return 1;
	child = fork_by(argv[1]);
	if (!child) {
		setsid();
		if (fork_by(argv[1]))
			_exit(0);
		close(ends[0]);
		in_background(argv[1], argv);
	}
	close(ends[1]);
	waitpid(child, NULL, 0);
	return read(ends[0], &byte, 1) == 0 ? 0 : 1; /* nobody has the other end any more */
}
