/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of probe-bare.c: the bare kernels that a module gets beside probed ones. */

#include "test-probe.h"

#define BARE PROBE_BARE_SUFFIX
#define PROBE "{\n\tcall __probe_func__k;\n\t}\n\t"

static const struct trial entry = {
	.options = { .call = true, .bare = true },
	.uses = { { .point = POINT_ENTRY } },
	.use_count = 1,
	.count = 1,
	.kernels_only = true,
};

/* What stands before a kernel k, its text with `@` where its name is ended and `#` where the probe
 * goes, and what stands behind. */
static void check(const char *ahead, const char *kernel, const char *behind) {
	const struct probe_program one = program("p", FUNCTION("p"));
	const char *name = strchr(kernel, '@'), *mark = strchr(kernel, '#');
	char text[2048], expected[4096];
	struct trial trial = entry;
	int before = (int)(name - kernel), middle = (int)(mark - name - 1);

	trial.programs = &one;
	snprintf(text, sizeof(text), HEADER "%s%.*s%.*s%s%s", ahead, before, kernel, middle,
		 name + 1, mark + 1, behind);
	snprintf(expected, sizeof(expected), "%.*s%.*s" PROBE "%s\n%.*s" BARE "%.*s%s%s", before,
		 kernel, middle, name + 1, mark + 1, before, kernel, middle, name + 1, mark + 1,
		 behind);
	must(text, &trial);
	if (!strstr(trial.out, expected))
		fail_msg("expected\n%s\nin\n%s", expected, trial.out);
	assert_int_equal(occurrences(trial.out, BARE), 1);
	assert_int_equal(trial.sites[0], 1);
	assemble(trial.out, "sm_90");
	finish(&trial);
}

static void test_text(void **state) {
	check("", ".visible .entry k@() {\n\t#ret;\n}", "\n");
	check("",
	      ".entry k@(.param .u64 k_param_0, .param .align 8 .b8 k_param_1[16])\n{ // }\n\t.reg "
	      ".b64 a;\n\t"
	      "#ld.param.u64 a, [k_param_0];\n\tret;\n}",
	      "");
	check("",
	      ".weak .entry k@()\n.maxntid 128, 1, 1\n.minnctapersm 2\n{\n\t.shared .b8 "
	      "s[64];\n\t#st.shared.u32 [s], 1;\nret;\n}",
	      " .visible .global .u32 behind;\n");
	check("",
	      ".visible .entry k@()\n.reqntid 64\n.maxnreg 40\n{\n\t.reg .pred p;\n\t#bra "
	      "$L;\n$L:\n\tret;\n}",
	      "\n// the end\n");
}

/* What a body declares for its own jumps and calls is known in it only. */
static void test_tables(void **state) {
	check(".visible .func f() { ret; }\n",
	      ".visible .entry k@(.param .u64 x) {\n\t.reg .b64 a; .reg .b32 i;\n\t#mov.u64 a, f;\n"
	      "\tP: .callprototype _ ();\n\tcall a, P;\n\tT: .calltargets f;\n\tcall a, T;\n"
	      "\tld.param.u32 i, [x];\n\tB: .branchtargets L0, L1;\n\tbrx.idx i, "
	      "B;\nL0:\n\tret;\nL1:\n\texit;\n}",
	      "\n");
}

/* Labels that a debug section names are those of the probed kernel. */
static void test_sections(void **state) {
	check("",
	      ".visible .entry k@() {\n\t#$L__func_begin0:\n\t.loc 1 1 "
	      "1\n\tret;\n$L__func_end0:\n}",
	      "\n.file 1 \"x.cu\"\n.section .debug_str {\n.b8 1\n}\n");
}

/* None is made of a kernel without a program, of a device function, where the name is taken, and of
 * a body with memory. */
static void test_none(void **state) {
	static const char *const texts[] = {
		".visible .func k() { ret; }\n",
		".visible .entry k() { ret; }\n.visible .entry k" BARE "() { ret; }\n",
		".visible .entry k() { ret; }\n.global .u32 k" BARE ";\n",
		".visible .entry k() { .global .u32 calls; ret; }\n",
		".visible .entry k();\n",
	};
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry;

	trial.programs = &one;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), HEADER "%s", texts[i]);
		must(text, &trial);
		/* a second one that is named so gets a program itself, and its own */
		assert_int_equal(occurrences(trial.out, ".entry k" BARE "("),
				 occurrences(text, ".entry k" BARE "("));
		finish(&trial);
	}
	trial.uses[0] = (struct probe_use){ .point = POINT_LINE, .file = "x.cu", .line = 3 };
	must(HEADER ".visible .entry k() { ret; }\n", &trial);
	assert_int_equal(trial.sites[0], 0);
	assert_int_equal(occurrences(trial.out, BARE), 0);
	finish(&trial);
}

#define X "(.param .b32 x)"
#define CALL(name) "{ .param .b32 a; st.param.b32 [a], 1; call " name ", (a); } "

/* A program at the entry of the device function f alone. */
static void probe_f(struct trial *trial, const char *text) {
	static struct probe_program one;

	one = program("p", FUNCTION("p"));
	*trial = entry;
	trial->programs = &one;
	trial->kernels_only = false;
	trial->only = "f";
	must(text, trial);
	assemble(trial->out, "sm_90");
}

/* What calls a probed device function is there as it was, too, and so is what it calls on the way.
 */
static void test_callers(void **state) {
	/* clang-format off */
	static const char text[] =
		HEADER ".func other" X " { ret; }\n.func f" X ";\n.func g" X " { " CALL("f") CALL("other") "ret; }\n"
		       ".func f" X " { " CALL("g") "ret; }\n.visible .entry k() { " CALL("g") "ret; }\n"
		       ".visible .entry l() { " CALL("other") "ret; }\n";
	static const char expected[] =
		"\n.func other" X " { ret; }\n.func f" X ";\n.func f" BARE X ";\n"
		".func g" X " { " CALL("f") CALL("other") "ret; }\n.func g" BARE X " { " CALL("f" BARE) CALL("other") "ret; }\n"
		".func f" X " { {\n\tcall __probe_func__f;\n\t}\n\t" CALL("g") "ret; }\n.func f" BARE X " { " CALL("g" BARE) "ret; }\n"
		".visible .entry k() { " CALL("g") "ret; }\n.visible .entry k" BARE "() { " CALL("g" BARE) "ret; }\n"
		".visible .entry l() { " CALL("other") "ret; }\n";
	/* clang-format on */
	struct trial trial;

	probe_f(&trial, text);
	if (!strstr(trial.out, expected))
		fail_msg("expected\n%s\nin\n%s", expected, trial.out);
	assert_int_equal(trial.sites[0], 1);
	assert_false(trial.refused);
	finish(&trial);
}

/* A device function gets no program where kernels that call it could not be there as they were. */
static void test_refused(void **state) {
	static const char *const texts[] = {
		/* its address is taken: in a table, by a function, in a list of targets, by another
		   name; or its caller's */
		".func f" X " { ret; }\n.visible .global .u64 table[2] = {0, f};\n",
		".func f" X
		" { ret; }\n.visible .entry k(.param .u64 x) { .reg .b64 a; mov.u64 a, f; ret; }\n",
		".func f" X " { ret; }\n.visible .entry k() { .reg .b64 a; mov.u64 a, 0; { .param "
		".b32 b; st.param.b32 [b], 1;\n"
		"T: .calltargets f;\n\tcall a, (b), T; } ret; }\n",
		".visible .func f() { ret; }\n.visible .func g();\n.alias g, f;\n.visible .entry "
		"k() { call g; ret; }\n",
		".func f" X " { ret; }\n.func g" X
		" { " CALL("f") "ret; }\n.visible .global .u64 table[1] = {g};\n",
		/* memory of its own, or of a kernel that calls it */
		".func f" X " { .global .u32 calls; ret; }\n",
		".func f" X
		" { ret; }\n.visible .entry k() { .global .u32 calls; " CALL("f") "ret; }\n",
		/* the name is taken */
		".func f" X " { ret; }\n.global .u32 f" BARE ";\n",
		".func f" X
		" { ret; }\n.visible .entry k() { " CALL("f") "ret; }\n.global .u32 k" BARE ";\n",
	};
	struct trial trial;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), HEADER "%s", texts[i]);
		probe_f(&trial, text);
		if (!trial.refused || trial.sites[0] || strcmp(trial.out, text))
			fail_msg("not refused:\n%s", trial.out);
		finish(&trial);
	}
}

/* Targets of a call that are numbered. */
static void test_numbered(void **state) {
	static const char text[] =
		HEADER ".func f0" X " { ret; }\n.func f1" X
		       " { ret; }\n.visible .entry k() { .reg .b64 a; mov.u64 a, f0; "
		       "{ .param .b32 b; st.param.b32 [b], 1;\nT: .calltargets f<2>;\n\tcall a, "
		       "(b), T; } ret; }\n";
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry;

	trial.programs = &one;
	trial.kernels_only = false;
	trial.only = "f1";
	must(text, &trial);
	assert_true(trial.refused);
	assert_string_equal(trial.out, text);
	assemble(trial.out, "sm_90");
	finish(&trial);
}

/* Who calls it is not known where a body is not understood. */
static void test_unknown(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry;

	trial.programs = &one;
	trial.kernels_only = false;
	trial.only = "f";
	assert_int_equal(attempt(HEADER ".func f() { ret; }\n.visible .entry k() { @; }\n", &trial),
			 PROBE_E_FUNCTION);
	assert_int_equal(trial.error.line, 5);
	assert_true(trial.error.message[0]);
	finish(&trial);
}

/* Without the option nothing of it is there. */
static void test_off(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry;

	trial.programs = &one;
	trial.options.bare = false;
	must(HEADER ".visible .entry k() { ret; }\n", &trial);
	assert_int_equal(occurrences(trial.out, BARE), 0);
	assert_int_equal(trial.sites[0], 1);
	finish(&trial);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),     cmocka_unit_test(test_tables),
		cmocka_unit_test(test_sections), cmocka_unit_test(test_none),
		cmocka_unit_test(test_callers),  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_numbered), cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
