/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that makes it hard for who patches its modules. Kernels are vectorAdd of language.cu, 4 blocks of 64 threads.
 *
 *   launch N      N launches, and waits for them
 *   abandon       begins a capture, and destroys its stream
 *   storm T       T threads capture, launch and load modules in turns, and one launches, until `calm`
 *   calm          waits for them; rounds that they made, and launches
 *
 * Each command is answered with a line: "ok" and numbers. A call of the driver that fails ends the process. Exits 0 at the end of its input.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver.h"

#define THREADS_MAX 16
#define WORDS 1024

extern const unsigned char language_image[];

static CUcontext context;
static CUfunction function;
static CUdeviceptr data;

static struct {
	pthread_t threads[THREADS_MAX + 1];
	int count;
	atomic_bool stop;
	atomic_ulong rounds, launches;
} storm;

static void launch(CUfunction launched, CUstream stream)
{
	CHECK(driver.launch_kernel(launched, 4, 1, 1, 64, 1, 1, 0, stream, (void *[]){ &data }, NULL));
}

/* A capture that must not end in anything but a graph; every fourth is abandoned. */
static void capture(int round)
{
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

static void load(void)
{
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

static void *storm_thread(void *captures)
{
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

static void storm_begin(int count)
{
	storm.stop = false;
	storm.rounds = storm.launches = 0;
	for (storm.count = 0; storm.count <= count; storm.count++)
		if (pthread_create(&storm.threads[storm.count], NULL, storm_thread, storm.count ? &storm : NULL))
			exit(1);
}

static void storm_end(void)
{
	storm.stop = true;
	for (; storm.count; storm.count--)
		pthread_join(storm.threads[storm.count - 1], NULL);
}

/* Does what a line says. Returns false if it says nothing known. */
static bool run(const char *line)
{
	char verb[16] = "";
	int number = 0;

	if (sscanf(line, "%15s %d", verb, &number) < 1 || number < 0 || number > 1000)
		return false;
	if (!strcmp(verb, "launch")) {
		for (int i = 0; i < number; i++)
			launch(function, NULL);
		CHECK(driver.ctx_synchronize());
	} else if (!strcmp(verb, "abandon")) {
		capture(0);
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

int main(void)
{
	char line[256];
	CUmodule module;
	CUdevice device;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.mem_alloc(&data, WORDS * 4));
	CHECK(driver.module_load_data(&module, language_image));
	CHECK(driver.module_get_function(&function, module, "vectorAdd"));
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
