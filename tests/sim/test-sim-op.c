/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of the CPU driver. Instructions, one by one: each row is a piece of PTX that takes
 * %a0-%a2 (b64, or their low parts) and leaves its result in %d (b64). All expected values are
 * worked out by hand from the PTX manual.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim-cuda.h"

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

struct row {
	const char *code;
	uint64_t a, b, c, expected;
};

#define F(x)                 \
	(((union {           \
		 float f;    \
		 uint32_t u; \
	 }){ .f = (x) })     \
		 .u)
#define D(x)                 \
	(((union {           \
		 double f;   \
		 uint64_t u; \
	 }){ .f = (x) })     \
		 .u)
#define NAN32 UINT64_C(0x7fffffff)

static const char *const head =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".global .align 16 .u32 g[4] = {11, 22, 33, 44};\n.global .u64 pointer = "
	"generic(g)+8;\n.const .u16 k[2] = {5, 6};\n"
	".global .f32 real = 0f3FC00000;\n.shared .align 8 .b8 s[16];\n"
	".func (.param .b32 r) plus_one (.param .b32 v) { .reg .b32 %x; ld.param.b32 %x, [v]; "
	"add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }\n"
	".func (.reg .b32 r) in_registers (.reg .b32 a, .reg .b32 b) { add.u32 r, a, b; ret; }\n"
	".func (.param .b64 r) three (.param .b64 x, .param .b64 y, .param .b32 z) { .reg .b64 "
	"%x<3>; .reg .b32 %z; .reg .pred %p;"
	" ld.param.b64 %x0, [x]; st.param.b64 [r], %x0; ld.param.b32 %z, [z]; setp.eq.u32 %p, %z, "
	"7; @%p ret;"
	" ld.param.b64 %x1, [y]; cvt.u64.u32 %x2, %z; add.u64 %x0, %x0, %x1; add.u64 %x0, %x0, "
	"%x2; st.param.b64 [r], %x0; ret; }\n"
	".func leave () { .reg .pred %p; setp.eq.u32 %p, 1, 1; @%p exit; ret; }\n"
	".visible .entry test(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)\n{\n"
	".reg .b64 %a<3>; .reg .b64 %d; .reg .b64 %o; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .f64 "
	"%g<4>; .reg .b16 %h<4>;\n"
	".reg .pred %p; .reg .pred %q; .reg .pred %t; .local .align 8 .b8 l[16];\n"
	"ld.param.u64 %o, [out]; ld.param.u64 %a0, [a]; ld.param.u64 %a1, [b]; ld.param.u64 %a2, "
	"[c];\n"
	"cvt.u32.u64 %r0, %a0; cvt.u32.u64 %r1, %a1; cvt.u32.u64 %r2, %a2; mov.b32 %f0, %r0; "
	"mov.b32 %f1, %r1; mov.b32 %f2, %r2;\n"
	"mov.b64 %g0, %a0; mov.b64 %g1, %a1; mov.b64 %g2, %a2; cvt.u16.u32 %h0, %r0; cvt.u16.u32 "
	"%h1, %r1; cvt.u16.u32 %h2, %r2;\n"
	"setp.eq.u32 %p, 0, 0; setp.eq.u32 %t, 0, 0;\n";

static void build(char *text, size_t size, const char *code) {
	const char *tail =
		strstr(code, "%d")    ? "st.global.u64 [%o], %d;"
		: strstr(code, "%g3") ? "st.global.f64 [%o], %g3;"
		: strstr(code, "%f3")
			? "mov.b32 %r3, %f3; cvt.u64.u32 %d, %r3; st.global.u64 [%o], %d;"
			: "cvt.u64.u32 %d, %r3; st.global.u64 [%o], %d;";

	assert_true(snprintf(text, size, "%s%s\n%s\nret;\n}\n", head, code, tail) < (int)size);
}

static uint64_t execute(const struct row *row) {
	char text[4096], log[256] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUdeviceptr out;
	uint64_t result, a = row->a, b = row->b, c = row->c;
	void *arguments[] = { &out, &a, &b, &c };
	CUfunction function;
	CUmodule module;

	build(text, sizeof(text), row->code);
	if (cuModuleLoadDataEx(&module, text, 2, options, values) != CUDA_SUCCESS)
		fail_msg("%s: %s", row->code, log);
	OK(cuModuleGetFunction(&function, module, "test"));
	OK(cuMemAlloc_v2(&out, 16));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(&result, out, 8));
	OK(cuMemFree_v2(out));
	OK(cuModuleUnload(module));
	return result;
}

static void test_rows(void **state) {
	const struct row rows[] = {
#include "test-sim-op-rows.h"
	};
	unsigned int wrong = 0;

	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		uint64_t result = execute(&rows[n]);

		if (result == rows[n].expected)
			continue;
		wrong++;
		print_error("%s: 0x%llx, not 0x%llx\n", rows[n].code, (unsigned long long)result,
			    (unsigned long long)rows[n].expected);
	}
	assert_int_equal(wrong, 0);
}

/* What is not understood fails the load, and the log says what it was. */
static void test_refused(void **state) {
	static const struct {
		const char *code, *says;
	} refused[] = {
		{ "frobnicate.u32 %r3, %r0;", "frobnicate.u32" },
		{ "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r3}, [%a0];", "wmma" },
		{ "mov.u32 %r3, %r99;", "%r99" },
		{ "bra nowhere;", "nowhere" },
		{ "add.u32 %r3, %r0;", "operands" },
		{ "call nobody;", "nobody" },
		{ "ld.local.u64 %d, [l+12];", "offset 12" },
		{ "call (%r3), in_registers, (%r0);", "does not fit" },
		{ "mov.u32 %r3, 0x;", "" },
	};
	char text[4096], log[256];

	for (size_t n = 0; n < sizeof(refused) / sizeof(refused[0]); n++) {
		CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER,
					   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
		void *values[] = { log, (void *)sizeof(log) };
		CUmodule module;

		build(text, sizeof(text), refused[n].code);
		assert_int_equal(cuModuleLoadDataEx(&module, text, 2, options, values),
				 CUDA_ERROR_INVALID_PTX);
		if (!strstr(log, refused[n].says))
			fail_msg("%s: the log says: %s", refused[n].code, log);
		assert_int_equal((uintptr_t)values[1], strlen(log));
	}
}

static int setup(void **state) {
	CUcontext context;

	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows),
					    cmocka_unit_test(test_refused) };

	return cmocka_run_group_tests(tests, setup, NULL);
}
