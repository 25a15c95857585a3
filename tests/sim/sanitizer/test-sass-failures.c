/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of libgpuprobe-sass.so. What is refused, what fails, who was here before: a line says so,
 * and the application does not notice.
 */

#include <pthread.h>

#include "test-sass.h"

void test_errors(void) {
	static const struct patch_point missing[] = { { PATCH_BLOCK_ENTER, 0, "p_nothing" } },
					wrong[] = { { PATCH_BARRIER, 0, "p_enter" } },
					half[] = { { PATCH_BLOCK_ENTER, 0, "p_enter" },
						   { PATCH_BLOCK_EXIT, 0, "p_nothing" } },
					exits[] = { { PATCH_BLOCK_EXIT, 0, "p_exit" } },
					unknown[] = { { 99, 0, "p_enter" } },
					error[] = { { PATCH_BLOCK_ENTER, 0, "p_error" } };
	struct patch_point endless = { PATCH_BLOCK_ENTER, 0, "" };
	driver_pointer counters, more;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	GOOD(engine->alloc(context, &more, sizeof(is)));
	GOOD(engine->write(context, more, &(struct counters){}, sizeof(is)));
	EQUAL(cuMemcpyDtoH_v2(&is, more, sizeof(is)),
	      CUDA_ERROR_INVALID_VALUE); /* it is not the driver's */
	GOOD(engine->free(context, more));
	FAILS(engine->write(context, more, &is, sizeof(is)),
	      "sanitizerMemcpyHostToDeviceAsync failed");
	memset(endless.symbol, 'x', sizeof(endless.symbol));
	FAILS(engine->start(library_path, &events), "has been started");
	FAILS(engine->load_image(context, "not PTX at all"), "sanitizerAddPatches failed");
	FAILS(engine->patch(module, missing, 1),
	      "sanitizerPatchInstructions failed: One or more of the parameters is invalid (1)");
	FAILS(engine->patch(module, wrong, 1), "sanitizerPatchInstructions failed");
	FAILS(engine->patch(module, unknown, 1), "sanitizerPatchInstructions failed");
	FAILS(engine->patch(module, &endless, 1), "has no end");
	FAILS(engine->write(context, 4096, &is, 8), "sanitizerMemcpyHostToDeviceAsync failed");
	reduce(function); /* with nothing left of it all */
	is = take(counters);
	expect_nothing(&is);
	FAILS(engine->patch(module, half, 2), "sanitizerPatchInstructions failed");
	GOOD(engine->patch(module, exits, 1)); /* and that alone */
	GOOD(engine->set_data(function, counters));
	reduce(function);
	is = take(counters);
	EQUAL(is.enters, 0);
	EQUAL(is.exits, 512);
	GOOD(engine->patch(module, error, 1));
	OK(cuLaunchKernel(function_of(module, "warpFunctions"), 1, 1, 1, 1, 1, 1, 0, NULL,
			  (void *[]){ &reduce_in, &reduce_in }, NULL));
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

/* Each call that can fail does, and the application does not notice. */
void test_failures(void) {
	driver_pointer counters, more;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);
	static const char *const of_patch[][2] = {
		{ "mark", "sanitizerPatchInstructions failed" },
		{ "patch", "sanitizerPatchModule failed: Unknown error (999)" },
	};

	setenv("GPUPROBE_SANITIZER_FAIL", "unpatch", 1);
	FAILS(engine->unpatch(module), "sanitizerUnpatchModule failed");
	FAILS(engine->patch(module, ALL), "sanitizerUnpatchModule failed");
	reduce(function); /* as it was */
	is = take(counters);
	reduce_expect(&is);
	for (int n = 0; n < 2; n++) {
		setenv("GPUPROBE_SANITIZER_FAIL", of_patch[n][0], 1);
		FAILS(engine->patch(module, ALL), of_patch[n][1]);
		reduce(function);
		is = take(counters);
		expect_nothing(&is);
	}
	setenv("GPUPROBE_SANITIZER_FAIL", "image", 1);
	FAILS(engine->load_image(context, patches), "sanitizerAddPatches failed");
	setenv("GPUPROBE_SANITIZER_FAIL", "data", 1);
	FAILS(engine->set_data(function, counters), "sanitizerSetCallbackData failed");
	setenv("GPUPROBE_SANITIZER_FAIL", "alloc", 1);
	FAILS(engine->alloc(context, &more, 64), "sanitizerAlloc failed: Out of memory (7)");
	setenv("GPUPROBE_SANITIZER_FAIL", "write", 1);
	FAILS(engine->write(context, counters, &is, 8), "sanitizerMemcpyHostToDeviceAsync failed");
}

void test_other_tool(void) {
	setenv("GPUPROBE_SANITIZER_FAIL", "subscribe", 1);
	load_engine();
	OK(cuInit(0));
	FAILS(engine->start(library_path, &events),
	      "another tool (CUPTI, Nsight, compute-sanitizer, cuda-gdb) has the patching "
	      "interface");
	engine->stop();
}

void test_too_old(void) {
	setenv("GPUPROBE_SANITIZER_FAIL", "old", 1);
	load_engine();
	OK(cuInit(0));
	FAILS(engine->start(library_path, &events), "older than CUDA 12.3");
	make_context();
	load(kernels_image);
	EQUAL(seen.loaded, 0);
}

/* What was made before is out of reach. */
void test_late(void) {
	CUmodule module;

	load_engine();
	OK(cuInit(0));
	make_context();
	load(kernels_image);
	GOOD(engine->start(library_path, &events));
	FAILS(engine->load_image(context, patches),
	      "sanitizerAddPatches failed: One or more of the parameters is invalid (1)");
	module = load(kernels_image);
	EQUAL(seen.loaded, 1);
	FAILS(engine->patch(module, ALL), "sanitizerPatchInstructions failed");
}

static CUfunction spinning;
static CUdeviceptr spin_flags;

static void *spin(void *unused) {
	void *parameters[] = { &spin_flags };

	OK(cuCtxSetCurrent(context));
	OK(cuLaunchKernel(spinning, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	return NULL;
}

/* The stand-in is as unkind as a GPU about a launch at the same time. */
void test_at_once(void) {
	volatile uint32_t *flags;
	pthread_t thread;
	CUmodule module;

	begin();
	module = load(kernels);
	GOOD(engine->load_image(context, patches));
	OK(cuMemAlloc_v2(&spin_flags, 8));
	OK(cuMemsetD8_v2(spin_flags, 0, 8));
	flags = (volatile uint32_t *)(uintptr_t)spin_flags;
	spinning = function_of(module, "spin");
	CHECK(!pthread_create(&thread, NULL, spin, NULL));
	while (!flags[0])
		usleep(100);
	FAILS(engine->patch(module, ALL), "sanitizerPatchModule failed: Unknown error (999)");
	flags[1] = 1;
	pthread_join(thread, NULL);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

static CUmodule patched_module;
static pthread_t unpatching;

static void *unpatch(void *unused) {
	GOOD(engine->unpatch(patched_module));
	return NULL;
}

/* It comes to the function's data, and waits there for this event. */
static void unpatch_meanwhile(driver_handle module) {
	CHECK(!pthread_create(&unpatching, NULL, unpatch, NULL));
	usleep(300000);
}

/* One module is unpatched while another is unloaded: neither thread waits for the other for good.
 */
void test_unload_meanwhile(void) {
	driver_pointer counters;
	CUmodule other;

	patched_reduce(&patched_module, &counters);
	other = load(kernels_image);
	alarm(60);
	seen.on_unload = unpatch_meanwhile;
	OK(cuModuleUnload(other));
	seen.on_unload = NULL;
	pthread_join(unpatching, NULL);
	EQUAL(seen.unloading, 1);
}
