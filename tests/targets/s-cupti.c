/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A target for tests of the shim. What an application does that NVIDIA's profiling library, which a
 * trace brings into it, is not to disturb: shim/tests/test-trace.py runs this with the driver of
 * shim/mock/traced and CUPTI's stand-in.
 *
 *   s-cupti CASE [ARGUMENT]
 */

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KERNEL 10 /* of CUPTI's records */
#define BUFFER_SIZE 65536

static int (*init)(unsigned), (*synchronize)(void),
	(*host_function)(void *, void (*)(void *), void *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		     void *, void **, void **);

static void *find(void *library, const char *name) {
	void *found = library ? dlsym(library, name) : NULL;

	if (!found) {
		printf("no %s\n", name);
		exit(2);
	}
	return found;
}

static void say(const char *what, long value) {
	printf("%s %ld\n", what, value);
	fflush(stdout);
}

static void launch_one(void) {
	launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
}

/* ---- a client of CUPTI that does not subscribe
 * --------------------------------------------------- */

static void *volatile buffers[64]; /* that it gave, ever */
static unsigned buffer_count;

static void requested(uint8_t **bytes, size_t *size, size_t *records_max) {
	*bytes = malloc(BUFFER_SIZE);
	buffers[buffer_count++ % 64] = *bytes;
	*size = *bytes ? BUFFER_SIZE : 0;
	*records_max = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid) {
	free(bytes);
}

static uint64_t now(void) {
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void become_client(const char *path) {
	void *library = dlopen(path, RTLD_NOW);
	int (*set_clock)(uint64_t (*)(void)), (*enable)(int);
	int (*set_buffers)(void (*)(uint8_t **, size_t *, size_t *),
			   void (*)(void *, uint32_t, uint8_t *, size_t, size_t));

	*(void **)&set_clock = find(library, "cuptiActivityRegisterTimestampCallback");
	*(void **)&set_buffers = find(library, "cuptiActivityRegisterCallbacks");
	*(void **)&enable = find(library, "cuptiActivityEnable");
	if (set_clock(now) || set_buffers(requested, completed) || enable(KERNEL))
		exit(2);
}

/* For each line so many launches that are waited for; 0: becomes a client of the library at this
 * path. */
static void case_records(const char *path) {
	long count;

	init(0);
	while (scanf("%ld", &count) == 1) {
		if (!count)
			become_client(path);
		for (long i = 0; i < count; i++)
			launch_one();
		synchronize();
		say("did", count);
	}
}

/* ---- forks
 * --------------------------------------------------------------------------------------- */

static void wait_for(pid_t child) {
	int status = -1;

	waitpid(child, &status, 0);
	say("child", status);
}

/* A child that calls, too; it is ended if it hangs. */
static pid_t fork_caller(void) {
	pid_t child = fork();

	if (child)
		return child;
	alarm(10);
	for (int i = 0; i < 3; i++)
		launch_one();
	synchronize();
	_exit(3);
}

static void *call_first(void *unused) {
	launch_one();
	return NULL;
}

/* A thread makes the first call, and in the midst of it there is a fork. */
static void case_fork(const char *unused) {
	pthread_t thread;

	pthread_create(&thread, NULL, call_first, NULL);
	usleep(400000);
	wait_for(fork_caller());
	pthread_join(thread, NULL);
	launch_one();
	synchronize();
}

/* A child has the number of its parent, in a namespace of its own. */
static void case_namespace(const char *unused) {
	pid_t child;

	if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
		say("no namespaces", 1);
		return;
	}
	child = fork();
	if (!child) {
		init(0);
		launch_one();
		usleep(150000);
		say("number", getpid());
		if (unshare(CLONE_NEWPID))
			say("no namespaces", 1);
		else
			wait_for(fork_caller());
		_exit(4);
	}
	wait_for(child);
}

/* ---- a library's constructor
 * --------------------------------------------------------------------- */

void s_constructed(void);
void s_constructed(void) {
	launch_one();
	synchronize();
	say("constructed", 1);
}

/* The first call is made by the constructor of the library at this path: libc's lock of dlopen() is
 * its thread's. */
static void case_constructor(const char *path) {
	say("loaded", !!dlopen(path, RTLD_NOW));
	launch_one();
	synchronize();
}

/* ---- a call that is left by a longjmp
 * ------------------------------------------------------------ */

static jmp_buf back;

static void jump(void *unused) {
	longjmp(back, 1);
}

/* Has memory where the call was that was left, and calls. Whatever is looked for there, half of
 * these words will do. */
static __attribute__((noinline)) int fill(void) {
	volatile uint32_t words[1000];
	int changed = 0;

	for (unsigned i = 0; i < 1000; i++)
		words[i] = i & 1;
	launch_one();
	for (unsigned i = 0; i < 1000; i++)
		changed += words[i] != (i & 1);
	return changed;
}

static void case_jump(const char *unused) {
	init(0);
	if (!setjmp(back))
		host_function(NULL, jump, NULL);
	say("changed", fill());
	launch_one();
	synchronize();
}

/* ---- the end
 * ------------------------------------------------------------------------------------- */

/* A signal comes while CUPTI writes a record of this thread's; its handler exits. */
static void case_exit(const char *unused) {
	signal(SIGUSR1, exit);
	alarm(10);
	init(0);
	launch_one();
	say("no signal", 1);
}

int main(int argc, char **argv) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	static const struct {
		const char *name;
		void (*run)(const char *);
	} cases[] = {
		{ "records", case_records },     { "fork", case_fork },
		{ "namespace", case_namespace }, { "constructor", case_constructor },
		{ "jump", case_jump },           { "exit", case_exit },
	};

	*(void **)&init = find(driver, "cuInit");
	*(void **)&launch = find(driver, "cuLaunchKernel");
	*(void **)&synchronize = find(driver, "cuCtxSynchronize");
	*(void **)&host_function = find(driver, "cuLaunchHostFunc");
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name))
			cases[i].run(argc > 2 ? argv[2] : "");
	return 0;
}
