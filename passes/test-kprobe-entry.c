/* SPDX-License-Identifier: Apache-2.0 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kprobe-entry.h"

#define HEADER ".version 7.0\n.target sm_80\n.address_size 64\n"
#define SHARED ".visible .global .align 8 .u64 __gpuprobe_o1_m0 = 0;\n"
#define FUNCTION(name)                \
	".func (.param .b64 r) " name \
	" (.param .b64 ctx)\n{\n\tst.param.b64 [r], 0; // }\n\tret;\n}\n"
#define PROTOTYPE ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
#define CALLER_BEGIN(kernel) ".func __probe_func__" kernel "()\n{\n"
#define CALL_PROGRAM(name)                                                                                         \
	"\t{\n\t.param .b64 context;\n\t.param .b64 result;\n\tst.param.b64 [context], 0;\n\tcall (result), " name \
	", (context);\n\t}\n"
#define CALLER_END "\tret;\n}\n"
#define CALL(kernel) "{\n\tcall __probe_func__" kernel ";\n\t}\n\t"

static struct kprobe_entry_program program(const char *symbol, const char *text)
{
	return (struct kprobe_entry_program){
		.symbol = symbol, .text = text, .length = strlen(text), .isa = 63, .target = 52
	};
}

/*
 * Probes every kernel of text with all programs; returns what kprobe_entry_apply() does. *out is
 * malloced if that is 0.
 */
static int probe_all(const char *text, const struct kprobe_entry_program *programs, uint32_t count,
		     char **out, uint32_t *applied, struct ptx_error *error)
{
	static const uint32_t order[] = { 0, 1, 2, 3 };
	struct kprobe_entry_kernel kernels[16] = { 0 };
	const struct ptx_function *kernel = NULL;
	struct ptx_module module;
	struct ptx_edit *edit;
	size_t n = 0, length;
	int r;

	*applied = 0;
	if (ptx_module_parse(&module, text, strlen(text), error))
		fail_msg("%u:%u: %s", error->line, error->column, error->message);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	while ((kernel = ptx_module_next_kernel(&module, kernel)))
		kernels[n++] = (struct kprobe_entry_kernel){ kernel, order, count, false };
	r = kprobe_entry_apply(edit, &module, programs, count, kernels, n, error);
	for (size_t i = 0; i < n; i++)
		*applied += kernels[i].applied;
	if (!r) {
		assert_int_equal(ptx_edit_apply(edit, out, &length), 0);
		assert_int_equal(strlen(*out), length);
	}
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
	return r;
}

static void check(const char *text, const struct kprobe_entry_program *programs, uint32_t count,
		  const char *expected)
{
	struct ptx_error error = { 0 };
	uint32_t applied;
	char *out;

	if (probe_all(text, programs, count, &out, &applied, &error))
		fail_msg("%s", error.message);
	assert_string_equal(out, expected);
	free(out);
}

/*
 * One kernel k, one program p: body is what is between the kernel's braces, with `#` where the call
 * must be.
 */
static void check_place(const char *body)
{
	const struct kprobe_entry_program one = program("p", FUNCTION("p"));
	const char *mark = strchr(body, '#');
	char text[1024], expected[2048];

	snprintf(text, sizeof(text), HEADER ".visible .entry k(.param .u64 x)\n{%.*s%s}\n",
		 (int)(mark - body), body, mark + 1);
	snprintf(expected, sizeof(expected),
		 HEADER FUNCTION("p") "\n" CALLER_BEGIN("k") CALL_PROGRAM("p") CALLER_END
		 "\n"
		 ".visible .entry k(.param .u64 x)\n{%.*s" CALL("k") "%s}\n",
		 (int)(mark - body), body, mark + 1);
	check(text, &one, 1, expected);
}

static void test_places(void **state)
{
	check_place("\n\t#ret;\n");
	check_place(
		"\n\t.reg .b32 %r<4>; // a comment }\n\t.local .align 8 .b8 d[8];\n\n\t#mov.u32 %r1, 0;\n\tret;\n");
	check_place(".reg .pred p;#$start: @p bra $start; ret;"); /* the loop does not come by the
								     probe */
	check_place("\n#$start:\n.reg .pred p;\n@p bra $start;\nret;\n");
	check_place(
		"\n\t.reg .b32 a;\n\t#.pragma \"used_bytes_mask 1\";\n\tld.param.u32 a, [x];\n");
	check_place(
		"\n\t.shared .b8 s[4];\n\t#.loc 1 2 3\n$L__func_begin0:\n\t.loc 1 2 3\n\tret;\n");
	check_place("#");
	check_place(" // nothing but a comment }\n#");
	check_place("\n.reg .b32 only_declarations;\n#");
	check_place("\n#{ .reg .b32 x; }\nret;\n");
	check_place("\n.reg .pred %p;\n#@!%p ret;\nret;\n");
	check_place("\r\n\t.reg .b32 %r<2>;\r\n\t#ret;\r\n");
}

static void test_programs(void **state)
{
	const struct kprobe_entry_program programs[] = {
		program("p0", "// one\n" SHARED FUNCTION("p0")),
		program("p1", SHARED ".global .b32 p1_private;\n" PROTOTYPE FUNCTION("p1")),
		program("p2", "this is not read, nobody uses it"),
	};
	static const char text[] = HEADER
		"\n.extern .func (.param .b32 func_retval0) vprintf\n(.param .b64 a,\n.param .b64 b\n)\n;\n"
		".visible .entry a();\n.visible .entry a() { exit; }\n.weak .entry b { ret; }\n.entry c();\n";
	static const char expected[] =
		".version 7.5\n.target sm_80\n.address_size 64\n"
		"// one\n" SHARED FUNCTION("p0") "\n"
						 "\n.global .b32 p1_private;\n" PROTOTYPE FUNCTION(
							 "p1") "\n" CALLER_BEGIN("a")
							 CALL_PROGRAM("p1") CALL_PROGRAM("p0")
								 CALLER_END
		"\n" CALLER_BEGIN("b") CALL_PROGRAM("p0") CALLER_END
		"\n"
		"\n.extern .func (.param .b32 func_retval0) vprintf\n(.param .b64 a,\n.param .b64 b\n)\n;\n"
		".visible .entry a();\n.visible .entry a() { " CALL(
			"a") "exit; }\n.weak .entry b { " CALL("b") "ret; }\n.entry c();\n";
	static const uint32_t both[] = { 1, 0 }, first[] = { 0 }, third[] = { 2 };
	struct kprobe_entry_program changed[3];
	struct kprobe_entry_kernel kernels[3];
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_edit *edit;
	size_t length;
	char *out;

	memcpy(changed, programs, sizeof(changed));
	changed[1].isa = 75;
	assert_int_equal(ptx_module_parse(&module, text, strlen(text), &error), 0);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	kernels[0] = (struct kprobe_entry_kernel){ ptx_module_find_function(&module, "a", 1), both,
						   2, false };
	kernels[1] = (struct kprobe_entry_kernel){ ptx_module_find_function(&module, "c", 1), third,
						   1, true };
	kernels[2] = (struct kprobe_entry_kernel){ ptx_module_find_function(&module, "b", 1), first,
						   1, false };
	if (kprobe_entry_apply(edit, &module, changed, 3, kernels, 3, &error))
		fail_msg("%s", error.message);
	assert_true(kernels[0].applied);
	assert_false(kernels[1].applied); /* a prototype: nothing to do */
	assert_true(kernels[2].applied);
	assert_int_equal(ptx_edit_apply(edit, &out, &length), 0);
	assert_string_equal(out, expected);
	free(out);
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
}

static void test_nothing_to_do(void **state)
{
	const struct kprobe_entry_program one = program("p", FUNCTION("p"));
	struct ptx_error error = { 0 };
	uint32_t applied;
	char *out;

	check(HEADER ".entry k { ret; }", NULL, 0, HEADER ".entry k { ret; }");
	assert_int_equal(probe_all(HEADER ".entry k();", &one, 1, &out, &applied, &error), 0);
	assert_string_equal(out, HEADER ".entry k();");
	assert_int_equal(applied, 0);
	free(out);
}

static void test_long_name(void **state)
{
	const struct kprobe_entry_program one = program("p", FUNCTION("p"));
	char name[1501], text[8192], call[2048];
	struct ptx_error error = { 0 };
	struct ptx_module module;
	uint32_t applied;
	char *out;

	memset(name, 'x', sizeof(name) - 1);
	name[1500] = '\0';
	snprintf(text, sizeof(text),
		 HEADER ".visible .entry %s(.param .u64 %s_param_0)\n{\n\tret;\n}\n", name, name);
	assert_int_equal(probe_all(text, &one, 1, &out, &applied, &error), 0);
	assert_int_equal(applied, 1);
	snprintf(call, sizeof(call), "\t{\n\tcall __probe_func__%s;\n\t}\n\tret;", name);
	assert_non_null(strstr(out, call));
	assert_int_equal(ptx_module_parse(&module, out, strlen(out), &error), 0);
	snprintf(call, sizeof(call), "__probe_func__%s", name);
	assert_non_null(ptx_module_find_function(&module, call, strlen(call)));
	ptx_module_deinit(&module);
	free(out);
}

static void expect_error(const char *text, const struct kprobe_entry_program *programs,
			 uint32_t count, int expected, const char *message)
{
	struct ptx_error error = { 0 };
	uint32_t applied;
	char *out;
	int r;

	r = probe_all(text, programs, count, &out, &applied, &error);
	if (r != expected || (message && !strstr(error.message, message)))
		fail_msg("%d: %s", r, error.message);
}

static void test_taken(void **state)
{
	const struct kprobe_entry_program one = program("p", SHARED FUNCTION("p"));
	const struct kprobe_entry_program clash[] = {
		program("p", ".func helper { ret; }\n" FUNCTION("p")),
		program("q", ".func helper { ret; }\n" FUNCTION("q")),
	};
	struct ptx_error error = { 0 };
	uint32_t applied;
	char *out;

	expect_error(HEADER ".func __probe_func__k() { ret; }\n.entry k { ret; }", &one, 1,
		     KPROBE_ENTRY_E_TAKEN, "the module already has a symbol __probe_func__k");
	expect_error(HEADER ".global .b32 __probe_func__k;\n.entry k { ret; }", &one, 1,
		     KPROBE_ENTRY_E_TAKEN, "__probe_func__k");
	expect_error(HEADER ".global .b32 p;\n.entry k { ret; }", &one, 1, KPROBE_ENTRY_E_TAKEN,
		     "symbol p");
	expect_error(HEADER SHARED ".entry k { ret; }", &one, 1, KPROBE_ENTRY_E_TAKEN,
		     "__gpuprobe_o1_m0");
	expect_error(HEADER ".entry k { ret; }", clash, 2, KPROBE_ENTRY_E_TAKEN, "helper");
	/* probed twice */
	assert_int_equal(probe_all(HEADER ".entry k { ret; }", &one, 1, &out, &applied, &error), 0);
	expect_error(out, &one, 1, KPROBE_ENTRY_E_TAKEN, "already has a symbol");
	free(out);
}

static void test_bad_programs(void **state)
{
	static const struct {
		const char *text;
		const char *message;
	} cases[] = {
		{ "\n\n.func x(", "program p, line 3: expected a type" },
		{ HEADER FUNCTION("p"), "program p, line 1: expected a function" },
		{ FUNCTION("q"), "does not define a function of that name" },
		{ ".func (.param .b64 r) p (.param .b64 ctx);",
		  "does not define a function of that name" },
		{ ".entry p() { ret; }", "does not define a function of that name" },
		{ ".func p (.param .b64 ctx) { ret; }", "not one parameter and one result" },
		{ ".func (.param .b64 r) p (.param .b64 c, .param .b64 d) { ret; }",
		  "not one parameter and one result" },
		{ ".func (.param .b32 r) p (.param .b64 c) { ret; }", "must be .param .b64" },
		{ ".func (.param .b64 r) p (.reg .b64 c) { ret; }", "must be .param .b64" },
		{ ".func (.param .b64 r) p (.param .b8 c[8]) { ret; }", "must be .param .b64" },
	};
	struct kprobe_entry_program one;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		one = program("p", cases[i].text);
		expect_error(HEADER ".entry k { ret; }", &one, 1, KPROBE_ENTRY_E_PROGRAM,
			     cases[i].message);
	}
}

static void test_target(void **state)
{
	struct kprobe_entry_program one = program("p", FUNCTION("p"));
	struct ptx_error error = { 0 };
	uint32_t applied;
	char *out;

	expect_error(".version 6.0 .target sm_50 .address_size 64 .entry k { ret; }", &one, 1,
		     KPROBE_ENTRY_E_TARGET, "program p needs sm_52");
	expect_error(".version 6.0 .target sm_60 .address_size 32 .entry k { ret; }", &one, 1,
		     KPROBE_ENTRY_E_TARGET, "32-bit");
	/* an old version is raised, the target stays */
	assert_int_equal(probe_all(".version 6.0 .target sm_90a .entry k { ret; }", &one, 1, &out,
				   &applied, &error),
			 0);
	assert_memory_equal(out, ".version 6.3 .target sm_90a\n", 28);
	free(out);
	one.isa = 50;
	assert_int_equal(probe_all(".version 6.0 .target sm_52 .entry k { ret; }", &one, 1, &out,
				   &applied, &error),
			 0);
	assert_memory_equal(out, ".version 6.0 .target sm_52\n", 27);
	free(out);
}

static void test_misuse(void **state)
{
	const struct kprobe_entry_program one = program("p", FUNCTION("p"));
	static const char text[] = HEADER ".func f { ret; } .entry k { ret; }";
	static const uint32_t good[] = { 0 }, bad[] = { 1 };
	struct kprobe_entry_kernel kernels[2];
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_edit *edit;

	expect_error(HEADER ".entry k { add a; ) }", &one, 1, KPROBE_ENTRY_E_KERNEL, "a statement");
	assert_int_equal(ptx_module_parse(&module, text, strlen(text), &error), 0);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	kernels[0] = (struct kprobe_entry_kernel){ ptx_module_find_function(&module, "k", 1), bad,
						   1, false };
	assert_int_equal(kprobe_entry_apply(edit, &module, &one, 1, kernels, 1, &error), -EINVAL);
	kernels[0].programs = good;
	kernels[1] = kernels[0];
	assert_int_equal(kprobe_entry_apply(edit, &module, &one, 1, kernels, 2, &error), -EINVAL);
	kernels[0].kernel = ptx_module_find_function(&module, "f", 1);
	assert_int_equal(kprobe_entry_apply(edit, &module, &one, 1, kernels, 1, &error), -EINVAL);
	kernels[0].kernel = &(struct ptx_function){ .entry = true };
	assert_int_equal(kprobe_entry_apply(edit, &module, &one, 1, kernels, 1, &error), -EINVAL);
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),	      cmocka_unit_test(test_programs),
		cmocka_unit_test(test_nothing_to_do), cmocka_unit_test(test_long_name),
		cmocka_unit_test(test_taken),	      cmocka_unit_test(test_bad_programs),
		cmocka_unit_test(test_target),	      cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
