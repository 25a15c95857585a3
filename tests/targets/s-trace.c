/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A target for tests of the shim. Calls of a driver that a tracer would get wrong:
 * shim/tests/test-trace.py runs this with the driver of shim/mock/traced, alone, under the shim and
 * traced, and says what there should be.
 *
 *   s-trace CASE [NUMBER...]
 */

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct handle {
	char bytes[64];
};

static void *library;
static int (*get_version)(int *), (*get_current)(void **), (*alloc)(uint64_t *, size_t),
	(*release)(uint64_t), (*synchronize)(void), (*query)(void *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		     void *, void **, void **);
static int (*get_function)(void **, void *, const char *), (*unload)(void *);
static int (*host_function)(void *, void (*)(void *), void *);
static int (*add_callback)(void *, void (*)(void *), void *, unsigned);

static void *find(const char *name) {
	void *found = dlsym(library, name);

	if (!found) {
		printf("no %s\n", name);
		exit(2);
	}
	return found;
}

static void start(void) {
	int (*init)(unsigned);

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		exit(2);
	}
	*(void **)&init = find("cuInit");
	*(void **)&get_version = find("cuDriverGetVersion");
	*(void **)&get_current = find("cuCtxGetCurrent");
	*(void **)&alloc = find("cuMemAlloc_v2");
	*(void **)&release = find("cuMemFree_v2");
	*(void **)&synchronize = find("cuCtxSynchronize");
	*(void **)&query = find("cuEventQuery");
	*(void **)&launch = find("cuLaunchKernel");
	*(void **)&get_function = find("cuModuleGetFunction");
	*(void **)&unload = find("cuModuleUnload");
	*(void **)&host_function = find("cuLaunchHostFunc");
	*(void **)&add_callback = find("cuStreamAddCallback");
	printf("init %d\n", init(0));
}

static void say(const char *what, long value) {
	printf("%s %ld\n", what, value);
	fflush(stdout);
}

static int launch_one(uintptr_t function) {
	return launch((void *)function, 1, 2, 3, 4, 5, 6, 7, (void *)8, (void **)9, (void **)10);
}

static void case_plain(long count) {
	uint64_t pointer = 0;

	for (long i = 0; i < count; i++)
		release((uint64_t)i);
	errno = 4242;
	say("alloc", alloc(&pointer, 64));
	say("errno", errno);
	errno = 4242;
	say("free", release(pointer));
	say("errno", errno);
	say("fails", alloc(&pointer, 0));
	say("query", query((void *)1));
}

static void case_arguments(long unused) {
	int (*open_handle)(uint64_t *, struct handle, unsigned), (*clamp)(void *, float, float);
	int (*future)(int, double, long, float, long, long, long, double, long, long, long),
		(*second)(int);
	int (*get_address)(const char *, void **, int, uint64_t, int *);
	struct handle handle;
	uint64_t pointer = 0;

	*(void **)&open_handle = find("cuIpcOpenMemHandle_v2");
	*(void **)&clamp = find("cuTexRefSetMipmapLevelClamp");
	*(void **)&future = find("cuFutureFunction");
	*(void **)&second = find("cuFutureFunction_v2");
	for (int i = 0; i < 64; i++)
		handle.bytes[i] = (char)i;
	say("launch", launch_one(0x5000));
	say("open", open_handle(&pointer, handle, 77));
	say("pointer", (long)pointer);
	say("clamp", clamp((void *)3, 1.5f, 2.5f));
	say("future", future(1, 2.5, 3, 4.5f, 5, 6, 7, 8.5, 9, 10, 11));
	say("second", second(2));
	say("again", second(2));
	say("missing", dlsym(library, "cuFutureMissing") || dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2"));
	*(void **)&get_address = dlsym(library, "cuGetProcAddress_v2");
	say("address", !!get_address);
}

static void case_names(long unused) {
	static const char *const ends[] = { "cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2",
					    "cuDevicePrimaryCtxReset_v2" };
	void *function = NULL;
	int (*end)(uintptr_t);

	say("get", get_function(&function, (void *)1, "kernel_"));
	say("none", get_function(&function, (void *)1, "nothing"));
	for (int i = 0; i < 3; i++)
		say("launch", launch_one((uintptr_t)function));
	say("launch", launch_one(0x5002));
	say("kernel", launch_one(0x6000));
	say("unload", unload((void *)1));
	say("launch", launch_one(0x5002));
	for (unsigned i = 0; i < 3; i++) {
		*(void **)&end = find(ends[i]);
		say("end", end(0x1000));
		say("launch", launch_one(0x5002));
	}
}

static void *thread_calls(void *argument) {
	for (long i = 0; i < (long)argument; i++)
		release((uint64_t)syscall(SYS_gettid));
	return NULL;
}

/* All at once, or (number < 0) one after another. */
static void case_threads(long number, long count) {
	pthread_t threads[512];
	long all = labs(number);

	for (long i = 0; i < all; i++) {
		pthread_create(&threads[i], NULL, thread_calls, (void *)count);
		if (number < 0)
			pthread_join(threads[i], NULL);
	}
	for (long i = 0; number > 0 && i < all; i++)
		pthread_join(threads[i], NULL);
	say("threads", all);
}

static pthread_barrier_t together;

static void *thread_first(void *argument) {
	pthread_barrier_wait(&together);
	return thread_calls(argument);
}

/* The first calls of the process are made by several threads at once. */
static void case_first(long number, long count) {
	pthread_t threads[512];

	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&release = find("cuMemFree_v2");
	pthread_barrier_init(&together, NULL, (unsigned)number);
	for (long i = 0; i < number; i++)
		pthread_create(&threads[i], NULL, thread_first, (void *)count);
	for (long i = 0; i < number; i++)
		pthread_join(threads[i], NULL);
	say("threads", number);
}

static void wait_for(pid_t child) {
	int status = -1;

	waitpid(child, &status, 0);
	say("child", status);
}

static void case_fork(long unused) {
	pid_t child;

	thread_calls((void *)5);
	child = fork();
	if (!child) {
		thread_calls((void *)7);
		_exit(3);
	}
	wait_for(child);
	/* unseen by libc */
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child) {
		for (int i = 0; i < 9; i++)
			release(9);
		_exit(4);
	}
	wait_for(child);
	child = vfork();
	if (!child)
		_exit(5);
	wait_for(child);
	thread_calls((void *)5);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", "s-trace", "plain", "11", (char *)NULL);
		_exit(127);
	}
	wait_for(child);
}

static volatile sig_atomic_t crashed, is_child;

/* The child goes on with what the signal came in the midst of. */
static void fork_in_handler(int number) {
	pid_t child = fork();
	int status = -1;

	is_child = child == 0;
	if (child > 0) {
		waitpid(child, &status, 0);
		crashed = WIFSIGNALED(status);
	}
}

/* The driver gets the signal where it is asked for the name of this kernel. */
static void case_fork_inside(long unused) {
	struct sigaction action = { .sa_handler = fork_in_handler };

	fflush(stdout);
	sigaction(SIGUSR1, &action, NULL);
	launch_one(0x5f00);
	if (is_child) {
		thread_calls((void *)5);
		_exit(0);
	}
	say("crashed", crashed);
	thread_calls((void *)3);
}

static volatile sig_atomic_t handled;

static void on_signal(int number) {
	int saved = errno;

	release(1);
	handled = handled + 1;
	errno = saved;
}

/* Prints how many calls there were. */
static void case_signal(long count) {
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval storm = { { 0, 50 }, { 0, 50 } }, quiet = { 0 };
	long calls = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &storm, NULL);
	while (handled < count) {
		release(2);
		calls++;
	}
	setitimer(ITIMER_REAL, &quiet, NULL);
	say("handled", handled >= count);
	fprintf(stderr, "calls %ld handled %ld\n", calls, (long)handled);
}

static void call_inside(void *unused) {
	release(3);
}

static void look_back(void *unused);

__attribute__((noinline)) static void caller_of_driver(void) {
	say("host", host_function(NULL, look_back, NULL));
}

/* Who called can be seen through the call. */
static void look_back(void *unused) {
	void *addresses[64];
	int count = backtrace(addresses, 64), found = 0;

	for (int i = 0; i < count; i++)
		found |= (char *)addresses[i] > (char *)caller_of_driver &&
			 (char *)addresses[i] < (char *)caller_of_driver + 128;
	say("seen", found);
}

static void end_thread(void *unused) {
	pthread_exit(NULL);
}

static void clean_up(void *unused) {
	say("cleaned up", 1);
}

/* A deep call of the driver is left by the end of its thread; destructors go on calling. */
static void *leave_by_exit(void *unused) {
	pthread_cleanup_push(clean_up, NULL);
	host_function(NULL, end_thread, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

static jmp_buf back;

static void jump(void *unused) {
	longjmp(back, 1);
}

static void case_callbacks(long unused) {
	pthread_t thread;

	caller_of_driver();
	host_function(NULL, call_inside, NULL);
	add_callback(NULL, call_inside, NULL, 0);
	synchronize();
	pthread_create(&thread, NULL, leave_by_exit, NULL);
	pthread_join(thread, NULL);
	if (!setjmp(back))
		host_function(NULL, jump, NULL);
	release(4);
}

/* Launches on an idle stream, on one that is busy, with other work between, captured, of graphs. */
static void case_gpu(long count) {
	int (*graph_launch)(void *, void *), (*begin)(void *, int), (*finish)(void *, void **),
		(*destroy)(void *);
	void *graph;

	*(void **)&graph_launch = find("cuGraphLaunch");
	*(void **)&begin = find("cuStreamBeginCapture_v2");
	*(void **)&finish = find("cuStreamEndCapture");
	*(void **)&destroy = find("cuCtxDestroy_v2");
	for (long i = 0; i < count; i++) {
		launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		synchronize();
	}
	for (long i = 0; i < count; i++)
		launch((void *)0x5002, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
	synchronize();
	begin((void *)2, 0);
	launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)2, NULL, NULL);
	launch((void *)0x5002, 1, 1, 1, 1, 1, 1, 0, (void *)3, NULL, NULL);
	finish((void *)2, &graph);
	graph_launch((void *)0x9000, (void *)4);
	synchronize();
	say("query", query((void *)1));
	say("left", destroy((void *)0x1000));
}

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			    unsigned, void *, void **, void **);

/* A kernel that runs for some milliseconds, launched in a call that takes some more before or
 * behind. */
struct slow {
	uintptr_t stream;
	unsigned runs, before, behind;
};

static void launch_slow(launch_function *by, struct slow slow) {
	by((void *)0x7000, slow.runs, slow.before + 1, slow.behind + 1, 1, 1, 1, 0,
	   (void *)slow.stream, NULL, NULL);
}

static void *thread_slow(void *argument) {
	const struct slow *slow = argument;

	launch_slow(launch, *slow);
	return NULL;
}

/* A launch takes long in another thread, while this one launches, at once and later. */
static void launch_meanwhile(struct slow other, struct slow meanwhile, struct slow later) {
	pthread_t thread;

	pthread_create(&thread, NULL, thread_slow, &other);
	usleep(20000);
	launch_slow(launch, meanwhile);
	pthread_join(thread, NULL);
	launch_slow(launch, later);
	synchronize();
}

/* Launches that wait for other streams, streams that have two names, and the like: of each it is
 * known how long it runs. */
static void case_slow(long which) {
	int (*destroy_stream)(void *), (*slow_create)(int);
	launch_function *own;

	*(void **)&own = find("cuLaunchKernel_ptsz");
	*(void **)&destroy_stream = find("cuStreamDestroy_v2");
	*(void **)&slow_create = find("mock_slow_create");
	launch_slow(launch, (struct slow){ 5, 1 });
	synchronize();
	if (which == 0) { /* the legacy stream and others wait for each other */
		launch_slow(launch, (struct slow){ 0, 5 });
		launch_slow(launch, (struct slow){ 5, 20 });
		launch_slow(launch, (struct slow){ 0, 1 });
		launch_slow(launch, (struct slow){ 5, 2 });
		launch_slow(launch, (struct slow){ 6, 3 });
	} else if (which == 1) { /* it has two names */
		launch_slow(launch, (struct slow){ 0, 5 });
		launch_slow(launch, (struct slow){ 1, 20 });
		launch_slow(launch, (struct slow){ 0, 1 });
	} else if (which == 2) { /* the thread's own has, too */
		launch_slow(own, (struct slow){ 0, 5 });
		launch_slow(launch, (struct slow){ 2, 20 });
		launch_slow(own, (struct slow){ 0, 1 });
	} else if (which ==
		   3) { /* a stream is found while a launch into one that is idle is on its way */
		launch_meanwhile((struct slow){ 5, 100, 50 }, (struct slow){ 6, 1 },
				 (struct slow){ 6, 1 });
	} else if (which == 4) { /* two threads launch into one stream: before and behind a launch
				    that is on its way, */
		launch_meanwhile((struct slow){ 5, 1, .behind = 60 }, (struct slow){ 5, 80 },
				 (struct slow){ 5, 2 });
		launch_meanwhile((struct slow){ 5, 1, .before = 60 }, (struct slow){ 5, 80 },
				 (struct slow){ 5, 2 });
		for (unsigned i = 0; i < 2; i++) { /* and where that stream was busy before */
			launch_slow(launch, (struct slow){ 5, 100 });
			launch_meanwhile((struct slow){ 5, 1, i ? 0 : 60, i ? 60 : 0 },
					 (struct slow){ 5, 80 }, (struct slow){ 5, 2 });
		}
	} else if (which == 5) { /* or into two that wait for each other */
		launch_meanwhile((struct slow){ 5, 1, .before = 60 }, (struct slow){ 0, 80 },
				 (struct slow){ 5, 2 });
		launch_meanwhile((struct slow){ 0, 1, .behind = 60 }, (struct slow){ 5, 80 },
				 (struct slow){ 0, 2 });
		launch_meanwhile((struct slow){ 0, 1, .before = 60 }, (struct slow){ 5, 80 },
				 (struct slow){ 0, 2 });
	} else if (which == 6) { /* a stream ends before what is in it */
		launch_slow(launch, (struct slow){ 5, 30 });
		destroy_stream((void *)5);
		launch_slow(launch, (struct slow){ 5, 1 });
		usleep(40000);
	} else if (which == 7) { /* no events can be recorded */
		for (unsigned i = 0; i < 5; i++) {
			launch_slow(launch, (struct slow){ 0x666, 1 });
			launch_slow(launch, (struct slow){ 0x667, 1 });
		}
	} else if (which == 8) { /* another thread has the events of all for too long */
		slow_create(200);
		launch_meanwhile((struct slow){ 5, 1, .before = 60 }, (struct slow){ 6, 1 },
				 (struct slow){ 7, 1 });
	}
	synchronize();
}

/* Two contexts on a device, in turn. */
static void case_contexts(long count) {
	int (*set_current)(void *);

	*(void **)&set_current = find("cuCtxSetCurrent");
	for (long i = 0; i < count; i++) {
		set_current((void *)(i % 2 ? 0x2000ul : 0x1000ul));
		launch_slow(launch, (struct slow){ (uintptr_t)(5 + i % 2), 1 });
		synchronize();
		usleep(i ? 100000 : 400000);
	}
}

/* Nothing waits for the kernels but a copy, then time, and then nobody. */
static void case_gpu_end(long count) {
	int (*copy)(void *, uint64_t, size_t), (*destroy)(void *);
	char bytes[8];

	*(void **)&copy = find("cuMemcpyDtoH_v2");
	*(void **)&destroy = find("cuCtxDestroy_v2");
	for (unsigned way = 0; way < 3; way++) {
		for (long i = 0; i < count; i++)
			launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
		if (way == 0)
			copy(bytes, 0, sizeof(bytes));
		else if (way == 1)
			usleep((useconds_t)count * 2500);
		if (way)
			say("left", destroy((void *)0x1000));
	}
}

/* As many launches behind one that takes 3 s. */
static void case_gpu_many(long count) {
	launch_slow(launch, (struct slow){ 5, 3000 });
	for (long i = 0; i < count; i++)
		launch_slow(launch, (struct slow){ 5, 0 });
	synchronize();
}

/* So many streams with two launches each; nobody waits for them, and the program ends by itself. */
static void case_gpu_exit(long count) {
	for (long i = 0; i < 2 * count; i++)
		launch_slow(launch, (struct slow){ (uintptr_t)(0x100 + i % count), 1 });
}

/* It ends while a kernel runs that takes too long, or whose context has failed. */
static void case_gpu_unknown(long runs) {
	int (*fail)(int);

	launch_slow(launch, (struct slow){ 5, 1 });
	synchronize();
	launch_slow(launch, (struct slow){ 5, runs ? (unsigned)runs : 10 });
	if (runs)
		return;
	*(void **)&fail = find("mock_fail");
	fail(710);
	say("synchronize", synchronize());
}

/* The GPU is busy with what others have given it: no event is complete for a while. */
static void case_gpu_busy(long milliseconds) {
	int (*occupy)(int);

	*(void **)&occupy = find("mock_occupy");
	launch_slow(launch, (struct slow){ 5, 1 });
	occupy((int)milliseconds);
	for (unsigned i = 0; i < 40; i++)
		launch_slow(launch, (struct slow){ 5 + i % 8, 1 });
	synchronize();
}

/* It is cancelled, and a launch is no place where that may happen. */
static void *launch_cancelled(void *unused) {
	pthread_cancel(pthread_self());
	launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
	say("launched", 1);
	pthread_testcancel();
	say("not cancelled", 1);
	return NULL;
}

static long pages(void) {
	FILE *file = fopen("/proc/self/statm", "r");
	long count = 0;

	if (!file || fscanf(file, "%ld", &count) != 1)
		exit(1);
	fclose(file);
	return count;
}

/* What calls of the driver inside a launch leave behind: errno, a cancelled thread, memory. */
static void case_behind(long count) {
	int (*release_primary)(int);
	pthread_t thread;
	long before;

	*(void **)&release_primary = find("cuDevicePrimaryCtxRelease_v2");
	errno = 4242;
	launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	say("errno", errno);
	pthread_create(&thread, NULL, launch_cancelled, NULL);
	pthread_join(thread, NULL);
	release_primary(0);
	launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	before = pages();
	for (long i = 0; i < count; i++) {
		release_primary(0);
		launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	}
	say("grown", pages() - before > 1024);
}

/* A thread that is being cancelled calls: that is no place where it ends. */
static void *call_cancelled(void *unused) {
	pthread_cancel(pthread_self());
	release(5);
	say("called", 1);
	pthread_testcancel();
	return NULL;
}

/* Does what it is told: NUMBER calls for each line, or (-1) one in a thread that is being
 * cancelled. */
static void case_steps(long unused) {
	pthread_t thread;
	long count;

	while (scanf("%ld", &count) == 1) {
		if (count < 0) {
			pthread_create(&thread, NULL, call_cancelled, NULL);
			pthread_join(thread, NULL);
		} else {
			thread_calls((void *)count);
		}
		say("did", count);
	}
}

/* As above, with launches that are waited for; of -N, N that are not. */
static void case_launches(long unused) {
	long count;

	while (scanf("%ld", &count) == 1) {
		for (long i = 0; i < labs(count); i++)
			launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
		if (count > 0)
			synchronize();
		say("did", count);
	}
}

static void case_copies(long count) {
	int (*copy)(uint64_t, const void *, size_t, void *);

	*(void **)&copy = find("cuMemcpyHtoDAsync_v2");
	for (long i = 0; i < count; i++)
		copy(0x7000000, &count, sizeof(count), (void *)5);
	synchronize();
}

static atomic_bool over;

/* Threads come and go, and each calls all the time. */
static void *busy_thread(void *unused) {
	while (!over) {
		for (int i = 0; i < 200; i++) {
			release((uint64_t)i);
			launch((void *)0x5001, 1, 1, 1, 1, 1, 1, 0, (void *)1, NULL, NULL);
		}
		pthread_testcancel();
	}
	return NULL;
}

static void case_busy(long count) {
	pthread_t threads[64];
	char byte;

	for (long i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, busy_thread, NULL);
	say("in call", 1);
	while (read(0, &byte, 1) == 1 && byte != 'e') {
		/* one ends, another begins */
		pthread_cancel(threads[0]);
		pthread_join(threads[0], NULL);
		pthread_create(&threads[0], NULL, busy_thread, NULL);
	}
	over = true;
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	thread_calls((void *)3);
	say("did", 1);
	case_steps(0);
}

/* As case_steps(), in a sandbox that kills for all but reading and writing. */
static void case_sandboxed(long unused) {
#define ALLOW(number)                                        \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_clock_gettime), /* where there is no vDSO */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	char line[32];
	ssize_t length;

	thread_calls((void *)1);
	say("sandboxed", 1);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		exit(77);
	while ((length = read(0, line, sizeof(line) - 1)) > 0) {
		line[length] = 0;
		for (long i = 0; i < atol(line); i++) {
			release(1);
			launch_one(0x5001);
		}
		say("did", atol(line));
	}
	_exit(0);
}

/* A thread is in a call when the session ends, and leaves it later. */
static void wait_in_call(void *unused) {
	char byte;

	say("in call", 1);
	if (read(0, &byte, 1) != 1)
		exit(1);
}

static void case_inside(long unused) {
	host_function(NULL, wait_in_call, NULL);
	say("did", 1);
	case_steps(0);
}

int main(int argc, char **argv) {
	long number = argc > 2 ? atol(argv[2]) : 0, other = argc > 3 ? atol(argv[3]) : 0;
	static const struct {
		const char *name;
		void (*run)(long);
	} cases[] = {
		{ "plain", case_plain },
		{ "arguments", case_arguments },
		{ "names", case_names },
		{ "fork", case_fork },
		{ "fork-inside", case_fork_inside },
		{ "signal", case_signal },
		{ "callbacks", case_callbacks },
		{ "steps", case_steps },
		{ "inside", case_inside },
		{ "gpu", case_gpu },
		{ "gpu-end", case_gpu_end },
		{ "gpu-many", case_gpu_many },
		{ "gpu-exit", case_gpu_exit },
		{ "gpu-unknown", case_gpu_unknown },
		{ "gpu-busy", case_gpu_busy },
		{ "busy", case_busy },
		{ "behind", case_behind },
		{ "launches", case_launches },
		{ "copies", case_copies },
		{ "slow", case_slow },
		{ "contexts", case_contexts },
		{ "sandboxed", case_sandboxed },
	};

	if (argc > 1 && !strcmp(argv[1], "first")) {
		case_first(number, other);
		return 0;
	}
	start();
	if (argc > 1 && !strcmp(argv[1], "threads"))
		case_threads(number, other);
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name))
			cases[i].run(number);
	return 0;
}
