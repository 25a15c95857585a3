/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests/e2e/test-launch.py. Launches kernels of a PTX file (launches.ptx) in all the
 * ways that arguments can be given, by threads and in streams of its own. A kernel adds 1 to the
 * variable `total` in each thread.
 *
 *   load PATH              a module
 *   library PATH           a library, whose kernels are launched as functions
 *   launch HOW KERNEL N    N launches, and waits for them. HOW: pointers, extra (a buffer), padded
 *                          (a buffer that is larger than the parameters), short (one that is
 *                          smaller: it must fail), ex (cuLaunchKernelEx), cooperative, legacy (the
 *                          default stream), own (the thread's own), handle (of a library's kernel)
 *                          Answers with the thread's id and the stream.
 *   streams T KERNEL N NS  N launches by each of T threads in a stream of its own, which is waited
 *                          for at the end; `spin` runs on for NS nanoseconds in the first thread's.
 *                          Answers with id and stream of each thread.
 *   sum                    the variable
 *
 * Each command is answered with a line: "ok" and numbers. Exits 0 at the end of its input.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"

#define BLOCKS 4
#define THREADS 64
#define STREAMS_MAX 8
#define WIDE 200

static struct {
	CUcontext context;
	CUmodule module;
	CUlibrary library;
	CUstream stream;
	__typeof__(cuLaunchKernel) *launch_own; /* cuLaunchKernel_ptsz */
} state;

/* The arguments of every kernel: `one` is 1, the others are 0. */
static struct arguments {
	struct {
		uint32_t one;
		uint64_t wide;
		uint8_t last;
	} named;
	struct {
		uint32_t one;
		uint64_t ns;
	} spin;
	unsigned char filled[4096];
	uint32_t wide[WIDE];
} all = { .named.one = 1, .spin.one = 1, .filled = { 1 }, .wide = { [WIDE - 1] = 1 } };

/* Where the parameters of a kernel are. */
static size_t list_arguments(const char *kernel, struct arguments *from, void **list,
			     void **bytes) {
	if (!strcmp(kernel, "named")) {
		list[0] = &from->named.one;
		list[1] = &from->named.wide;
		list[2] = &from->named.last;
		*bytes = &from->named;
		return offsetof(__typeof__(from->named), last) + 1;
	}
	if (!strcmp(kernel, "spin")) {
		list[0] = &from->spin.one;
		list[1] = &from->spin.ns;
		*bytes = &from->spin;
		return sizeof(from->spin);
	}
	if (!strcmp(kernel, "filled")) {
		list[0] = *bytes = from->filled;
		return sizeof(from->filled);
	}
	if (!strcmp(kernel, "wide")) {
		for (size_t i = 0; i < WIDE; i++)
			list[i] = &from->wide[i];
		*bytes = from->wide;
		return sizeof(from->wide);
	}
	*bytes = NULL;
	return 0;
}

static CUfunction function_of(const char *kernel, bool handle) {
	CUfunction function;
	CUkernel found;

	if (!state.library) {
		CHECK(driver.module_get_function(&function, state.module, kernel));
		return function;
	}
	CHECK(driver.library_get_kernel(&found, state.library, kernel));
	if (handle)
		return (CUfunction)found;
	CHECK(driver.kernel_get_function(&function, found));
	return function;
}

static CUresult launch_extra(CUfunction function, void *bytes, size_t size, CUstream stream) {
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };

	return driver.launch_kernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, extra);
}

static CUresult launch_ex(CUfunction function, void **list, CUstream stream) {
	const CUlaunchConfig config = { .gridDimX = BLOCKS,
					.gridDimY = 1,
					.gridDimZ = 1,
					.blockDimX = THREADS,
					.blockDimY = 1,
					.blockDimZ = 1,
					.hStream = stream };

	return driver.launch_kernel_ex(&config, function, list, NULL);
}

/* One launch. Returns false if there is no such way. */
static bool launch(const char *how, CUfunction function, const char *kernel,
		   struct arguments *arguments, CUstream stream) {
	void *list[WIDE], *bytes, **given;
	size_t size = list_arguments(kernel, arguments, list, &bytes);

	given = size ? list : NULL;
	if (!strcmp(how, "extra"))
		CHECK(launch_extra(function, bytes, size, stream));
	else if (!strcmp(how, "padded"))
		CHECK(launch_extra(function, bytes, (size + 15) / 8 * 8, stream));
	else if (!strcmp(how, "short"))
		return launch_extra(function, bytes, size - 1, stream) != CUDA_SUCCESS;
	else if (!strcmp(how, "ex"))
		CHECK(launch_ex(function, given, stream));
	else if (!strcmp(how, "cooperative"))
		CHECK(driver.launch_cooperative(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream,
						given));
	else if (!strcmp(how, "own"))
		CHECK(state.launch_own(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, given,
				       NULL));
	else
		CHECK(driver.launch_kernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, given,
					   NULL));
	return true;
}

static bool run_launch(const char *how, const char *kernel, int count) {
	CUfunction function = function_of(kernel, !strcmp(how, "handle"));
	CUstream stream = state.stream;

	if (!strcmp(how, "legacy") || !strcmp(how, "own"))
		stream = NULL;
	for (int i = 0; i < count; i++)
		if (!launch(how, function, kernel, &all, stream))
			return false;
	CHECK(driver.ctx_synchronize());
	printf("ok %ld %lu\n", syscall(SYS_gettid), (unsigned long)(uintptr_t)stream);
	return true;
}

/* What one thread does. */
struct thread {
	pthread_t thread;
	CUfunction function;
	const char *kernel;
	pthread_barrier_t *barrier;
	int count;
	uint64_t ns;
	long tid;
	CUstream stream;
};

static void *thread_run(void *userdata) {
	struct thread *thread = userdata;
	struct arguments arguments = all;

	arguments.spin.ns = thread->ns;
	thread->tid = syscall(SYS_gettid);
	CHECK(driver.ctx_set_current(state.context));
	CHECK(driver.stream_create(&thread->stream, CU_STREAM_NON_BLOCKING));
	pthread_barrier_wait(thread->barrier);
	for (int i = 0; i < thread->count; i++)
		launch("pointers", thread->function, thread->kernel, &arguments, thread->stream);
	CHECK(driver.stream_synchronize(thread->stream));
	pthread_barrier_wait(thread->barrier); /* so that two threads have two streams */
	CHECK(driver.stream_destroy(thread->stream));
	return NULL;
}

static bool run_streams(int threads, const char *kernel, int count, unsigned long ns) {
	struct thread all_threads[STREAMS_MAX] = {};
	pthread_barrier_t barrier;

	if (threads < 1 || threads > STREAMS_MAX)
		return false;
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		all_threads[i] = (struct thread){ .function = function_of(kernel, false),
						  .kernel = kernel,
						  .barrier = &barrier,
						  .count = count,
						  .ns = i ? 0 : ns };
		if (pthread_create(&all_threads[i].thread, NULL, thread_run, &all_threads[i]))
			return false;
	}
	for (int i = 0; i < threads; i++)
		pthread_join(all_threads[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	printf("ok");
	for (int i = 0; i < threads; i++)
		printf(" %ld %lu", all_threads[i].tid,
		       (unsigned long)(uintptr_t)all_threads[i].stream);
	puts("");
	return true;
}

static bool run_sum(void) {
	unsigned total;
	CUdeviceptr where;
	size_t size;
	__typeof__(cuLibraryGetGlobal) *get_global = (__typeof__(get_global))dlsym(
		dlopen("libcuda.so.1", RTLD_NOW), "cuLibraryGetGlobal");

	if (state.library)
		CHECK(get_global(&where, &size, state.library, "total"));
	else
		CHECK(driver.module_get_global(&where, &size, state.module, "total"));
	CHECK(driver.memcpy_to_host(&total, where, sizeof(total)));
	printf("ok %u\n", total);
	return true;
}

static bool load_library(const char *path) {
	static char text[1 << 16];
	FILE *file = fopen(path, "r");

	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	CHECK(driver.library_load_data(&state.library, text, NULL, NULL, 0, NULL, NULL, 0));
	puts("ok");
	return true;
}

static bool run(const char *line) {
	char verb[16] = "", first[256] = "", kernel[64] = "";
	int words, count = 0;
	unsigned long ns = 0;

	words = sscanf(line, "%15s %255s %63s %d %lu", verb, first, kernel, &count, &ns);
	if (!strcmp(verb, "sum"))
		return run_sum();
	if (!strcmp(verb, "library") && words == 2)
		return load_library(first);
	if (!strcmp(verb, "load") && words == 2) {
		CHECK(driver.module_load(&state.module, first));
		puts("ok");
		return true;
	}
	if (!strcmp(verb, "launch") && words == 4)
		return run_launch(first, kernel, count);
	return !strcmp(verb, "streams") && words == 5 &&
	       run_streams(atoi(first), kernel, count, ns);
}

int main(void) {
	char line[512];
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&state.context, device));
	CHECK(driver.stream_create(&state.stream, CU_STREAM_NON_BLOCKING));
	*(void **)&state.launch_own =
		dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel_ptsz");
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!run(line)) {
			fprintf(stderr, "launch_driver: %s", line);
			return 2;
		}
		fflush(stdout);
	}
	return 0;
}
