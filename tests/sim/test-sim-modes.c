/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of the CPU driver. How grids run: lanes alone or together, turns of random length,
 * several blocks at once (sim-run.c); and host memory in kernels.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim-cuda.h"

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	/* out[3 * thread]: who is together at the start, in one branch of two, and the sum of the
	   lanes' numbers by shuffles */
	".visible .entry masks(.param .u64 out) { .reg .b64 %o; .reg .b64 %a; .reg .b32 %t; .reg "
	".b32 %m; .reg .b32 %l; .reg .b32 %s;\n"
	" .reg .b32 %w; .reg .b32 %k; .reg .pred %p; .reg .pred %q;\n"
	" ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 12, %o; activemask.b32 "
	"%m; st.global.u32 [%a], %m;\n"
	" mov.u32 %l, %laneid; mov.u32 %s, %l; mov.u32 %k, 16;\n"
	" SUM: shfl.sync.down.b32 %w|%q, %s, %k, 31, %m; @%q add.u32 %s, %s, %w; shr.u32 %k, %k, "
	"1; setp.ne.u32 %p, %k, 0; @%p bra SUM;\n"
	" shfl.sync.idx.b32 %s, %s, 0, 31, %m; st.global.u32 [%a+8], %s;\n"
	" and.b32 %k, %t, 1; setp.eq.u32 %p, %k, 0; @%p bra EVEN; activemask.b32 %m; bra BOTH; "
	"EVEN: activemask.b32 %m;\n"
	" BOTH: st.global.u32 [%a+4], %m; ret; }\n"
	/* row r of matrix m has 64 m + 8 r + c in column c; a lane writes four registers, then the
	   third one transposed */
	".visible .entry matrix(.param .u64 out) { .reg .b64 %o; .reg .b32 %t; .reg .b32 %a; .reg "
	".b32 %n; .reg .b16 %h; .reg .b32 %r<5>;\n"
	" .reg .pred %p; .shared .align 16 .b8 s[800];\n"
	" ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mov.u32 %n, 0; FILL: mad.lo.u32 %a, %t, 8, "
	"%n; cvt.u16.u32 %h, %a; shl.b32 %a, %a, 1;\n"
	" mov.u32 %r0, s; add.u32 %a, %a, %r0; st.shared.u16 [%a+32], %h; add.u32 %n, %n, 1; "
	"setp.lt.u32 %p, %n, 8; @%p bra FILL; bar.sync 0;\n"
	" mad.lo.u32 %a, %t, 16, %r0; ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r4}, "
	"[%a+288];\n"
	" ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a, %r1, %r2, %r3}, [%a+32];\n"
	" mul.wide.u32 %o, %t, 20; { .reg .b64 %q; ld.param.u64 %q, [out]; add.u64 %o, %o, %q; }\n"
	" st.global.u32 [%o], %a; st.global.u32 [%o+4], %r1; st.global.u32 [%o+8], %r2; "
	"st.global.u32 [%o+12], %r3;\n"
	" st.global.u32 [%o+16], %r4; ret; }\n"
	/* not atomic, and atomic by compare-and-swap */
	".visible .entry count(.param .u64 out) { .reg .b64 %o; .reg .b32 %a; .reg .b32 %b; .reg "
	".b32 %c; .reg .pred %p; ld.param.u64 %o, [out];\n"
	" ld.global.u32 %a, [%o]; add.u32 %a, %a, 1; st.global.u32 [%o], %a; "
	"ld.relaxed.sys.global.u32 %a, [%o+4];\n"
	" AGAIN: add.u32 %b, %a, 1; atom.relaxed.sys.global.cas.b32 %c, [%o+4], %a, %b; "
	"setp.ne.u32 %p, %c, %a; mov.u32 %a, %c; @%p bra AGAIN; ret; }\n"
	/* block 0 waits for block 1, which waits for block 0 */
	".visible .entry meet(.param .u64 out) { .reg .b64 %o; .reg .b64 %m; .reg .b64 %h; .reg "
	".b32 %b; .reg .b32 %x; .reg .pred %p;\n"
	" ld.param.u64 %o, [out]; mov.u32 %b, %ctaid.x; mul.wide.u32 %m, %b, 8; add.u64 %m, %m, "
	"%o; xor.b32 %x, %b, 1; mul.wide.u32 %h, %x, 8;\n"
	" add.u64 %h, %h, %o; mov.u32 %x, %smid; st.global.u32 [%m+4], %x; mov.u32 %x, 1; "
	"st.release.sys.global.u32 [%m], %x;\n"
	" WAIT: ld.acquire.sys.global.u32 %x, [%h]; setp.eq.u32 %p, %x, 0; @%p bra WAIT; ret; }\n";

static CUmodule module;

static void mode(const char *threads, const char *turn, const char *warps) {
	setenv("GPUPROBE_SIM_THREADS", threads, 1);
	setenv("GPUPROBE_SIM_TURN", turn, 1);
	setenv("GPUPROBE_SIM_WARPS", warps, 1);
}

/* Runs a kernel on `size` bytes of registered host memory, zeros at first. */
static void run(const char *kernel, unsigned int grid, unsigned int block, uint32_t *out,
		size_t size) {
	int fd = memfd_create("out", MFD_CLOEXEC);
	CUdeviceptr address;
	void *arguments[] = { &address }, *shared;
	CUfunction function;

	assert_int_equal(ftruncate(fd, size), 0);
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	OK(cuMemHostRegister_v2(shared, size,
				CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&address, shared, 0));
	OK(cuModuleGetFunction(&function, module, kernel));
	OK(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, NULL, arguments, NULL));
	OK(cuCtxSynchronize());
	OK(cuMemHostUnregister(shared));
	munmap(shared, size);
	assert_int_equal(pread(fd, out, size, 0), size); /* it is the memory that others see */
	close(fd);
}

static void test_alone(void **state) {
	uint32_t out[3 * 64];

	mode("", "", "");
	run("masks", 1, 64, out, sizeof(out));
	for (uint32_t n = 0; n < 64; n++) {
		assert_int_equal(out[3 * n], UINT32_C(1) << n % 32);
		assert_int_equal(out[3 * n + 1], UINT32_C(1) << n % 32);
	}
}

static void test_whole(void **state) {
	uint32_t out[3 * 80];

	mode("", "", "whole");
	run("masks", 1, 80, out, sizeof(out)); /* the third warp has 16 lanes */
	for (uint32_t n = 0; n < 80; n++) {
		uint32_t all = n < 64 ? UINT32_MAX : 0xffff;

		assert_int_equal(out[3 * n], all);
		assert_int_equal(out[3 * n + 1], all & (n % 2 ? 0xaaaaaaaa : 0x55555555));
		if (n < 64)
			assert_int_equal(out[3 * n + 2], 496);
	}
}

/* Groups are anything, but each lane is in its own, and all of a group agree. */
static void test_turns(void **state) {
	uint32_t out[3 * 64], parts = 0, wholes = 0;

	mode("", "5", "whole");
	run("masks", 1, 64, out, sizeof(out));
	for (uint32_t n = 0; n < 64; n++) {
		uint32_t mask = out[3 * n];

		assert_true(mask >> n % 32 & 1);
		for (uint32_t other = n & ~31u; other < (n | 31) + 1; other++)
			if (mask >> other % 32 & 1)
				assert_int_equal(out[3 * other], mask);
		parts += mask != UINT32_MAX;
		wholes += (mask & (mask - 1)) != 0;
	}
	assert_true(parts && wholes);
}

static void test_matrix(void **state) {
	uint32_t out[5 * 32];

	mode("", "", "");
	run("matrix", 1, 32, out, sizeof(out));
	for (uint32_t n = 0; n < 32; n++) {
		uint32_t first = 8 * (n / 4) + n % 4 * 2, transposed = 8 * (n % 4 * 2) + n / 4;

		for (uint32_t m = 0; m < 4; m++)
			assert_int_equal(out[5 * n + m], (64 * m + first) | (64 * m + first + 1)
										    << 16);
		assert_int_equal(out[5 * n + 4], (128 + transposed) | (128 + transposed + 8) << 16);
	}
}

static void test_races(void **state) {
	uint32_t out[2];

	mode("", "", "");
	run("count", 4, 256, out, sizeof(out));
	assert_int_equal(out[0], 1024);
	assert_int_equal(out[1], 1024);
	mode("", "3", "");
	run("count", 4, 256, out, sizeof(out));
	assert_true(out[0] < 1024); /* what is not atomic shows */
	assert_int_equal(out[1], 1024);
	mode("8", "3", "whole");
	run("count", 64, 256, out, sizeof(out));
	assert_true(out[0] < 64 * 256);
	assert_int_equal(out[1], 64 * 256);
}

static void test_blocks_at_once(void **state) {
	uint32_t out[4];

	mode("2", "", "");
	run("meet", 2, 1, out, sizeof(out));
	assert_int_equal(out[0], 1);
	assert_int_equal(out[2], 1);
	assert_int_equal(out[1] + out[3], 1); /* one ran on SM 0, one on SM 1 */
}

/* More is not registered, and unregistering makes room again. */
static void test_register_limit(void **state) {
	CUdeviceptr address;
	char *memory = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	setenv("GPUPROBE_SIM_REGISTER_MAX", "8192", 1);
	assert_int_equal(cuMemHostRegister_v2(memory, 12288, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemHostRegister_v2(memory, 4096, 0));
	OK(cuMemHostRegister_v2(memory + 4096, 4096, 0));
	assert_int_equal(cuMemHostRegister_v2(memory + 8192, 4096, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemHostGetDevicePointer_v2(&address, memory + 8192, 0),
			 CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostUnregister(memory));
	OK(cuMemHostRegister_v2(memory + 8192, 4096, 0));
	unsetenv("GPUPROBE_SIM_REGISTER_MAX");
	OK(cuMemHostUnregister(memory + 4096));
	OK(cuMemHostUnregister(memory + 8192));
	munmap(memory, 16384);
}

static int setup(void **state) {
	CUcontext context;

	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	       cuModuleLoadData(&module, text);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),          cmocka_unit_test(test_whole),
		cmocka_unit_test(test_turns),          cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_races),          cmocka_unit_test(test_blocks_at_once),
		cmocka_unit_test(test_register_limit),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
