/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program. libgpuprobe-sass.so on the stand-in: what patches see of kernels, exactly
 * (test-sass-counts.c), and what fails (test-sass-failures.c).
 *
 *   test-sass LIBGPUPROBE-SASS LIBSANITIZER-PUBLIC
 */

#include <dlfcn.h>
#include <elf.h>
#include <sys/wait.h>

#include "test-sass.h"

const char *library_path;
const struct sass_engine *engine;
CUcontext context;

static const char *engine_path;

struct seen seen;

void check_good(int line, const char *error) {
	if (error) {
		printf("line %d: %s\n", line, error);
		fflush(stdout);
		_exit(1);
	}
}

void check_fails(int line, const char *error, const char *word) {
	if (!error || !strstr(error, word)) {
		printf("line %d: %s where %s should fail\n", line, error ? error : "success", word);
		fflush(stdout);
		_exit(1);
	}
}

/* --- events --- */

static void read_names(const char *elf, size_t size) {
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + header->e_shoff);

	CHECK(size > sizeof(*header) && !memcmp(elf, ELFMAG, SELFMAG) && header->e_machine == 190);
	CHECK(header->e_shoff + header->e_shnum * sizeof(*sections) <= size);
	seen.names[0] = '\0';
	for (int n = 0; n < header->e_shnum; n++) {
		const Elf64_Sym *symbol = (const Elf64_Sym *)(elf + sections[n].sh_offset);
		const char *strings = elf + sections[sections[n].sh_link].sh_offset;

		for (size_t k = 0;
		     sections[n].sh_type == SHT_SYMTAB && k < sections[n].sh_size / sizeof(*symbol);
		     k++)
			if (ELF64_ST_TYPE(symbol[k].st_info) == STT_FUNC &&
			    symbol[k].st_other & 0x10 && symbol[k].st_shndx) {
				strcat(seen.names, strings + symbol[k].st_name);
				strcat(seen.names, " ");
			}
	}
}

static void module_loaded(driver_handle in, driver_handle module, driver_handle library,
			  const void *cubin, size_t size) {
	seen.loaded++;
	seen.module = module;
	seen.library = library;
	read_names(cubin, size);
	if (seen.on_load)
		seen.on_load(module);
}

static void module_unloading(driver_handle in, driver_handle module) {
	if (seen.on_unload)
		seen.on_unload(module);
	seen.unloading++;
	CHECK(module == seen.module);
}

static void functions_loaded(driver_handle in, driver_handle module, const driver_handle *functions,
			     uint32_t count) {
	seen.functions += count;
	seen.function = functions[0];
	CHECK(in == context && module == seen.module);
}

static void context_ending(driver_handle in) {
	seen.ending++;
	CHECK(in == context);
}

const struct sass_events events = { module_loaded, module_unloading, functions_loaded,
				    context_ending };

/* --- what most tests begin with --- */

void load_engine(void) {
	void *library = dlopen(engine_path, RTLD_NOW);
	sass_entry entry = library ? (sass_entry)dlsym(library, SASS_ENTRY) : NULL;

	CHECK(entry);
	engine = entry();
	EQUAL(engine->abi, SASS_ABI);
}

void make_context(void) {
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

void begin(void) {
	load_engine();
	OK(cuInit(0));
	GOOD(engine->start(library_path, &events));
	make_context();
}

CUmodule load(const void *image) {
	CUmodule module;

	OK(cuModuleLoadData(&module, image));
	return module;
}

const struct patch_point all_points[] = {
	{ PATCH_BLOCK_ENTER, 0, "p_enter" },
	{ PATCH_BLOCK_EXIT, 0, "p_exit" },
	{ PATCH_GLOBAL_MEMORY, 0, "p_global" },
	{ PATCH_SHARED_MEMORY, 0, "p_shared" },
	{ PATCH_LOCAL_MEMORY, 0, "p_local" },
	{ PATCH_BARRIER, 0, "p_barrier" },
	{ PATCH_SYNCWARP, 0, "p_sync" },
	{ PATCH_SHFL, 0, "p_shfl" },
	{ PATCH_CALL, 0, "p_call" },
	{ PATCH_RET, 0, "p_ret" },
};

CUfunction function_of(CUmodule module, const char *name) {
	CUfunction function;

	OK(cuModuleGetFunction(&function, module, name));
	return function;
}

driver_pointer make_counters(void) {
	static const struct counters zero;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	driver_pointer address;

	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc_v2((CUdeviceptr *)&address, sizeof(zero)));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	GOOD(engine->write(context, address, &zero, sizeof(zero)));
	return address;
}

struct counters take(driver_pointer address) {
	static const struct counters zero;
	struct counters counters;

	OK(cuMemcpyDtoH_v2(&counters, address, sizeof(counters)));
	GOOD(engine->write(context, address, &zero, sizeof(zero)));
	return counters;
}

CUdeviceptr reduce_in, reduce_out;

/* Sums 0 + 1 + ... and checks it. */
void reduce_prepare(void) {
	float in[512];

	for (int n = 0; n < 512; n++)
		in[n] = n;
	OK(cuMemAlloc_v2(&reduce_in, sizeof(in)));
	OK(cuMemAlloc_v2(&reduce_out, 8));
	OK(cuMemcpyHtoD_v2(reduce_in, in, sizeof(in)));
}

void reduce_check(void) {
	float out[2];

	OK(cuMemcpyDtoH_v2(out, reduce_out, sizeof(out)));
	CHECK(out[0] == 255 * 256 / 2 && out[1] == REDUCE_N * (REDUCE_N - 1) / 2 - 255 * 256 / 2);
	OK(cuMemsetD8_v2(reduce_out, 0, sizeof(out)));
}

void reduce(CUfunction function) {
	int n = REDUCE_N;
	void *parameters[] = { &reduce_in, &reduce_out, &n };

	OK(cuLaunchKernel(function, 2, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
	OK(cuCtxSynchronize());
	reduce_check();
}

static uint64_t float_bits(float value) {
	uint32_t bits;

	memcpy(&bits, &value, 4);
	return bits;
}

void reduce_expect(const struct counters *is) {
	EQUAL(is->enters, 512);
	EQUAL(is->exits, 512);
	EQUAL(is->barriers, 2 * 256 * 9);
	EQUAL(is->barrier_threads, 0); /* all */
	EQUAL(is->global.count, REDUCE_N + 2);
	EQUAL(is->global.bytes, 4 * (REDUCE_N + 2));
	EQUAL(is->global.reads, REDUCE_N);
	EQUAL(is->global.writes, 2);
	EQUAL(is->global.values, float_bits(255 * 256 / 2) +
					 float_bits(REDUCE_N * (REDUCE_N - 1) / 2 - 255 * 256 / 2));
	EQUAL(is->global.address,
	      REDUCE_N * reduce_in + 4 * (REDUCE_N * (REDUCE_N - 1) / 2) + 2 * reduce_out + 4);
	EQUAL(is->shared.count, 2 * (256 + 3 * 255 + 1));
	EQUAL(is->shared.reads, 2 * (2 * 255 + 1));
	EQUAL(is->shared.writes, 2 * (256 + 255));
	EQUAL(is->local.count + is->calls + is->returns + is->shuffles + is->syncs, 0);
}

void expect_nothing(const struct counters *is) {
	static const struct counters zero;

	CHECK(!memcmp(is, &zero, sizeof(zero)));
}

CUfunction patched_reduce(CUmodule *module, driver_pointer *counters) {
	CUfunction function;

	begin();
	*module = load(kernels_image);
	EQUAL(seen.loaded, 1);
	CHECK(seen.module == *module && !seen.library && strstr(seen.names, "reduceSum ") &&
	      !strstr(seen.names, "fibonacci"));
	GOOD(engine->load_image(context, patches));
	GOOD(engine->patch(*module, ALL));
	function = function_of(*module, "reduceSum");
	*counters = make_counters();
	GOOD(engine->set_data(function, *counters));
	reduce_prepare();
	return function;
}

static int run(const char *name, void (*test)(void)) {
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

int main(int argc, char **argv) {
	int failed = 0;

	if (argc != 3)
		return 2;
	engine_path = argv[1];
	library_path = argv[2];
	unsetenv("CUDA_INJECTION64_PATH");
	setvbuf(stdout, NULL, _IOLBF, 0);
#define RUN(name) failed += run(#name, test_##name);
	COUNTS_TESTS(RUN)
	FAILURES_TESTS(RUN)
	return failed != 0;
}
