/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program that test-uprobe traces. It prints "ready", waits for a line, does what its argument
 * says, and prints "done".
 */

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct ipc_handle {
	char bytes[64];
};

int cuInit(unsigned int flags);
int cuMemAlloc_v2(uint64_t *pointer, size_t size);
int cuMemFree_v2(uint64_t pointer);
int cuLaunchKernel(void *f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream,
		   void **parameters, void **extra);
int cuLaunchKernelEx(const void *config, void *f, void **parameters, void **extra);
int cuIpcOpenMemHandle_v2(uint64_t *pointer, struct ipc_handle handle, unsigned int flags);
int cuModuleGetFunction(uint64_t *function, void *module, const char *name);
int cuLibraryGetKernel(uint64_t *kernel, void *library, const char *name);
int cuKernelGetFunction(uint64_t *function, uint64_t kernel);
int cuCtxSynchronize(void);
int cuEventQuery(void *event);
int cuGetProcAddress_v2(const char *symbol, void **pointer, int version, uint64_t flags,
			int *status);
int cuParamSetf(void *function, int offset, float value);
int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, void (*callback)(int),
				     size_t shared, int limit);
int cuFutureThing(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
int cuSitePush(void), cuSiteNop5(void), cuSiteNop(void), cuSiteEndbr(void), cuSiteSub(void),
	cuSiteRet(void), cuSiteJump(void), cuSiteTest(void);

static jmp_buf back;

static void say(const char *what) {
	printf("%s\n", what);
	fflush(stdout);
}

static void wait_for_line(void) {
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
		;
}

/* One call of each kind. */
static void kinds(void) {
	static const uint64_t config[7] = { 1, 2, 3, 4, 5, 6, 0 };
	struct ipc_handle handle;
	uint64_t value = 0;
	char name[1500];

	cuInit(0);
	cuMemAlloc_v2(&value, 4096);
	cuMemAlloc_v2(&value, 0); /* fails */
	cuLaunchKernel((void *)0x1111, 2, 3, 4, 5, 6, 7, 8, (void *)0x2222, (void **)0x3333,
		       (void **)0x4444);
	cuLaunchKernelEx(config, (void *)0x1112, NULL, NULL);
	memset(&handle, 0x5a, sizeof(handle));
	cuIpcOpenMemHandle_v2(&value, handle, 9);
	cuModuleGetFunction(&value, (void *)0x77, "vec_add");
	cuModuleGetFunction(&value, (void *)0x77, "absent");
	memset(name, 'k', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cuLibraryGetKernel(&value, (void *)0x78, name);
	cuKernelGetFunction(&value, value);
	cuCtxSynchronize();
	cuParamSetf((void *)0x79, 12, 1.5f);
	cuFutureThing(1, 2, 3, 4, 5, 6);
	cuMemFree_v2(0);
	cuMemFree_v2((uint64_t)1); /* a bad address is no trouble: it is a number */
	cuMemAlloc_v2((void *)8, 0); /* nor is a bad pointer */
	cuEventQuery((void *)0x7a); /* not ready: no error */
}

/* A name on a page of a file that nobody has touched yet. */
static void untouched(const char *path) {
	uint64_t value;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *name = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	close(fd);
	if (name != MAP_FAILED)
		cuModuleGetFunction(&value, (void *)0x77, name + 1); /* "ELF..." */
}

static void sites(void) {
#ifdef __x86_64__
	cuSitePush();
	cuSiteNop5();
	cuSiteNop();
	cuSiteEndbr();
	cuSiteSub();
	cuSiteRet();
	cuSiteJump();
	cuSiteTest();
#endif
}

static void jump(int limit) {
	cuInit(7); /* within: not recorded */
	if (limit < 3)
		longjmp(back, 1);
}

/* Leaves some stack between two calls. */
static __attribute__((noinline)) void deeper(unsigned int n) {
	volatile char room[512];

	memset((void *)room, 0xff, sizeof(room));
	if (n)
		deeper(n - 1);
	else
		cuInit(1);
	room[0] = 0;
}

static void jumps(void) {
	for (volatile int i = 0; i < 5; i++) {
		int grid, block;

		if (!setjmp(back))
			cuOccupancyMaxPotentialBlockSize(&grid, &block, NULL, jump, 0, i);
		deeper(4);
		cuInit(0);
	}
}

/* Functions by cuGetProcAddress(): some are exported by nobody. */
static void pointers(void) {
	int (*hidden)(uint64_t, uint64_t) = NULL, (*init)(unsigned int) = NULL,
				(*release)(uint64_t) = NULL, (*absent)(void) = NULL;

	cuGetProcAddress_v2("cuHiddenThing", (void **)&hidden, 13000, 0, NULL);
	cuGetProcAddress_v2("cuInit", (void **)&init, 13000, 0, NULL);
	cuGetProcAddress_v2("cuMemFree", (void **)&release, 13000, 0, NULL);
	cuGetProcAddress_v2("cuAbsent", (void **)&absent, 13000, 0, NULL);
	say("got");
	wait_for_line();
	for (uint64_t i = 0; i < 3; i++)
		hidden(1, i);
	init(5);
	release(6);
}

static void *run_thread(void *number) {
	for (int i = 0; i < 100; i++)
		cuMemFree_v2((uint64_t)(uintptr_t)number * 1000 + (uint64_t)i);
	return NULL;
}

static void threads(void) {
	pthread_t thread[4];

	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, run_thread, (void *)(i + 1));
	for (size_t i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
}

static void forks(char **argv) {
	pid_t child = fork();

	if (!child) {
		char *const arguments[] = { argv[0], (char *)"init", NULL };

		cuInit(2);
		execv("/proc/self/exe", arguments);
		_exit(1);
	}
	waitpid(child, NULL, 0);
	cuInit(3);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "init")) {
		cuInit(4);
		return 0;
	}
	say("ready");
	wait_for_line();
	if (!strcmp(what, "kinds")) {
		kinds();
	} else if (!strcmp(what, "untouched")) {
		untouched("/proc/self/exe");
	} else if (!strcmp(what, "sites")) {
		sites();
	} else if (!strcmp(what, "jumps")) {
		jumps();
	} else if (!strcmp(what, "threads")) {
		threads();
	} else if (!strcmp(what, "forks")) {
		forks(argv);
	} else if (!strcmp(what, "waits")) {
		cuInit(0);
		say("waiting");
		setenv("TEST_WAIT", "1", 1);
		cuCtxSynchronize();
	} else if (!strcmp(what, "leaves")) {
		if (fork())
			_exit(0);
		say("left");
		wait_for_line();
		kinds();
	} else if (!strcmp(what, "pointers")) {
		pointers();
	} else if (!strcmp(what, "many")) {
		for (int i = 0; i < 50000; i++)
			cuInit(0);
	}
	say("done");
	wait_for_line();
	return 0;
}
