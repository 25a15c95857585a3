/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. A process that makes it hard for who patches its modules. Kernels are
 * vectorAdd of language.cu, 4 blocks of 64 threads.
 *
 *   launch N      N launches, and waits for them
 *   abandon       begins a capture, and destroys its stream
 *   reborn        a capture begins in a context that has the handle of one whose end is not over:
 *                 it takes (s-slow.c) till an event is synchronised with; launches go there from
 *                 then on
 *   end           ends that capture, which must be in order
 *   storm T       T threads capture, launch and load modules in turns, and one launches, until
 *                 `calm`
 *   calm          waits for them; rounds that they made, and launches
 *
 * Each command is answered with a line: "ok" and numbers. A call of the driver that fails ends the
 * process. Exits 0 at the end of its input.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

#define THREADS_MAX 16
#define WORDS 1024
#define TRIES 1000

extern const unsigned char language_image[];

static CUcontext context;
static CUfunction function;
static CUdeviceptr data;

atomic_int s_slow, s_slow_waits; /* s-slow.c */

static CUstream captured;

static struct {
	pthread_t threads[THREADS_MAX + 1];
	int count;
	atomic_bool stop;
	atomic_ulong rounds, launches;
} storm;

static void launch(CUfunction launched, CUstream stream) {
	CHECK(driver.launch_kernel(launched, 4, 1, 1, 64, 1, 1, 0, stream, (void *[]){ &data },
				   NULL));
}

/* A capture that must not end in anything but a graph; every fourth is abandoned. */
static void capture(int round) {
	CUstream stream;
	CUgraph graph;

	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(function, stream);
	if (round % 4) {
		CHECK(driver.stream_end_capture(stream, &graph));
		CHECK(driver.graph_destroy(graph));
	}
	CHECK(driver.stream_destroy(stream));
}

static void begin(void) {
	CUmodule module;

	CHECK(driver.mem_alloc(&data, WORDS * 4));
	CHECK(driver.module_load_data(&module, language_image));
	CHECK(driver.module_get_function(&function, module, "vectorAdd"));
}

static void *destroy(void *handle) {
	__typeof__(cuCtxDestroy_v2) *context_destroy;

	*(void **)&context_destroy = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxDestroy_v2");
	s_slow = 1;
	CHECK(context_destroy(handle));
	return NULL;
}

static void reborn(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuEventSynchronize) *synchronize =
		(__typeof__(synchronize))dlsym(library, "cuEventSynchronize");
	__typeof__(cuEventCreate) *create_event =
		(__typeof__(create_event))dlsym(library, "cuEventCreate");
	__typeof__(cuCtxCreate_v4) *create = (__typeof__(create))dlsym(library, "cuCtxCreate_v4");
	CUcontext before = NULL;
	pthread_t thread;
	CUevent event;

	CHECK(create(&before, NULL, 0, 0));
	if (pthread_create(&thread, NULL, destroy, before))
		exit(1);
	while (!s_slow_waits)
		usleep(1000);
	context = NULL;
	for (int i = 0; context != before; i++)
		if (i == TRIES || create(&context, NULL, 0, 0))
			exit(1);
	begin();
	CHECK(driver.stream_create(&captured, CU_STREAM_NON_BLOCKING));
	CHECK(create_event(&event, 0));
	CHECK(driver.stream_begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(function, captured);
	CHECK(synchronize(event));
	pthread_join(thread, NULL);
}

static void end(void) {
	CUgraph graph;

	CHECK(driver.stream_end_capture(captured, &graph));
	CHECK(driver.graph_destroy(graph));
}

static void load(void) {
	CUfunction loaded;
	CUmodule module;
	CUstream stream;

	CHECK(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(driver.module_load_data(&module, language_image));
	CHECK(driver.module_get_function(&loaded, module, "vectorAdd"));
	launch(loaded, stream);
	storm.launches++;
	CHECK(driver.stream_synchronize(stream));
	CHECK(driver.module_unload(module));
	CHECK(driver.stream_destroy(stream));
}

static void *storm_thread(void *captures) {
	CHECK(driver.ctx_set_current(context));
	for (int round = 0; !storm.stop; round++) {
		if (captures && round % 8)
			capture(round);
		else
			load();
		storm.rounds++;
	}
	return NULL;
}

static void storm_begin(int count) {
	storm.stop = false;
	storm.rounds = storm.launches = 0;
	for (storm.count = 0; storm.count <= count; storm.count++)
		if (pthread_create(&storm.threads[storm.count], NULL, storm_thread,
				   storm.count ? &storm : NULL))
			exit(1);
}

static void storm_end(void) {
	storm.stop = true;
	for (; storm.count; storm.count--)
		pthread_join(storm.threads[storm.count - 1], NULL);
}

/* Does what a line says. Returns false if it says nothing known. */
static bool run(const char *line) {
	char verb[16] = "";
	int number = 0;

	if (sscanf(line, "%15s %d", verb, &number) < 1 || number < 0 || number > 1000)
		return false;
	if (!strcmp(verb, "launch")) {
		for (int i = 0; i < number; i++)
			launch(function, NULL);
		if (!captured)
			CHECK(driver.ctx_synchronize());
	} else if (!strcmp(verb, "abandon")) {
		capture(0);
	} else if (!strcmp(verb, "reborn")) {
		reborn();
	} else if (!strcmp(verb, "end")) {
		end();
	} else if (!strcmp(verb, "storm") && number <= THREADS_MAX) {
		storm_begin(number);
	} else if (!strcmp(verb, "calm")) {
		storm_end();
	} else {
		return false;
	}
	printf("ok %lu %lu\n", storm.rounds, storm.launches);
	return true;
}

int main(void) {
	char line[256];
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	begin();
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!run(line)) {
			fprintf(stderr, "storm_driver: %s", line);
			return 2;
		}
		fflush(stdout);
	}
	return 0;
}
