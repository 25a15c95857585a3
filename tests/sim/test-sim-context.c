/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the pass `probe` on the CPU driver. What programs read in their contexts, on the CPU
 * driver: each row is PTX with a probe, put there or called, and the fields that the program must
 * have written down. All expected values are worked out by hand.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/probe.h"
#include "sim-cuda.h"

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)
#define FIELDS_MAX 21
#define RECORDS_MAX 16
#define IMAGE 5u

enum {
	GENERIC,
	GLOBAL,
	SHARED,
	LOCAL,
	CONST,
	PARAM
};
enum {
	LOAD = 1,
	STORE,
	ATOMIC,
	REDUCTION,
	ASYNC_COPY,
	MATRIX_LOAD
};

struct record {
	uint64_t fields[FIELDS_MAX];
};

/* Runs `test` of an edited text with one thread; returns the records that its probes wrote. */
struct run {
	const char *text;
	struct probe_use uses[2];
	uint32_t use_count;
	uint16_t context[FIELDS_MAX];
	uint32_t fields;
	void **arguments;
	uint32_t shared;
	const char *const *stubs;
	size_t n_stubs;
	bool call;
	const char *function; /* that gets the probe */
	/* out */
	uint64_t count;
	struct record records[RECORDS_MAX];
};

/* Appends its parameters to a log. */
static char *logger(uint32_t fields) {
	char *text = NULL;
	size_t length;
	FILE *stream = open_memstream(&text, &length);

	fprintf(stream,
		".visible .global .align 8 .u64 test_count;\n.visible .global .align 8 .b8 "
		"test_log[%zu];\n"
		".func (.param .b64 r) program(",
		sizeof(struct record) * RECORDS_MAX);
	for (uint32_t i = 0; i < fields; i++)
		fprintf(stream, "%s.param .b64 c%u", i ? ", " : "", i);
	fprintf(stream,
		")\n{\n.reg .b64 %%rd<5>;\natom.global.add.u64 %%rd1, [test_count], 1;\nmul.lo.u64 "
		"%%rd2, %%rd1, %zu;\n"
		"mov.u64 %%rd3, test_log;\nadd.s64 %%rd3, %%rd3, %%rd2;\n",
		sizeof(struct record));
	for (uint32_t i = 0; i < fields; i++)
		fprintf(stream, "ld.param.b64 %%rd4, [c%u];\nst.global.b64 [%%rd3+%u], %%rd4;\n", i,
			8 * i);
	fputs("st.param.b64 [r], 0;\nret;\n}\n", stream);
	assert_int_equal(fclose(stream), 0);
	return text;
}

static char *edit(const struct run *run) {
	struct probe_options options = {
		.stubs = run->stubs, .n_stubs = run->n_stubs, .image = IMAGE, .call = run->call
	};
	struct probe_use uses[2] = { run->uses[0], run->uses[1] };
	struct probe_program program = { .symbol = "program",
					 .text = logger(run->fields),
					 .isa = 63,
					 .target = 52,
					 .context = run->context,
					 .context_count = run->fields };
	struct probe_function function = { .uses = uses, .use_count = run->use_count };
	struct probe_result result = { 0 };
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_edit *edits;
	size_t length;
	char *out;

	program.length = strlen(program.text);
	if (ptx_module_parse(&module, run->text, strlen(run->text), &error))
		fail_msg("%u:%u: %s", error.line, error.column, error.message);
	function.function = ptx_module_find_function(&module, run->function, strlen(run->function));
	assert_int_equal(ptx_edit_new(&edits, run->text, strlen(run->text)), 0);
	if (probe_apply(edits, &module, &options, &program, 1, &function, 1, &result, &error))
		fail_msg("%u:%u: %s", error.line, error.column, error.message);
	assert_int_equal(ptx_edit_apply(edits, &out, &length), 0);
	ptx_edit_free(edits);
	ptx_module_deinit(&module);
	free(result.instructions);
	free((char *)(uintptr_t)program.text);
	return out;
}

static void execute(struct run *run) {
	static const uint64_t process[8] = { UINT64_C(4321) << 32 | 4321, 3 };
	char *text = edit(run), log[512] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUfunction function;
	CUdeviceptr address;
	CUmodule module;
	CUresult r;
	size_t size;

	if (cuModuleLoadDataEx(&module, text, 2, options, values) != CUDA_SUCCESS)
		fail_msg("%s in:\n%s", log, text);
	OK(cuModuleGetFunction(&function, module, "test"));
	if (cuModuleGetGlobal_v2(&address, &size, module, "__gpuprobe_process") == CUDA_SUCCESS)
		OK(cuMemcpyHtoD_v2(address, process, sizeof(process)));
	r = cuLaunchKernel(function, 3, 1, 2, 1, 1, 1, run->shared, NULL, run->arguments, NULL);
	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	if (r != CUDA_SUCCESS)
		fail_msg("%d from:\n%s", r, text);
	OK(cuModuleGetGlobal_v2(&address, &size, module, "test_count"));
	OK(cuMemcpyDtoH_v2(&run->count, address, 8));
	OK(cuModuleGetGlobal_v2(&address, &size, module, "test_log"));
	OK(cuMemcpyDtoH_v2(run->records, address, sizeof(run->records)));
	OK(cuModuleUnload(module));
	free(text);
}

/* One memory instruction: %o+16 is global memory, %e is to get the address that the program must
 * see. */
struct row {
	const char *code;
	uint64_t size, space, kind, value;
	bool none; /* it must not count */
};

static const struct row rows[] = {
	{ "add.s64 %e, %o, 16; st.global.u32 [%o+16], %r1;", 4, GLOBAL, STORE, 0x89abcdef },
	{ "add.s64 %e, %o, 16; mov.u64 %d3, %e; st.u8 [%d3], %r1;", 1, GENERIC, STORE, 0xef },
	{ "add.s64 %e, %o, 16; st.volatile.global.u16 [%o+16], %h1;", 2, GLOBAL, STORE, 0xbeef },
	{ "add.s64 %e, %o, 16; st.global.cg.b64 [%o+16], %d1;", 8, GLOBAL, STORE,
	  0x123456789abcdef0 },
	{ "add.s64 %e, %o, 16; st.relaxed.gpu.global.f32 [%o+16], %f1;", 4, GLOBAL, STORE,
	  0x3fc00000 },
	{ "add.s64 %e, %o, 16; st.global.f64 [%o+16], %g1;", 8, GLOBAL, STORE, 0x4004000000000000 },
	{ "add.s64 %e, %o, 16; st.global.u32 [%o+16], -2;", 4, GLOBAL, STORE, 0xfffffffe },
	{ "add.s64 %e, %o, 16; st.global.u8 [%o+16], 0x1ff;", 1, GLOBAL, STORE, 0xff },
	{ "add.s64 %e, %o, 16; st.global.f32 [%o+16], 0f3FC00000;", 4, GLOBAL, STORE, 0x3fc00000 },
	{ "add.s64 %e, %o, 16; st.global.f64 [%o+16], 0d4004000000000000;", 8, GLOBAL, STORE,
	  0x4004000000000000 },
	{ "add.s64 %e, %o, 16; st.global.v2.u32 [%o+16], {%r1, %r2};", 8, GLOBAL, STORE,
	  0x0000000789abcdef },
	{ "add.s64 %e, %o, 16; st.global.v4.f32 [%o+16], {%f1, %f1, %f1, %f1};", 16, GLOBAL, STORE,
	  0x3fc000003fc00000 },
	{ "add.s64 %e, %o, 16; st.global.v4.u16 [%o+16], {%h1, %h2, %h2, %h1};", 8, GLOBAL, STORE,
	  0xbeef00020002beef },
	{ "add.s64 %e, %o, 16; st.global.v2.u64 [%o+16], {%d1, %d2};", 16, GLOBAL, STORE,
	  0x123456789abcdef0 },
	{ "add.s64 %e, %o, 16; @%t st.global.u32 [%o+16], %r2;", 4, GLOBAL, STORE, 7 },
	{ "add.s64 %e, %o, 16; @!%n st.global.u32 [%o+16], %r2;", 4, GLOBAL, STORE, 7 },
	{ "mov.u64 %e, 0; @%n st.global.u32 [%o+16], %r2;", 0, 0, 0, 0, true },
	{ "mov.u64 %e, 0; @!%t ld.global.u32 %r3, [%o+16];", 0, 0, 0, 0, true },
	{ "add.s64 %e, %o, 16; ld.global.nc.v4.u32 {%r3, %r4, %r5, %r6}, [%o+16];", 16, GLOBAL,
	  LOAD, 0 },
	{ "add.s64 %e, %o, 16; add.s64 %d3, %o, 24; ld.global.u8 %h3, [%d3+-8];", 1, GLOBAL, LOAD,
	  0 },
	{ "add.s64 %e, %o, 16; mov.u64 %d3, %e; ld.acquire.sys.b32 %r3, [%d3];", 4, GENERIC, LOAD,
	  0 },
	{ "add.s64 %e, %o, 16; ldu.global.u64 %d3, [%o+16];", 8, GLOBAL, LOAD, 0 },
	{ "mov.u64 %e, g; cvta.global.u64 %e, %e; add.s64 %e, %e, 4; ld.global.u32 %r3, [g+4];", 4,
	  GLOBAL, LOAD, 0 },
	{ "mov.u64 %e, k; cvta.const.u64 %e, %e; ld.const.u16 %h3, [k];", 2, CONST, LOAD, 0 },
	{ "mov.u64 %e, s; cvta.shared.u64 %e, %e; add.s64 %e, %e, 8; st.shared.u64 [s+8], %d2;", 8,
	  SHARED, STORE, 9 },
	{ "mov.u32 %r3, s; mov.u64 %e, s; cvta.shared.u64 %e, %e; add.s64 %e, %e, 4; ld.shared.u32 "
	  "%r4, [%r3+4];",
	  4, SHARED, LOAD, 0 },
	{ "mov.u64 %e, l; cvta.local.u64 %e, %e; add.s64 %e, %e, 8; st.local.u32 [l+8], %r2;", 4,
	  LOCAL, STORE, 7 },
	{ "add.s64 %e, %o, 16; atom.global.add.u32 %r3, [%o+16], %r2;", 4, GLOBAL, ATOMIC, 7 },
	{ "add.s64 %e, %o, 16; atom.global.cas.b64 %d3, [%o+16], %d2, %d1;", 8, GLOBAL, ATOMIC,
	  0x123456789abcdef0 },
	{ "add.s64 %e, %o, 16; atom.relaxed.gpu.global.exch.b32 %r3, [%o+16], 5;", 4, GLOBAL,
	  ATOMIC, 5 },
	{ "add.s64 %e, %o, 16; red.global.add.f32 [%o+16], %f1;", 4, GLOBAL, REDUCTION,
	  0x3fc00000 },
	{ "mov.u64 %e, s; cvta.shared.u64 %e, %e; atom.shared.max.u64 %d3, [s], %d2;", 8, SHARED,
	  ATOMIC, 9 },
	{ "{ .reg .b64 %o; .reg .b32 %r1; mov.u64 %o, g; mov.u32 %r1, 77; cvta.global.u64 %e, %o; "
	  "st.global.u32 [%o], %r1; }",
	  4, GLOBAL, STORE, 77 },
	{ ".pragma \"nounroll\"; add.s64 %e, %o, 16; st.global.u32 [%o+16], %r2;", 4, GLOBAL, STORE,
	  7 },
};

static const char memory_head[] = ".version 8.0\n.target sm_90\n.address_size 64\n.global .align "
				  "16 .u32 g[4] = {11, 22, 33, 44};\n.const .u16 k[2] = {5, 6};\n"
				  ".visible .entry test(.param .u64 out)\n{\n"
				  ".reg .b64 %o, %e; .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 "
				  "%f<4>; .reg .f64 %g<4>; .reg .b16 %h<4>; .reg .pred %t, %n;\n"
				  ".shared .align 8 .b8 s[16]; .local .align 8 .b8 l[16];\n"
				  "ld.param.u64 %o, [out]; mov.u64 %d1, 0x123456789abcdef0; "
				  "mov.u64 %d2, 9; mov.u32 %r1, 0x89abcdef; mov.u32 %r2, 7;\n"
				  "mov.f32 %f1, 0f3FC00000; mov.f64 %g1, 0d4004000000000000; "
				  "mov.u16 %h1, 0xbeef; mov.u16 %h2, 2;\n"
				  "setp.eq.u32 %t, %r2, 7; setp.ne.u32 %n, %r2, 7;\nmov.u32 %r3, "
				  "%ctaid.x; mov.u32 %r4, %ctaid.z; or.b32 %r3, %r3, %r4;\n"
				  "setp.ne.u32 %t, %r3, 0; @%t ret; setp.eq.u32 %t, %r2, 7;\n";

static void test_memory(void **state) {
	CUdeviceptr out;
	void *arguments[] = { &out };
	uint64_t address;
	char text[4096];

	OK(cuMemAlloc_v2(&out, 64));
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i / 2];
		struct run run = {
			.text = text,
			.uses = { { .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT } },
			.use_count = 1,
			.context = { 0, 8, 16, 24, 32, 40, 48 },
			.fields = 7,
			.arguments = arguments,
			.function = "test",
			.call = i & 1,
		};
		const uint64_t *fields = run.records[0].fields;

		snprintf(text, sizeof(text), "%s%s\nst.global.u64 [%%o+8], %%e;\nret;\n}\n",
			 memory_head, row->code);
		execute(&run);
		OK(cuMemcpyDtoH_v2(&address, out + 8, 8));
		if (run.count != (row->none ? 1 : 2))
			fail_msg("%s: %llu records", row->code, (unsigned long long)run.count);
		if (row->none) {
			assert_int_equal(fields[0], (uint64_t)IMAGE << 32 |
							    1); /* it has a number all the same */
			continue;
		}
		if (fields[0] != (uint64_t)IMAGE << 32 || fields[1] != address ||
		    fields[2] != row->size || fields[3] != row->space || fields[4] != row->kind ||
		    fields[5] != row->value || fields[6])
			fail_msg("%s (%s): id %llx address %llx (not %llx) size %llu space %llu "
				 "kind %llu value %llx",
				 row->code, run.call ? "called" : "inlined",
				 (unsigned long long)fields[0], (unsigned long long)fields[1],
				 (unsigned long long)address, (unsigned long long)fields[2],
				 (unsigned long long)fields[3], (unsigned long long)fields[4],
				 (unsigned long long)fields[5]);
		assert_int_equal(run.records[1].fields[0], ((uint64_t)IMAGE << 32) + 1);
		assert_int_equal(run.records[1].fields[5], address);
	}
	OK(cuMemFree_v2(out));
}

/* FNV-1a of "test" and of "f", computed with another program. */
#define ID_OF_TEST UINT64_C(0xf9e6e6ef197c2b25)
#define ID_OF_F UINT64_C(0xaf63db4c8601ead9)

static const char kernel_text[] =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".func (.param .b32 r) f(.param .b32 a, .param .align 4 .b8 b[12], .param .f64 c) {\n.reg "
	".b32 %r;\nld.param.u32 %r, [a];\n"
	"st.param.b32 [r], %r;\nret;\n}\n"
	".func (.reg .b32 r) g(.reg .b16 a, .reg .f32 b, .reg .b64 c, .reg .pred d) {\ncvt.u32.u16 "
	"r, a;\nadd.s64 c, c, 1;\nret;\n}\n"
	".visible .entry test(.param .u8 a, .param .u16 b, .param .f32 c, .param .f64 d, .param "
	".u64 .ptr .global .align 4 e,\n"
	".param .align 4 .b8 p5[12], .param .align 1 .b8 p6[3], .param .align 2 .b8 h[6], .param "
	".u64 i, .param .u64 j, .param .u64 k,\n"
	".param .u64 l, .param .u64 m, .param .u64 n)\n{\n.reg .b32 %r<4>; .reg .b16 %h; .reg .b64 "
	"%d; .reg .f32 %f; .reg .pred %p;\n"
	"mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.z; or.b32 %r0, %r0, %r1;\n"
	"setp.ne.u32 %p, %r0, 0; @%p bra $out;\n"
	"{ .param .b32 a0; .param .align 4 .b8 a1[12]; .param .f64 a2; .param .b32 r0; "
	"st.param.b32 [a0], 0x12345678; st.param.b32 [a1], 1;\n"
	"st.param.b32 [a1+4], 2; st.param.b32 [a1+8], 3; st.param.f64 [a2], 0d4004000000000000; "
	"call (r0), f, (a0, a1, a2);\n"
	"ld.param.b32 %r0, [r0]; }\n"
	"mov.u16 %h, 0xfffe; mov.f32 %f, 0f3FC00000; mov.u64 %d, 41; setp.eq.u64 %p, %d, 41; call "
	"(%r1), g, (%h, %f, %d, %p);\n"
	"$out:\nret;\n}\n";

/* What block x of the kernel's six sees, and what the functions see that block 0 calls. */
static void test_kernel(void **state) {
	uint8_t a = 0xf1, g[3] = { 1, 2, 3 };
	uint16_t b = 0xf2f3, h[3] = { 1, 2, 3 };
	float c = 1.5;
	double d = 2.5;
	uint64_t e = 0x1122334455667788, i = 100, j = 101, k = 102, l = 103, m = 104, n = 105;
	uint32_t f[3] = { 7, 8, 9 };
	void *arguments[] = { &a, &b, &c, &d, &e, f, g, h, &i, &j, &k, &l, &m, &n };
	static const struct {
		const char *function;
		uint64_t fields[FIELDS_MAX];
		uint64_t times;
		uint64_t returned_third; /* parameter 2 at the return */
	} cases[] = {
		{ "test",
		  { ID_OF_TEST,
		    3,
		    4321,
		    3 | UINT64_C(1) << 32,
		    2,
		    1 | 1 << 16 | UINT64_C(1) << 32,
		    48,
		    14,
		    0xf1,
		    0xf2f3,
		    0x3fc00000,
		    0x4004000000000000,
		    0x1122334455667788,
		    UINT64_C(8) << 32 | 7,
		    0x030201,
		    0x000300020001,
		    100,
		    101,
		    102,
		    103,
		    104 },
		  6,
		  0x3fc00000 },
		{ "f",
		  { ID_OF_F, 3, 4321, 3 | UINT64_C(1) << 32, 2, 1 | 1 << 16 | UINT64_C(1) << 32, 48,
		    3, 0x12345678, UINT64_C(2) << 32 | 1, 0x4004000000000000 },
		  1,
		  0x4004000000000000 },
		{ "g",
		  { 0, 3, 4321, 3 | UINT64_C(1) << 32, 2, 1 | 1 << 16 | UINT64_C(1) << 32, 48, 4,
		    0xfffe, 0x3fc00000, 41, 1 },
		  1,
		  42 }, /* what the function has left in the register */
	};

	for (size_t x = 0; x < 12; x++) {
		const uint64_t *expected = cases[x / 4].fields;
		struct run run = {
			.text = kernel_text,
			.uses = { { .point = x & 1 ? POINT_RETURN : POINT_ENTRY } },
			.use_count = 1,
			.fields = FIELDS_MAX,
			.arguments = arguments,
			.shared = 48,
			.function = cases[x / 4].function,
			.call = x & 2,
		};

		for (uint16_t field = 0; field < FIELDS_MAX; field++)
			run.context[field] = 8 * field;
		execute(&run);
		assert_int_equal(run.count, cases[x / 4].times);
		for (uint64_t record = 0; record < run.count; record++)
			for (unsigned int field = !expected[0]; field < FIELDS_MAX; field++) {
				uint64_t wanted = field == 10 && (x & 1)
							  ? cases[x / 4].returned_third
							  : expected[field];

				if (run.records[record].fields[field] != wanted)
					fail_msg("%s %s: field %u is %llx, not %llx", run.function,
						 x & 2 ? "called" : "inlined", field,
						 (unsigned long long)run.records[record]
							 .fields[field],
						 (unsigned long long)wanted);
			}
	}
}

/* Every call of a stub that is reached, with a result that is 0, and not the entry. */
static void test_stub(void **state) {
	static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n.extern .func "
				   "(.param .b32 r) _Z4markPv(.param .b64 a);\n"
				   ".visible .entry test(.param .u64 out)\n{\n.reg .b32 %r<6>; "
				   ".reg .b64 %o; .reg .pred %p;\nld.param.u64 %o, [out];\n"
				   "mov.u32 %r1, 9; mov.u32 %r0, 0;\n$again:\n{ // callseq 0, "
				   "0\n.param .b64 param0;\nst.param.b64 [param0], %o;\n"
				   ".param .b32 retval0;\ncall.uni "
				   "(retval0),\n_Z4markPv,\n(\nparam0\n);\nld.param.b32 %r1, "
				   "[retval0+0];\n} // callseq 0\n"
				   "add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, 2; @%p bra $again;\n"
				   "{ .param .b64 param0; .param .b32 retval0; @%p call (retval0), "
				   "_Z4markPv, (param0); }\nst.global.u32 [%o], %r1;\nret;\n}\n";
	static const char *const stubs[] = { "another", "mark" };
	uint32_t result;
	CUdeviceptr out;
	void *arguments[] = { &out };

	OK(cuMemAlloc_v2(&out, 64));
	for (int call = 0; call < 2; call++) {
		struct run run = {
			.text = text,
			.uses = { { .point = POINT_ENTRY } },
			.use_count = 1,
			.arguments = arguments,
			.stubs = stubs,
			.n_stubs = 2,
			.function = "test",
			.call = call,
		};

		execute(&run);
		assert_int_equal(run.count, 6 * 2);
		OK(cuMemcpyDtoH_v2(&result, out, 4));
		assert_int_equal(result, 0);
	}
	OK(cuMemFree_v2(out));
}

static int set_up(void **state) {
	static CUcontext context;
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	return 0;
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_stub),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
