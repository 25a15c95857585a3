/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of ptx-inline.c: bodies as blocks, bodies that are left to a call, and modules that
 * hold such blocks. If the variable PTXAS names ptxas, it assembles every module made here. What
 * the blocks count is checked by tests/sim/test-sim-probe.py.
 */

#include "test-probe.h"

#include "lib/ptx/ptx-inline.h"

#define SLOT ".visible .global .align 8 .u64 __gpuprobe_o1_m0;\n"
#define BEGIN(name) ".func (.param .b64 r) " name "(\n\t.param .b64 ctx\n)\n{\n"
#define KERNEL(name, body) ".visible .entry " name "(.param .u64 x)\n{\n" body "}\n"
#define PROBES_MAX 3

static const uint16_t no_parameter[] = { 160 }; /* reads as 0 */

static const char *const arguments[] = { "0", "%other" };

/* As LLVM writes them: a loop, a way out in the middle, a stack. */
#define LOOP(name)                                                         \
	SLOT BEGIN(name) "\t.local .align 8 .b8 \t__local_depot0[16];\n"   \
			 "\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n"       \
			 "\t.reg .pred \t%p<3>;\n\t.reg .b32 \t%r<4>;\n"   \
			 "\t.reg .b64 \t%rd<4>;\n\n"                       \
			 "\tmov.u64 \t%SPL, __local_depot0;\n"             \
			 "\tcvta.local.u64 \t%SP, %SPL;\n"                 \
			 "\tld.param.u64 \t%rd1, [ctx+0];\n"               \
			 "\tst.u64 \t[%SP+8], %rd1;\n"                     \
			 "\tmov.u32 \t%r1, %tid.x;\n"                      \
			 "\tsetp.gt.u32 \t%p1, %r1, 100;\n"                \
			 "\tst.param.b64 \t[r], 0;\n"                      \
			 "\t@%p1 ret;\n"                                   \
			 "$L__BB0_1:\n"                                    \
			 "\tadd.s32 \t%r1, %r1, -1;\n"                     \
			 "\tsetp.gt.s32 \t%p2, %r1, 0;\n"                  \
			 "\tred.global.add.u64 \t[__gpuprobe_o1_m0], 1;\n" \
			 "\t@%p2 bra \t$L__BB0_1;\n"                       \
			 "\tbra.uni \t$L__BB0_2;\n"                        \
			 "$L__BB0_2:\n"                                    \
			 "\t@!%p2 st.param.b64 \t[r+0], %rd1;\n"           \
			 "\tret;\n}\n"

static struct ptx_module parse(const char *text) {
	struct ptx_module module;
	struct ptx_error error;

	if (ptx_module_parse(&module, text, strlen(text), &error))
		fail_msg("%u:%u: %s\n%s", error.line, error.column, error.message, text);
	return module;
}

/* The block that a program's body becomes, malloced; NULL if it must be called. */
static char *inlined(const char *program) {
	char text[8192], *block = NULL;
	struct ptx_module module;
	size_t length;
	FILE *stream;
	int r;

	snprintf(text, sizeof(text), HEADER "%s", program);
	module = parse(text);
	stream = open_memstream(&block, &length);
	assert_non_null(stream);
	r = ptx_inline_write(stream, &module, ptx_module_find_function(&module, "p", 1), arguments,
			     NULL, 0, "_s");
	assert_int_equal(fclose(stream), 0);
	ptx_module_deinit(&module);
	assert_in_range(r, 0, PTX_INLINE_E_CANNOT);
	if (!r)
		return block;
	free(block);
	return NULL;
}

static void check(const char *body, const char *expected) {
	char program[4096], *block;

	snprintf(program, sizeof(program), BEGIN("p") "%s}\n", body);
	block = inlined(program);
	assert_non_null(block);
	assert_string_equal(block, expected);
	free(block);
}

static void check_cannot(const char *body) {
	char program[4096], *block;

	snprintf(program, sizeof(program), BEGIN("p") "%s}\n", body);
	block = inlined(program);
	if (block)
		fail_msg("inlined:\n%s", block);
}

static void test_ways_out(void **state) {
	check("ret;", "{\n\tbra $L__end_s;\n$L__end_s:\n\t}\n");
	check("ret.uni;", "{\n\tbra $L__end_s;\n$L__end_s:\n\t}\n");
	check("@p ret; @!%p2 ret;",
	      "{\n\t@p bra $L__end_s;\n\t@!%p2 bra $L__end_s;\n$L__end_s:\n\t}\n");
	check("{ ret; }", "{\n\t{\n\tbra $L__end_s;\n\t}\n$L__end_s:\n\t}\n");
	check("", "{\n$L__end_s:\n\t}\n"); /* a body may end without one */
	check("exit;", "{\n\texit;\n$L__end_s:\n\t}\n");
}

static void test_parameter_and_result(void **state) {
	check("ld.param.b64 %a, [ctx];", "{\n\tmov.b64 %a, 0;\n$L__end_s:\n\t}\n");
	check("@%p ld.param.u64 %a, [ctx+0];", "{\n\t@%p mov.b64 %a, 0;\n$L__end_s:\n\t}\n");
	check("ld .param .b64 %a, [ctx];", "{\n\tmov.b64 %a, 0;\n$L__end_s:\n\t}\n");
	check("st.param.b64 [r], %a; @p st.param.b64 [r+0], 0;", "{\n$L__end_s:\n\t}\n");
	check_cannot("ld.param.b32 %a, [ctx];");
	check_cannot("ld.param.b32 %a, [ctx+4];");
	check_cannot("ld.param.b64 %a, [ctx+8];");
	check_cannot("mov.b64 %a, ctx;");
	check_cannot("st.param.b32 [r+4], 0;");
	check_cannot("ld.param.b64 %a, [r];");
	check_cannot("st.param.b64 [ctx], 0;");
	check_cannot("st.param.b64 [r], ctx;\nmov.b64 %a, r;");
	check_cannot(".local .u64 y = ctx;");
}

/* None, or several. */
static void test_parameters(void **state) {
	char *block = inlined(".func (.param .b64 r) p()\n{\nst.param.b64 [r], 0;\nret;\n}\n");

	assert_string_equal(block, "{\n\tbra $L__end_s;\n$L__end_s:\n\t}\n");
	free(block);
	block = inlined(".func (.param .b64 r) p(.param .b64 a, .param .b64 b)\n"
			"{\nld.param.b64 %x, [b];\n@%p ld.param.u64 %y, [a+0];\nld.param.b64 %z, "
			"[b];\n}\n");
	assert_string_equal(block, "{\n\tmov.b64 %x, %other;\n\t@%p mov.b64 %y, 0;\n\tmov.b64 %z, "
				   "%other;\n$L__end_s:\n\t}\n");
	free(block);
	assert_null(inlined(
		".func (.param .b64 r) p(.param .b64 a, .param .b64 b) { mov.b64 %x, b; }\n"));
	assert_null(inlined(".func (.param .b64 r) p(.param .b64 a, .param .b64 b) { st.param.b64 "
			    "[b], 0; }\n"));
	assert_null(inlined(".func (.param .b64 r) p(.param .b64 a, .param .b64 b) { ld.param.b64 "
			    "%x, [b+8]; }\n"));
}

static void test_labels(void **state) {
	check("a: bra a; @%p bra b; b:",
	      "{\n" PTX_LANES_BEGIN
	      "\ta_s:\n\tbra a_s;\n\t@%p bra b_s;\n\tb_s:\n$L__end_s:\n" PTX_LANES_END "\t}\n");
	check("bra.uni $L__BB0_10; $L__BB0_1: $L__BB0_10:",
	      "{\n\tbra.uni $L__BB0_10_s;\n\t$L__BB0_1_s:\n\t$L__BB0_10_s:\n$L__end_s:\n\t}\n");
	check("bra: bra bra;",
	      "{\n" PTX_LANES_BEGIN "\tbra_s:\n\tbra bra_s;\n$L__end_s:\n" PTX_LANES_END "\t}\n");
	check("$L__end1: bra $L__end1;",
	      "{\n" PTX_LANES_BEGIN "\t$L__end1_s:\n\tbra $L__end1_s;\n$L__end_s:\n" PTX_LANES_END
	      "\t}\n");
	check_cannot("$L__end: bra $L__end;");
	check_cannot("t: .branchtargets a, b; a: b: brx.idx %r, t;");
}

static void test_other_statements(void **state) {
	check(".reg .pred %p<3>;\n.local .align 8 .b8 d[8]; .loc 1 2 3\n add.u32 %a, /* + */ %b, "
	      "1;",
	      "{\n\t.reg .pred %p<3>;\n\t.local .align 8 .b8 d[8];\n"
	      "\tadd.u32 %a, /* + */ %b, 1;\n$L__end_s:\n\t}\n");
	check_cannot(".pragma \"nounroll\";");
	check_cannot("c: .callprototype (.param .b32 _) _ (.param .b64 _); call (a), %f, (b), c;");
	check_cannot("{ .param .b64 a; .param .b64 b; call (a), p, (b); }");
	check_cannot("mov.u64 %a, p;");
	/* one for all calls, not one for each kernel */
	check_cannot(".global .u64 count; red.global.add.u64 [count], 1;");
	check_cannot(".shared .u64 count;");
	check_cannot(".const .u64 c = 1;");
	assert_null(inlined(".func p(.param .b64 ctx) { ret; }\n"));
}

/* A module's kernels, and which programs each gets: a string of digits. */
struct plan {
	const char *kernel, *programs;
	bool inlined; /* out */
};

/* Probes as planned; returns the new text, which is assembled, too. */
static char *probe(const char *text, const char *const *programs, size_t n_programs,
		   struct plan *plans, size_t n) {
	static const char *const symbols[] = { "p0", "p1", "p2" };
	struct probe_program entries[PROBES_MAX];
	struct probe_use uses[PROBES_MAX][PROBES_MAX] = {};
	struct probe_function functions[PROBES_MAX];
	struct ptx_module module = parse(text);
	struct probe_options options = {};
	struct probe_result result = {};
	struct ptx_error error = {};
	struct ptx_edit *edit;
	size_t length;
	char *out;

	for (size_t i = 0; i < n_programs; i++) {
		entries[i] = program(symbols[i], programs[i]);
		entries[i].context = no_parameter;
		entries[i].context_count = 1;
	}
	for (size_t i = 0; i < n; i++) {
		functions[i] = (struct probe_function){
			.function = ptx_module_find_function(&module, plans[i].kernel,
							     strlen(plans[i].kernel)),
			.uses = uses[i],
			.use_count = (uint32_t)strlen(plans[i].programs),
		};
		for (uint32_t j = 0; j < functions[i].use_count; j++)
			uses[i][j].program = (uint32_t)(plans[i].programs[j] - '0');
	}
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	if (probe_apply(edit, &module, &options, entries, n_programs, functions, n, &result,
			&error))
		fail_msg("%s", error.message);
	assert_int_equal(ptx_edit_apply(edit, &out, &length), 0);
	for (size_t i = 0; i < n; i++) {
		char call[64];

		snprintf(call, sizeof(call), "call __probe_func__%s", plans[i].kernel);
		plans[i].inlined = !strstr(out, call);
		assert_int_equal(uses[i][0].sites, 1);
	}
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
	assemble(out, "sm_80");
	return out;
}

static const char two_kernels[] =
	HEADER KERNEL("a", "\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\tmov.u32 %r1, %tid.x;\n"
			   "\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $L__BB0_1;\n\tbar.sync 0;\n"
			   "$L__BB0_1:\n\tret;\n") KERNEL("b", "$L__BB0_1:\n\tret;\n");

static void test_two_programs(void **state) {
	static const char *const programs[] = { LOOP("p0"), LOOP("p1") };
	struct plan plans[] = { { "a", "01", false }, { "b", "1", false } };
	char *out;

	out = probe(two_kernels, programs, 2, plans, 2);
	assert_true(plans[0].inlined && plans[1].inlined);
	assert_int_equal(occurrences(out, SLOT), 1);
	assert_int_equal(occurrences(out, ".func"), 0);
	assert_int_equal(occurrences(out, "__local_depot0[16]"), 3);
	assert_int_equal(occurrences(out, "\n\t$L__BB0_1__gpuprobe0:"), 2);
	assert_int_equal(occurrences(out, "\n\t$L__BB0_1__gpuprobe1:"), 1);
	assert_int_equal(occurrences(out, "$L__BB0_1:"), 2);
	/* behind the declarations, before the first instruction */
	assert_non_null(strstr(out, "\t.reg .b32 %r<3>;\n\t{\n{\n" PTX_LANES_BEGIN "\t.local"));
	assert_non_null(strstr(out, "$L__end__gpuprobe1:\n" PTX_LANES_END
				    "\t}\n\t}\n\tmov.u32 %r1, %tid.x;"));
	free(out);
}

static void test_called_and_inlined(void **state) {
	static const char *const programs[] = {
		LOOP("p0"),
		".func p1_helper() { ret; }\n" BEGIN("p1") "\tcall p1_helper;\n\tret;\n}\n",
	};
	struct plan plans[] = { { "a", "01", false }, { "b", "0", false } };
	char *out;

	out = probe(two_kernels, programs, 2, plans, 2);
	assert_true(!plans[0].inlined && plans[1].inlined);
	assert_int_equal(occurrences(out, SLOT), 1);
	assert_int_equal(occurrences(out, BEGIN("p0")), 1);
	assert_int_equal(occurrences(out, BEGIN("p1")), 1);
	assert_int_equal(occurrences(out, "call __probe_func__a, ("), 1);
	assert_int_equal(occurrences(out, "__probe_func__b"), 0);
	assert_int_equal(occurrences(out, "$L__BB0_1__gpuprobe0:"), 1);
	free(out);
}

/* A program of some thousand instructions. */
static char *large(const char *name, size_t instructions) {
	char *text = NULL;
	size_t length;
	FILE *stream = open_memstream(&text, &length);

	fprintf(stream, BEGIN("%s") "\t.reg .b32 %%r<2>;\n", name);
	for (size_t i = 0; i < instructions; i++)
		fprintf(stream, "\tmov.u32 %%r1, 1234567;\n"); /* 24 bytes */
	fputs("\tret;\n}\n", stream);
	fclose(stream);
	return text;
}

static void test_sizes(void **state) {
	char *small = large("p0", 400), *other = large("p1", 400), *big = large("p2", 800), *out;
	const char *const programs[] = { small, other, big };
	struct plan plans[] = { { "a", "0", false }, { "b", "01", false } };
	struct plan both[] = { { "a", "1", false }, { "b", "2", false } };

	out = probe(two_kernels, programs, 3, plans, 2);
	assert_true(plans[0].inlined && !plans[1].inlined);
	free(out);
	out = probe(two_kernels, programs, 3, both, 2);
	assert_true(both[0].inlined && !both[1].inlined);
	assert_null(strstr(out, BEGIN("p1")));
	assert_non_null(strstr(out, BEGIN("p2")));
	free(out);
	free(small);
	free(other);
	free(big);
}

/* So many kernels that the module would grow without measure: the last ones call. */
static void test_many_kernels(void **state) {
	enum {
		N = 1200
	};
	char *program_text = large("p0", 690), *text = NULL;
	struct probe_program one = program("p0", program_text);
	struct trial trial = { .programs = &one, .count = 1, .use_count = 1, .kernels_only = true };
	size_t length;
	FILE *stream;

	assert_in_range(one.length, 15500, 16384);
	one.context = no_parameter;
	one.context_count = 1;
	stream = open_memstream(&text, &length);
	fputs(HEADER, stream);
	for (int i = 0; i < N; i++)
		fprintf(stream, ".visible .entry k%d() { ret; }\n", i);
	fclose(stream);
	must(text, &trial);
	assert_int_equal(trial.sites[0], N);
	assert_null(strstr(trial.out, "call __probe_func__k1000,"));
	assert_non_null(strstr(trial.out, "call __probe_func__k1199,"));
	assert_in_range(strlen(trial.out), 15 << 20, 18 << 20);
	finish(&trial);
	free(text);
	free(program_text);
}

/* Memory instructions come behind the returns, and what does not fit calls. */
static void test_many_sites(void **state) {
	char *program_text = large("p0", 50), *text = NULL;
	struct probe_program one = program("p0", program_text);
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			  { .point = POINT_RETURN } },
		.use_count = 2,
		.kernels_only = true,
	};
	size_t length;
	FILE *stream;

	one.context = no_parameter;
	one.context_count = 1;
	stream = open_memstream(&text, &length);
	fputs(HEADER ".visible .entry k(.param .u64 x)\n{\n\t.reg .b64 %rd<3>;\n\tld.param.u64 "
		     "%rd1, [x];\n",
	      stream);
	for (int i = 0; i < 500; i++)
		fputs("\tld.volatile.global.u64 %rd2, [%rd1];\n", stream);
	fputs("\tret;\n}\n", stream);
	fclose(stream);
	must(text, &trial);
	assert_int_equal(trial.sites[0], 500);
	assert_int_equal(trial.sites[1], 1);
	assert_null(strstr(trial.out, "call __retprobe_func__k"));
	length = 16384 / (one.length + 256) - 1; /* memory instructions that fit */
	assert_int_equal(occurrences(trial.out, "call __memcapture__0, ("), 500 - length);
	assert_int_equal(occurrences(trial.out, ".func __memcapture__"), 1);
	assemble(trial.out, "sm_80");
	finish(&trial);
	free(text);
	free(program_text);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways_out),
		cmocka_unit_test(test_parameter_and_result),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_other_statements),
		cmocka_unit_test(test_two_programs),
		cmocka_unit_test(test_called_and_inlined),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_many_kernels),
		cmocka_unit_test(test_many_sites),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
