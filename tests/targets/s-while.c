/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. What is done while a kernel runs, or while another thread
 * captures a stream:
 *   release  the primary context is released, and not for the last time
 *   unload   two threads unload modules, for longer than the daemon's deadline
 *   capture  a module is unloaded, and the primary context released, in each mode of the capture
 * and, while nothing runs:
 *   again    the primary context ends, and is there again
 * Says how many launches of S_THREADS threads there were. Also for a GPU: tests/gpu/suite.py.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "s.h"

#define HELD_US 1000000

/* Says that it runs, and ends when it may. */
static const char waiting_image[] =
	".version 7.0\n.target sm_75\n.address_size 64\n"
	".visible .entry waiting(.param .u64 flags)\n{\n"
	"\t.reg .pred %p;\n\t.reg .b32 %r;\n\t.reg .b64 %rd;\n"
	"\tld.param.u64 \t%rd, [flags];\n\tmov.u32 \t%r, 1;\n\tst.volatile.global.u32 \t[%rd], "
	"%r;\n"
	"$again:\n\tld.volatile.global.u32 \t%r, [%rd+4];\n\tsetp.eq.u32 \t%p, %r, 0;\n"
	"\t@%p bra \t$again;\n\tret;\n}\n";

static CUcontext context;
static CUdevice device;
static CUdeviceptr flags_address;
static volatile int *flags; /* it runs; it may end */
static CUfunction waiting;
static pthread_t waiter;
static int launches;

static void launched(const struct s_loaded *loaded) {
	launches++;
	if (s_launch(loaded) != 33152)
		exit(1);
}

static void *launch_waiting(void *unused) {
	void *arguments[] = { &flags_address };
	CUstream stream;

	CHECK(driver.ctx_set_current(context));
	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(driver.launch_kernel(waiting, 1, 1, 1, S_THREADS, 1, 1, 0, stream, arguments, NULL));
	CHECK(driver.stream_synchronize(stream));
	return unused;
}

static void prepare_waiting(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *memory;
	__typeof__(cuMemHostAlloc) *alloc;
	__typeof__(cuMemHostGetDevicePointer_v2) *get_address;
	CUmodule module;

	*(void **)&alloc = dlsym(library, "cuMemHostAlloc");
	*(void **)&get_address = dlsym(library, "cuMemHostGetDevicePointer_v2");
	CHECK(alloc(&memory, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(get_address(&flags_address, memory, 0));
	flags = memory;
	flags[0] = flags[1] = 0;
	CHECK(driver.module_load_data(&module, waiting_image));
	CHECK(driver.module_get_function(&waiting, module, "waiting"));
}

static void begin_waiting(void) {
	launches++;
	if (pthread_create(&waiter, NULL, launch_waiting, NULL))
		exit(1);
	while (!flags[0])
		usleep(1000);
}

static void end_waiting(void) {
	flags[1] = 1;
	pthread_join(waiter, NULL);
}

static void *unload(void *module) {
	CHECK(driver.ctx_set_current(context));
	return (void *)(long)driver.module_unload(module);
}

static void *release(void *unused) {
	return (void *)(long)driver.primary_release(device);
}

static void while_released(void) {
	struct s_loaded loaded = s_load(S_MODULE);

	launched(&loaded);
	prepare_waiting();
	begin_waiting();
	printf("released: %d\n", driver.primary_release(device));
	end_waiting();
	launched(&loaded);
}

static void while_unloaded(void) {
	struct s_loaded loaded[3];
	pthread_t threads[2];

	for (int i = 0; i < 3; i++) {
		loaded[i] = s_load(S_MODULE);
		launched(&loaded[i]);
	}
	prepare_waiting();
	begin_waiting();
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, unload, loaded[i].module))
			exit(1);
	usleep(HELD_US);
	end_waiting();
	for (int i = 0; i < 2; i++) {
		void *result;

		pthread_join(threads[i], &result);
		printf("unloaded: %ld\n", (long)result);
	}
	launched(&loaded[2]);
}

/* One capture, during which another thread does something. */
static void capture(const struct s_loaded *loaded, CUstreamCaptureMode mode, void *(*other)(void *),
		    void *userdata, const char *what) {
	CUdeviceptr memory;
	void *arguments[] = { &memory, &memory, &memory }, *result;
	CUgraph graph = NULL;
	CUgraphExec exec;
	CUstream stream;
	pthread_t thread;
	CUresult ended;

	CHECK(driver.mem_alloc(&memory, S_THREADS * sizeof(float)));
	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(driver.stream_begin_capture(stream, mode));
	if (pthread_create(&thread, NULL, other, userdata))
		exit(1);
	pthread_join(thread, &result);
	driver.launch_kernel(loaded->function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, stream, arguments,
			     NULL);
	ended = driver.stream_end_capture(stream, &graph);
	printf("mode %d: %s: %ld, the capture: %d\n", mode, what, (long)result, ended);
	if (!ended) {
		CHECK(driver.graph_instantiate(&exec, graph, 0));
		CHECK(driver.graph_launch(exec, stream));
		launches++;
		CHECK(driver.stream_synchronize(stream));
		CHECK(driver.graph_exec_destroy(exec));
		CHECK(driver.graph_destroy(graph));
	}
	CHECK(driver.stream_destroy(stream));
	CHECK(driver.mem_free(memory));
}

static void while_captured(void) {
	struct s_loaded captured = s_load(S_MODULE);

	launched(&captured);
	for (CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	     mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
		struct s_loaded loaded = s_load(S_MODULE);

		launched(&loaded);
		capture(&captured, mode, unload, loaded.module, "unloaded");
		CHECK(driver.primary_retain(&context, device));
		capture(&captured, mode, release, NULL, "released");
	}
}

static void again(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuCtxGetId) *get_id;
	unsigned long long id, before;

	*(void **)&get_id = dlsym(library, "cuCtxGetId");
	CHECK(get_id(context, &before));
	for (int i = 0; i < 3; i++) {
		struct s_loaded loaded = s_load(S_MODULE);

		launched(&loaded);
		CHECK(driver.primary_release(device));
		CHECK(driver.primary_release(device));
		CHECK(driver.primary_retain(&context, device));
		CHECK(driver.primary_retain(&context, device));
		CHECK(driver.ctx_set_current(context));
		CHECK(get_id(context, &id));
		printf("it is another one: %d\n", id != before);
		before = id;
	}
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IONBF, 0);
	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	if (!strcmp(what, "release"))
		while_released();
	else if (!strcmp(what, "unload"))
		while_unloaded();
	else if (!strcmp(what, "capture"))
		while_captured();
	else
		again();
	printf("threads=%d launches=%d\n", S_THREADS, launches);
	return 0;
}
