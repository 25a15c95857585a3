/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches small kernels as it is told, a command a line; answers each with a line of JSON.
 * twins.py attaches meanwhile.
 *
 *   pace MS     launches `work` and waits for it, once a millisecond, for MS milliseconds: each
 * launch
 *               as [when it began, how long the call took, how long until it was done], nanoseconds of
 *               CLOCK_MONOTONIC
 *   graph N     makes an executable graph of N nodes of `work`
 *   replay MS   the same as pace, but launches that graph
 *   update N    updates that graph as a whole and launches it, N times: microseconds of one
 *   overlap N   launches `spin` N times in each of two streams at once, each for a time of its own
 *   loop N      launches `work` N times: nanoseconds of one
 */

#include <string.h>
#include <time.h>

#include "../targets/driver.h"

#define THREADS 32

extern const unsigned char twins_fatbin[];

static CUdeviceptr out;
static CUstream streams[2];
static CUfunction work, spin;
static CUgraph graph;
static CUgraphExec exec;

static long long now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void launch(void) {
	void *parameters[] = { &out };

	CHECK(driver.launch_kernel(work, 1, 1, 1, THREADS, 1, 1, 0, streams[0], parameters, NULL));
}

static void make_graph(int nodes) {
	if (exec) {
		CHECK(driver.graph_exec_destroy(exec));
		CHECK(driver.graph_destroy(graph));
	}
	CHECK(driver.stream_begin_capture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < nodes; i++)
		launch();
	CHECK(driver.stream_end_capture(streams[0], &graph));
	CHECK(driver.graph_instantiate(&exec, graph, 0));
	printf("%d\n", nodes);
}

static void pace(int milliseconds, bool replay) {
	const long long start = now_ns();
	long long begin = start, called, next = start;

	while (begin - start < milliseconds * 1000000LL) {
		if (replay)
			CHECK(driver.graph_launch(exec, streams[0]));
		else
			launch();
		called = now_ns();
		CHECK(driver.stream_synchronize(streams[0]));
		printf("%s[%lld, %lld, %lld]", begin == start ? "[" : ", ", begin, called - begin,
		       now_ns() - begin);
		next += 1000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME,
				&(struct timespec){ next / 1000000000, next % 1000000000 }, NULL);
		begin = now_ns();
	}
	printf("]\n");
}

static void update(int count) {
	const long long begin = now_ns();
	CUgraphExecUpdateResultInfo info;

	for (int i = 0; i < count; i++) {
		CHECK(driver.graph_exec_update(exec, graph, &info));
		CHECK(driver.graph_launch(exec, streams[0]));
	}
	CHECK(driver.stream_synchronize(streams[0]));
	printf("%.3f\n", (double)(now_ns() - begin) / 1e3 / count);
}

static void overlap(int count) {
	for (unsigned i = 0; i < (unsigned)count; i++)
		for (unsigned stream = 0; stream < 2; stream++) {
			unsigned long long nanoseconds =
				20000 + 2000 * ((i * 7 + stream * 13) % 64);
			CUdeviceptr where = out + stream * THREADS * sizeof(unsigned);
			void *parameters[] = { &nanoseconds, &where };

			CHECK(driver.launch_kernel(spin, 1, 1, 1, THREADS, 1, 1, 0, streams[stream],
						   parameters, NULL));
		}
	CHECK(driver.ctx_synchronize());
	printf("%d\n", count);
}

static void loop(int count) {
	const long long begin = now_ns();

	for (int i = 0; i < count; i++)
		launch();
	CHECK(driver.stream_synchronize(streams[0]));
	printf("%.1f\n", (double)(now_ns() - begin) / count);
}

static void answer(const char *word, int count) {
	if (!strcmp(word, "pace") || !strcmp(word, "replay")) {
		pace(count, word[0] == 'r');
	} else if (!strcmp(word, "graph")) {
		make_graph(count);
	} else if (!strcmp(word, "update")) {
		update(count);
	} else if (!strcmp(word, "overlap")) {
		overlap(count);
	} else if (!strcmp(word, "loop")) {
		loop(count);
	} else {
		fprintf(stderr, "twins: no command is called %s\n", word);
		exit(2);
	}
}

int main(void) {
	char line[256], word[32];
	CUmodule module;

	driver_start(false);
	CHECK(driver.module_load_data(&module, twins_fatbin));
	CHECK(driver.module_get_function(&work, module, "work"));
	CHECK(driver.module_get_function(&spin, module, "spin"));
	CHECK(driver.mem_alloc(&out, 4096));
	CHECK(driver.memset_d8(out, 0, 4096));
	for (int i = 0; i < 2; i++)
		CHECK(driver.stream_create(&streams[i], CU_STREAM_NON_BLOCKING));
	launch();
	CHECK(driver.ctx_synchronize());
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int count = 0;

		if (sscanf(line, "%31s %d", word, &count) < 1)
			continue;
		answer(word, count);
		fflush(stdout);
	}
	return 0;
}
