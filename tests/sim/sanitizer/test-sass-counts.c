/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of libgpuprobe-sass.so. What patches see of kernels, in all ways that kernels are loaded
 * and launched.
 */

#include "test-sass.h"

/* Between least and most groups of lanes enter together. */
static void counts_with(const char *threads, const char *turn, const char *warps, uint64_t least,
			uint64_t most) {
	driver_pointer counters;
	struct counters is;
	CUfunction function;
	CUmodule module;

	setenv("GPUPROBE_SIM_THREADS", threads, 1);
	setenv("GPUPROBE_SIM_TURN", turn, 1);
	setenv("GPUPROBE_SIM_WARPS", warps, 1);
	function = patched_reduce(&module, &counters);
	reduce(function);
	is = take(counters);
	reduce_expect(&is);
	CHECK(is.warps >= least && is.warps <= most);
}

void test_counts(void) {
	counts_with("1", "0", "", 512, 512); /* each lane is alone */
}

void test_counts_of_whole_warps(void) {
	counts_with("1", "0", "whole", 16, 16);
}

void test_counts_in_turns(void) {
	counts_with("4", "7", "whole", 16, 511); /* some lanes of a warp come late */
}

void test_repatch(void) {
	static const struct patch_point enter[] = { { PATCH_BLOCK_ENTER, 0, "p_enter" } };
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	GOOD(engine->unpatch(module));
	GOOD(engine->unpatch(module));
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
	GOOD(engine->patch(module, ALL));
	reduce(function); /* the data of before is not its data */
	is = take(counters);
	expect_nothing(&is);
	GOOD(engine->set_data(function, counters));
	reduce(function);
	is = take(counters);
	reduce_expect(&is);
	GOOD(engine->patch(module, enter, 1));
	GOOD(engine->set_data(function, counters));
	reduce(function);
	is = take(counters);
	EQUAL(is.enters, 512);
	EQUAL(is.exits + is.barriers + is.global.count + is.shared.count, 0);
	GOOD(engine->set_data(function, 0));
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
	engine->stop();
	OK(cuModuleUnload(module));
	EQUAL(seen.unloading, 0);
}

void test_cycles(void) {
	driver_pointer counters;
	struct counters is;
	size_t before, after, total;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	OK(cuMemGetInfo_v2(&before, &total));
	for (int n = 0; n < 1000; n++) {
		GOOD(engine->patch(module, ALL));
		GOOD(engine->set_data(function, counters));
		if (n % 100 == 0) {
			reduce(function);
			is = take(counters);
			reduce_expect(&is);
		}
		GOOD(engine->unpatch(module));
	}
	OK(cuMemGetInfo_v2(&after, &total));
	EQUAL(before, after);
}

void test_unload(void) {
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	reduce(function);
	OK(cuModuleUnload(module));
	EQUAL(seen.unloading, 1);
	engine->forget(module);
	GOOD(engine->unpatch(module)); /* the library is not called for it */
	is = take(counters);
	reduce_expect(&is);
	module = load(kernels_image);
	EQUAL(seen.loaded, 2);
	GOOD(engine->patch(module, ALL));
	function = function_of(module, "reduceSum");
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
	GOOD(engine->set_data(function, counters));
	reduce(function);
	is = take(counters);
	reduce_expect(&is);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQUAL(seen.ending, 1);
}

/* The module is told of as being unloaded, and is there all the same: it is unpatched before it is
 * patched anew. */
void test_refused(void) {
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function;

	setenv("GPUPROBE_SIM_REFUSE", "1", 1);
	function = patched_reduce(&module, &counters);
	EQUAL(cuModuleUnload(module), CUDA_ERROR_UNKNOWN);
	EQUAL(seen.unloading, 1);
	reduce(function);
	is = take(counters);
	reduce_expect(&is);
	GOOD(engine->patch(module, ALL));
	GOOD(engine->set_data(function, counters));
	reduce(function);
	is = take(counters);
	reduce_expect(&is);
	GOOD(engine->unpatch(module));
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
	OK(cuModuleUnload(module));
	EQUAL(seen.unloading, 2);
}

static driver_pointer load_counters;

/* In the event: all functions of the module get data, loaded or not. */
static void patch_on_load(driver_handle module) {
	CUfunction functions[16];
	unsigned count;

	GOOD(engine->load_image(context, patches));
	GOOD(engine->patch(module, ALL));
	load_counters = make_counters();
	OK(cuModuleGetFunctionCount(&count, module));
	CHECK(count > 0 && count <= 16);
	OK(cuModuleEnumerateFunctions(functions, count, module));
	for (unsigned n = 0; n < count; n++)
		GOOD(engine->set_data(functions[n], load_counters));
}

void test_lazy(void) {
	CUfunctionLoadingState state;
	struct counters is;
	CUfunction function, all[16];
	CUmodule module;
	unsigned count;

	setenv("GPUPROBE_SIM_LAZY", "1", 1);
	begin();
	reduce_prepare();
	seen.on_load = patch_on_load;
	module = load(kernels_image);
	OK(cuModuleGetFunctionCount(&count, module));
	OK(cuModuleEnumerateFunctions(all, count, module));
	OK(cuFuncIsLoaded(&state, all[0]));
	EQUAL(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
	EQUAL(seen.functions, 0);
	function = function_of(module, "reduceSum");
	EQUAL(seen.functions, 1);
	CHECK(seen.function == function);
	function_of(module, "reduceSum");
	EQUAL(seen.functions, 1);
	reduce(function);
	is = take(load_counters);
	reduce_expect(&is);
}

void test_library(void) {
	struct counters is;
	CUlibrary loaded;
	CUkernel kernel;

	begin();
	reduce_prepare();
	seen.on_load = patch_on_load;
	OK(cuLibraryLoadData(&loaded, kernels_image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, loaded, "reduceSum"));
	EQUAL(seen.loaded, 0);
	reduce((CUfunction)(void *)kernel); /* its module appears, and is patched, before it runs */
	EQUAL(seen.loaded, 1);
	CHECK(seen.library == loaded);
	is = take(load_counters);
	reduce_expect(&is);
	OK(cuLibraryUnload(loaded));
	EQUAL(seen.unloading, 1);
}

static CUgraphExec instantiate(CUgraph graph) {
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* What one launch of a graph counts. */
static struct counters replay(CUgraphExec exec, driver_pointer counters) {
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	reduce_check();
	return take(counters);
}

void test_graphs(void) {
	int n = REDUCE_N;
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);
	void *parameters[] = { &reduce_in, &reduce_out, &n };
	CUgraphExec before, during;
	CUgraph graph, clone;
	CUstream stream;

	GOOD(engine->unpatch(module));
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuLaunchKernel(function, 2, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
	make_counters(); /* may be called while somebody captures */
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphClone(&clone, graph));
	before = instantiate(graph);
	GOOD(engine->patch(module, ALL));
	GOOD(engine->set_data(function, counters));
	is = replay(before, counters);
	expect_nothing(&is);
	during = instantiate(clone);
	is = replay(during, counters);
	reduce_expect(&is);
	GOOD(engine->unpatch(module));
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
	is = replay(before, counters);
	expect_nothing(&is);
	OK(cuGraphLaunch(during, NULL)); /* the code that it has is gone */
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

/* Threads of the kernel `mixed` that do not leave early, of 32. */
#define STAY 16

void test_classes(void) {
	driver_pointer counters;
	CUdeviceptr out;
	void *parameters[] = { &out };
	struct counters is;
	CUfunction function;
	CUmodule module;

	begin();
	module = load(kernels);
	GOOD(engine->load_image(context, patches));
	GOOD(engine->patch(module, ALL));
	counters = make_counters();
	OK(cuMemAlloc_v2(&out, 512));
	function = function_of(module, "mixed");
	GOOD(engine->set_data(function, counters));
	OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	OK(cuCtxSynchronize());
	is = take(counters);
	EQUAL(is.enters, 32);
	EQUAL(is.exits, 32);
	EQUAL(is.calls, 2 * STAY);
	EQUAL(is.returns, 2 * STAY);
	CHECK(is.call_targets && !(is.call_targets % is.calls));
	EQUAL(is.syncs, STAY);
	EQUAL(is.sync_masks, STAY * UINT64_C(0x55555555));
	/* generic store and load, v4 store, v2 load, byte */
	EQUAL(is.global.count, 5 * STAY);
	EQUAL(is.global.bytes, (4 + 4 + 16 + 8 + 1) * STAY);
	EQUAL(is.global.reads, 2 * STAY);
	EQUAL(is.global.writes, 3 * STAY);
	EQUAL(is.global.values,
	      4 * 240); /* the sum of even numbers to 30, of the store of 4 bytes alone */
	EQUAL(is.global.first_bytes,
	      2 * 4 * 240 + 0); /* that, and the byte; 1.0f begins with a 0 */
	EQUAL(is.shared.count, STAY);
	EQUAL(is.shared.values, 4 * 240);
	EQUAL(is.shared.address, 4 * 240); /* offsets: the variable is at 0 */
	EQUAL(is.local.count, 2 * STAY);
	EQUAL(is.local.writes, STAY);
	EQUAL(is.local.values, 4 * 240);
	CHECK(is.local.address / is.local.count < 4096); /* in the thread's own window */
	function = function_of(module, "loop");
	GOOD(engine->set_data(function, counters));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	is = take(counters);
	EQUAL(is.enters, 1);
	EQUAL(is.global.values, 10);
	OK(cuMemFree_v2(counters));
	FAILS(engine->free(context, counters), "sanitizerFree failed");
}

/* Shared atomics of one kernel, global ones of another space; shuffles of a third. */
void test_atomics(void) {
	unsigned char data[1000] = { 0 };
	CUdeviceptr in, out;
	int n = sizeof(data);
	void *parameters[] = { &in, &out, &n };
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function;

	patched_reduce(&module, &counters);
	OK(cuMemAlloc_v2(&in, sizeof(data)));
	OK(cuMemAlloc_v2(&out, 64 * 8 * 4));
	OK(cuMemcpyHtoD_v2(in, data, sizeof(data)));
	OK(cuMemsetD8_v2(out, 0, 64 * 8 * 4));
	function = function_of(module, "histogram");
	GOOD(engine->set_data(function, counters));
	OK(cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
	is = take(counters);
	EQUAL(is.shared.atomics, 1000);
	EQUAL(is.global.atomics, 2 * 64);
	EQUAL(is.global.reads, 1000);
	EQUAL(is.shared.count, 1000 + 2 * 64 * 2);
	function = function_of(module, "warpFunctions");
	GOOD(engine->set_data(function, counters));
	OK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
	is = take(counters);
	EQUAL(is.shuffles, 12 * 64);
}
