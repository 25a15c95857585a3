/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A library that is loaded while no context is current, and whose
 * first launch is captured into a graph, in the mode that forbids everything else; the graph runs
 * three times.
 */

#include "s.h"

#define LAUNCHES 3

int main(void) {
	float in[S_THREADS], two[S_THREADS], out[S_THREADS], sum = 0;
	struct s_loaded loaded = { 0 };
	CUdeviceptr a, b, c;
	void *arguments[] = { &a, &b, &c };
	CUgraphExec exec;
	CUcontext context;
	CUstream stream;
	CUdevice device;
	CUgraph graph;

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.ctx_set_current(NULL));
	CHECK(driver.library_load_data(&loaded.library, vec_add_image, NULL, NULL, 0, NULL, NULL,
				       0));
	CHECK(driver.primary_retain(&context, device));
	CHECK(driver.ctx_set_current(context));
	s_get_function(&loaded);
	for (int i = 0; i < S_THREADS; i++) {
		in[i] = i;
		two[i] = 2;
	}
	CHECK(driver.mem_alloc(&a, sizeof(in)));
	CHECK(driver.mem_alloc(&b, sizeof(in)));
	CHECK(driver.mem_alloc(&c, sizeof(in)));
	CHECK(driver.memcpy_to_device(a, in, sizeof(in)));
	CHECK(driver.memcpy_to_device(b, two, sizeof(in)));
	CHECK(driver.stream_create(&stream, 1));
	CHECK(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(driver.launch_kernel(loaded.function, 2, 1, 1, S_THREADS / 2, 1, 1, 0, stream,
				   arguments, NULL));
	CHECK(driver.stream_end_capture(stream, &graph));
	CHECK(driver.graph_instantiate(&exec, graph, 0));
	for (int i = 0; i < LAUNCHES; i++)
		CHECK(driver.graph_launch(exec, stream));
	CHECK(driver.stream_synchronize(stream));
	CHECK(driver.memcpy_to_host(out, c, sizeof(out)));
	for (int i = 0; i < S_THREADS; i++)
		sum += out[i];
	printf("captured: %d\n", (int)sum);
	return 0;
}
