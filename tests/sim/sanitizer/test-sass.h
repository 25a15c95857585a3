/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the tests of libgpuprobe-sass.so on the stand-in share. Each has a process of its own, which
 * ends at the first thing that is wrong. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/engine/sass.h"
#include "tests/sim/sim-cuda.h"
#include "test-sass-patches.h"

extern const unsigned char kernels_image[]; /* tests/targets/kernels.cu */

#define CHECK(condition)                                                        \
	do {                                                                    \
		if (!(condition)) {                                             \
			printf("line %d: %s is false\n", __LINE__, #condition); \
			fflush(stdout);                                         \
			_exit(1);                                               \
		}                                                               \
	} while (0)
#define EQUAL(a, b)                                                                           \
	do {                                                                                  \
		unsigned long long left = (a), right = (b);                                   \
		if (left != right) {                                                          \
			printf("line %d: %s is %llu, not %llu\n", __LINE__, #a, left, right); \
			fflush(stdout);                                                       \
			_exit(1);                                                             \
		}                                                                             \
	} while (0)
#define OK(call) EQUAL(call, CUDA_SUCCESS)
#define GOOD(call) check_good(__LINE__, call)
#define FAILS(call, word) check_fails(__LINE__, call, word)

/* What the events told. */
struct seen {
	unsigned loaded, unloading, functions, ending;
	driver_handle module, library, function;
	char names[512]; /* of the kernels in the last ELF, with blanks */
	void (*on_load)(driver_handle module);
	void (*on_unload)(driver_handle module);
};

extern struct seen seen;
extern const char *library_path;
extern const struct sass_engine *engine;
extern const struct sass_events events;
extern CUcontext context;
extern const struct patch_point all_points[10];
#define ALL all_points, sizeof(all_points) / sizeof(all_points[0])

void check_good(int line, const char *error);
void check_fails(int line, const char *error, const char *word);
void load_engine(void);
void make_context(void);
/* Both, with the engine started before there is a context. */
void begin(void);
CUmodule load(const void *image);
CUfunction function_of(CUmodule module, const char *name);
driver_pointer make_counters(void);
/* Takes them: they are 0 afterwards. */
struct counters take(driver_pointer address);
void expect_nothing(const struct counters *is);

/* reduceSum of 0, 1, 2, ...: what it computes is checked, and what it does is known to the last
 * access (tests/targets/kernels.ptx). */
#define REDUCE_N 412 /* of two blocks of 256 */
extern CUdeviceptr reduce_in, reduce_out;
void reduce_prepare(void);
void reduce(CUfunction function);
void reduce_check(void);
void reduce_expect(const struct counters *is);
/* Begins, and has it patched with everything. */
CUfunction patched_reduce(CUmodule *module, driver_pointer *counters);

#define COUNTS_TESTS(X)          \
	X(counts)                \
	X(counts_of_whole_warps) \
	X(counts_in_turns)       \
	X(repatch) X(cycles) X(unload) X(refused) X(lazy) X(library) X(graphs) X(classes) X(atomics)
#define FAILURES_TESTS(X) \
	X(errors) X(failures) X(other_tool) X(too_old) X(late) X(at_once) X(unload_meanwhile)
#define DECLARE(name) void test_##name(void);
COUNTS_TESTS(DECLARE)
FAILURES_TESTS(DECLARE)
