/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A target for tests of the shim. Short programs whose kernels all have times in a trace
 * (tests/e2e/test-trace-command.py). Prints how many launches there were.
 *
 *   s-shapes SHAPE END
 *
 * SHAPE: one; streams (40 streams, two kernels each, joined by events); callbacks (a host callback
 * behind each kernel); cooperative; events (500 launches in four streams, with an event behind
 * each) END: return, exit (of the process, without waiting), wait, reset, release (of the primary
 * context)
 */

#include "s.h"

#define STREAMS 40

static const struct s_loaded *kernel;
static CUdeviceptr a, b, c;
static int launches, called_back;

static void launch(CUstream stream) {
	void *arguments[] = { &a, &b, &c };

	CHECK(driver.launch_kernel(kernel->function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, stream,
				   arguments, NULL));
	launches++;
}

static void on_done(void *unused) {
	__atomic_add_fetch(&called_back, 1, __ATOMIC_RELAXED);
}

static void shape_streams(int streams, int rounds) {
	CUstream stream[STREAMS];
	CUevent event;

	for (int i = 0; i < streams; i++)
		CHECK(driver.stream_create(&stream[i], 1));
	CHECK(driver.event_create(&event, 0));
	for (int i = 0; i < streams * rounds; i++) {
		launch(stream[i % streams]);
		CHECK(driver.event_record(event, stream[i % streams]));
		CHECK(driver.stream_wait_event(stream[(i + 1) % streams], event, 0));
	}
	launch(NULL);
}

static void shape_callbacks(void) {
	for (int i = 0; i < 8; i++) {
		launch(NULL);
		CHECK(driver.launch_host_func(NULL, on_done, NULL));
	}
}

static void shape_cooperative(void) {
	void *arguments[] = { &a, &b, &c };

	CHECK(driver.launch_cooperative(kernel->function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, NULL,
					arguments));
	launches++;
}

static void end(const char *how) {
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "wait"))
		CHECK(driver.ctx_synchronize());
	else if (!strcmp(how, "reset"))
		CHECK(driver.primary_reset(0));
	else if (!strcmp(how, "release"))
		CHECK(driver.primary_release(0));
}

int main(int argc, char **argv) {
	const char *shape = argc > 1 ? argv[1] : "one";
	struct s_loaded loaded;

	driver_start(false);
	loaded = s_load(S_MODULE);
	kernel = &loaded;
	CHECK(driver.mem_alloc(&a, S_THREADS * sizeof(float)));
	CHECK(driver.mem_alloc(&b, S_THREADS * sizeof(float)));
	CHECK(driver.mem_alloc(&c, S_THREADS * sizeof(float)));
	if (!strcmp(shape, "streams"))
		shape_streams(STREAMS, 2);
	else if (!strcmp(shape, "events"))
		shape_streams(4, 125);
	else if (!strcmp(shape, "callbacks"))
		shape_callbacks();
	else if (!strcmp(shape, "cooperative"))
		shape_cooperative();
	else
		launch(NULL);
	printf("launches %d\n", launches);
	fflush(stdout);
	end(argc > 2 ? argv[2] : "return");
	return 0;
}
