/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgpuprobe-sass.so on the stand-in: what patches see of kernels, exactly; patching and taking it back, unloading, functions that are loaded
 * late, libraries, graphs, what fails. Each test has a process of its own, because the engine starts once.
 *
 *   test-sass LIBGPUPROBE-SASS LIBSANITIZER-PUBLIC
 */

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sass.h"
#include "sim-cuda.h"
#include "test-sass-patches.h"

extern const unsigned char kernels_image[]; /* tests/targets/kernels.cu */

#define CHECK(condition)                                                                     \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			printf("line %d: %s is false\n", __LINE__, #condition);              \
			fflush(stdout);                                                      \
			_exit(1);                                                            \
		}                                                                            \
	} while (0)
#define EQUAL(a, b)                                                                                                \
	do {                                                                                                       \
		unsigned long long left = (a), right = (b);                                                        \
		if (left != right) {                                                                               \
			printf("line %d: %s is %llu, not %llu\n", __LINE__, #a, left, right);                      \
			fflush(stdout);                                                                            \
			_exit(1);                                                                                  \
		}                                                                                                  \
	} while (0)
#define OK(call) EQUAL(call, CUDA_SUCCESS)
#define GOOD(call) check_good(__LINE__, call)
#define FAILS(call, word) check_fails(__LINE__, call, word)

static const char *engine_path, *library_path;
static const struct sass_engine *engine;
static CUcontext context;

/* What the events told. */
static struct {
	unsigned loaded, unloading, functions, ending;
	driver_handle module, library, function;
	char names[512]; /* of the kernels in the last ELF, with blanks */
	void (*on_load)(driver_handle module);
} seen;

static void check_good(int line, const char *error)
{
	if (error) {
		printf("line %d: %s\n", line, error);
		fflush(stdout);
		_exit(1);
	}
}

static void check_fails(int line, const char *error, const char *word)
{
	if (!error || !strstr(error, word)) {
		printf("line %d: %s where %s should fail\n", line, error ? error : "success", word);
		fflush(stdout);
		_exit(1);
	}
}

/* --- events --- */

static void read_names(const char *elf, size_t size)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + header->e_shoff);

	CHECK(size > sizeof(*header) && !memcmp(elf, ELFMAG, SELFMAG) && header->e_machine == 190);
	CHECK(header->e_shoff + header->e_shnum * sizeof(*sections) <= size);
	seen.names[0] = '\0';
	for (int n = 0; n < header->e_shnum; n++) {
		const Elf64_Sym *symbol = (const Elf64_Sym *)(elf + sections[n].sh_offset);
		const char *strings = elf + sections[sections[n].sh_link].sh_offset;

		for (size_t k = 0; sections[n].sh_type == SHT_SYMTAB && k < sections[n].sh_size / sizeof(*symbol); k++)
			if (ELF64_ST_TYPE(symbol[k].st_info) == STT_FUNC && symbol[k].st_other & 0x10 && symbol[k].st_shndx) {
				strcat(seen.names, strings + symbol[k].st_name);
				strcat(seen.names, " ");
			}
	}
}

static void module_loaded(driver_handle in, driver_handle module, driver_handle library, const void *cubin, size_t size)
{
	seen.loaded++;
	seen.module = module;
	seen.library = library;
	read_names(cubin, size);
	if (seen.on_load)
		seen.on_load(module);
}

static void module_unloading(driver_handle in, driver_handle module)
{
	seen.unloading++;
	CHECK(module == seen.module);
}

static void functions_loaded(driver_handle in, driver_handle module, const driver_handle *functions, uint32_t count)
{
	seen.functions += count;
	seen.function = functions[0];
	CHECK(in == context && module == seen.module);
}

static void context_ending(driver_handle in)
{
	seen.ending++;
	CHECK(in == context);
}

static const struct sass_events events = {module_loaded, module_unloading, functions_loaded, context_ending};

/* --- what most tests begin with --- */

static void load_engine(void)
{
	void *library = dlopen(engine_path, RTLD_NOW);
	sass_entry entry = library ? (sass_entry)dlsym(library, SASS_ENTRY) : NULL;

	CHECK(entry);
	engine = entry();
	EQUAL(engine->abi, SASS_ABI);
}

static void make_context(void)
{
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

static void begin(void)
{
	load_engine();
	OK(cuInit(0));
	GOOD(engine->start(library_path, &events));
	make_context();
}

static CUmodule load(const void *image)
{
	CUmodule module;

	OK(cuModuleLoadData(&module, image));
	return module;
}

static const struct patch_point all_points[] = {
	{PATCH_BLOCK_ENTER, 0, "p_enter"}, {PATCH_BLOCK_EXIT, 0, "p_exit"}, {PATCH_GLOBAL_MEMORY, 0, "p_global"},
	{PATCH_SHARED_MEMORY, 0, "p_shared"}, {PATCH_LOCAL_MEMORY, 0, "p_local"}, {PATCH_BARRIER, 0, "p_barrier"},
	{PATCH_SYNCWARP, 0, "p_sync"}, {PATCH_SHFL, 0, "p_shfl"}, {PATCH_CALL, 0, "p_call"}, {PATCH_RET, 0, "p_ret"},
};
#define ALL all_points, sizeof(all_points) / sizeof(all_points[0])

static CUfunction function_of(CUmodule module, const char *name)
{
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, name));
	return function;
}

static driver_pointer make_counters(void)
{
	static const struct counters zero;
	driver_pointer address;

	GOOD(engine->alloc(context, &address, sizeof(zero)));
	GOOD(engine->write(context, address, &zero, sizeof(zero)));
	return address;
}

/* Takes them: they are 0 afterwards. */
static struct counters take(driver_pointer address)
{
	static const struct counters zero;
	struct counters counters;

	OK(cuMemcpyDtoH_v2(&counters, address, sizeof(counters)));
	GOOD(engine->write(context, address, &zero, sizeof(zero)));
	return counters;
}

#define REDUCE_N 412 /* of two blocks of 256 */
static CUdeviceptr reduce_in, reduce_out;

/* Sums 0 + 1 + ... and checks it. */
static void reduce_prepare(void)
{
	float in[512];

	for (int n = 0; n < 512; n++)
		in[n] = n;
	OK(cuMemAlloc_v2(&reduce_in, sizeof(in)));
	OK(cuMemAlloc_v2(&reduce_out, 8));
	OK(cuMemcpyHtoD_v2(reduce_in, in, sizeof(in)));
}

static void reduce_check(void)
{
	float out[2];

	OK(cuMemcpyDtoH_v2(out, reduce_out, sizeof(out)));
	CHECK(out[0] == 255 * 256 / 2 && out[1] == REDUCE_N * (REDUCE_N - 1) / 2 - 255 * 256 / 2);
	OK(cuMemsetD8_v2(reduce_out, 0, sizeof(out)));
}

static void reduce(CUfunction function)
{
	int n = REDUCE_N;
	void *parameters[] = {&reduce_in, &reduce_out, &n};

	OK(cuLaunchKernel(function, 2, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
	OK(cuCtxSynchronize());
	reduce_check();
}

static uint64_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, 4);
	return bits;
}

/* What reduceSum does is known to the last access (tests/targets/kernels.ptx). */
static void reduce_expect(const struct counters *is)
{
	EQUAL(is->enters, 512);
	EQUAL(is->exits, 512);
	EQUAL(is->barriers, 2 * 256 * 9);
	EQUAL(is->barrier_threads, 2 * 256 * 9 * 256);
	EQUAL(is->global.count, REDUCE_N + 2);
	EQUAL(is->global.bytes, 4 * (REDUCE_N + 2));
	EQUAL(is->global.reads, REDUCE_N);
	EQUAL(is->global.writes, 2);
	EQUAL(is->global.values, float_bits(255 * 256 / 2) + float_bits(REDUCE_N * (REDUCE_N - 1) / 2 - 255 * 256 / 2));
	EQUAL(is->global.address, REDUCE_N * reduce_in + 4 * (REDUCE_N * (REDUCE_N - 1) / 2) + 2 * reduce_out + 4);
	EQUAL(is->shared.count, 2 * (256 + 3 * 255 + 1));
	EQUAL(is->shared.reads, 2 * (2 * 255 + 1));
	EQUAL(is->shared.writes, 2 * (256 + 255));
	EQUAL(is->local.count + is->calls + is->returns + is->shuffles + is->syncs, 0);
}

static void expect_nothing(const struct counters *is)
{
	static const struct counters zero;

	CHECK(!memcmp(is, &zero, sizeof(zero)));
}

/* --- the tests --- */

static CUfunction patched_reduce(CUmodule *module, driver_pointer *counters)
{
	CUfunction function;

	begin();
	*module = load(kernels_image);
	EQUAL(seen.loaded, 1);
	CHECK(seen.module == *module && !seen.library && strstr(seen.names, "reduceSum ") && !strstr(seen.names, "fibonacci"));
	GOOD(engine->load_image(context, patches));
	GOOD(engine->patch(*module, ALL));
	function = function_of(*module, "reduceSum");
	*counters = make_counters();
	GOOD(engine->set_data(function, *counters));
	reduce_prepare();
	return function;
}

/* Between least and most groups of lanes enter together. */
static void counts_with(const char *threads, const char *turn, const char *warps, uint64_t least, uint64_t most)
{
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

static void counts(void)
{
	counts_with("1", "0", "", 512, 512); /* each lane is alone */
}

static void counts_of_whole_warps(void)
{
	counts_with("1", "0", "whole", 16, 16);
}

static void counts_in_turns(void)
{
	counts_with("4", "7", "whole", 16, 511); /* some lanes of a warp come late */
}

static void repatch(void)
{
	static const struct patch_point enter[] = {{PATCH_BLOCK_ENTER, 0, "p_enter"}};
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

static void cycles(void)
{
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

static void unload(void)
{
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	reduce(function);
	OK(cuModuleUnload(module));
	EQUAL(seen.unloading, 1);
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

static driver_pointer load_counters;

/* In the event: all functions of the module get data, loaded or not. */
static void patch_on_load(driver_handle module)
{
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

static void lazy(void)
{
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

static void library(void)
{
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

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* What one launch of a graph counts. */
static struct counters replay(CUgraphExec exec, driver_pointer counters)
{
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	reduce_check();
	return take(counters);
}

static void graphs(void)
{
	int n = REDUCE_N;
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);
	void *parameters[] = {&reduce_in, &reduce_out, &n};
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
	is = replay(during, counters);
	reduce_expect(&is);
	reduce(function);
	is = take(counters);
	expect_nothing(&is);
}

/* Threads of the kernel `mixed` that do not leave early, of 32. */
#define STAY 16

static void classes(void)
{
	driver_pointer counters;
	CUdeviceptr out;
	void *parameters[] = {&out};
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
	EQUAL(is.global.values, 4 * 240); /* the sum of even numbers to 30, of the store of 4 bytes alone */
	EQUAL(is.global.first_bytes, 2 * 4 * 240 + 0); /* that, and the byte; 1.0f begins with a 0 */
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
	GOOD(engine->free(context, counters));
	FAILS(engine->free(context, counters), "sanitizerFree failed");
}

/* Shared atomics of one kernel, global ones of another space; shuffles of a third. */
static void atomics(void)
{
	unsigned char data[1000] = {0};
	CUdeviceptr in, out;
	int n = sizeof(data);
	void *parameters[] = {&in, &out, &n};
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

static void errors(void)
{
	static const struct patch_point missing[] = {{PATCH_BLOCK_ENTER, 0, "p_nothing"}}, wrong[] = {{PATCH_BARRIER, 0, "p_enter"}},
					unknown[] = {{99, 0, "p_enter"}}, error[] = {{PATCH_BLOCK_ENTER, 0, "p_error"}};
	struct patch_point endless = {PATCH_BLOCK_ENTER, 0, ""};
	driver_pointer counters;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);

	memset(endless.symbol, 'x', sizeof(endless.symbol));
	FAILS(engine->start(library_path, &events), "has been started");
	FAILS(engine->load_image(context, "not PTX at all"), "sanitizerAddPatches failed");
	FAILS(engine->patch(module, missing, 1), "sanitizerPatchInstructions failed: One or more of the parameters is invalid (1)");
	FAILS(engine->patch(module, wrong, 1), "sanitizerPatchInstructions failed");
	FAILS(engine->patch(module, unknown, 1), "sanitizerPatchInstructions failed");
	FAILS(engine->patch(module, &endless, 1), "has no end");
	FAILS(engine->write(context, 4096, &is, 8), "sanitizerMemcpyHostToDeviceAsync failed");
	reduce(function); /* with nothing left of it all */
	is = take(counters);
	expect_nothing(&is);
	GOOD(engine->patch(module, error, 1));
	OK(cuLaunchKernel(function_of(module, "warpFunctions"), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&reduce_in, &reduce_in}, NULL));
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

/* Each call that can fail does, and the application does not notice. */
static void failures(void)
{
	driver_pointer counters, more;
	struct counters is;
	CUmodule module;
	CUfunction function = patched_reduce(&module, &counters);
	static const char *const of_patch[][2] = {
		{"mark", "sanitizerPatchInstructions failed"}, {"patch", "sanitizerPatchModule failed: Unknown error (999)"},
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

static void other_tool(void)
{
	setenv("GPUPROBE_SANITIZER_FAIL", "subscribe", 1);
	load_engine();
	OK(cuInit(0));
	FAILS(engine->start(library_path, &events), "another tool (CUPTI, Nsight, compute-sanitizer, cuda-gdb) has the patching interface");
	engine->stop();
}

static void too_old(void)
{
	setenv("GPUPROBE_SANITIZER_FAIL", "old", 1);
	load_engine();
	OK(cuInit(0));
	FAILS(engine->start(library_path, &events), "older than CUDA 12.3");
	make_context();
	load(kernels_image);
	EQUAL(seen.loaded, 0);
}

/* What was made before is out of reach. */
static void late(void)
{
	CUmodule module;

	load_engine();
	OK(cuInit(0));
	make_context();
	load(kernels_image);
	GOOD(engine->start(library_path, &events));
	FAILS(engine->load_image(context, patches), "sanitizerAddPatches failed: One or more of the parameters is invalid (1)");
	module = load(kernels_image);
	EQUAL(seen.loaded, 1);
	FAILS(engine->patch(module, ALL), "sanitizerPatchInstructions failed");
}

static CUfunction spinning;
static CUdeviceptr spin_flags;

static void *spin(void *unused)
{
	void *parameters[] = {&spin_flags};

	OK(cuCtxSetCurrent(context));
	OK(cuLaunchKernel(spinning, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	return NULL;
}

/* The stand-in is as unkind as a GPU about a launch at the same time. */
static void at_once(void)
{
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

static int run(const char *name, void (*test)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		test();
		exit(0);
	}
	waitpid(pid, &status, 0);
	printf("%s: %s\n", name, status ? "failed" : "ok");
	return status != 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc != 3)
		return 2;
	engine_path = argv[1];
	library_path = argv[2];
	unsetenv("CUDA_INJECTION64_PATH");
	setvbuf(stdout, NULL, _IOLBF, 0);
#define RUN(name) failed += run(#name, name)
	RUN(counts);
	RUN(counts_of_whole_warps);
	RUN(counts_in_turns);
	RUN(repatch);
	RUN(cycles);
	RUN(unload);
	RUN(lazy);
	RUN(library);
	RUN(graphs);
	RUN(classes);
	RUN(atomics);
	RUN(errors);
	RUN(failures);
	RUN(other_tool);
	RUN(too_old);
	RUN(late);
	RUN(at_once);
	return failed != 0;
}
