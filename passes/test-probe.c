/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the pass as a whole (probe.h): where programs go, programs that share names, the
 * constant bank, limits, and what it refuses.
 */

#include "test-probe.h"

#define SHARED ".visible .const .align 8 .u64 __gpuprobe_o1_m0;\n"
#define PROTOTYPE ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
#define CALLER_BEGIN(name) ".func " name "()\n{\n"
#define CALL_PROGRAM(name) \
	"\t{\n\t.param .b64 __gpuprobe_r;\n\tcall (__gpuprobe_r), " name ";\n\t}\n"
#define CALLER_END "\tret;\n}\n"
#define CALL(name) "{\n\tcall " name ";\n\t}\n\t"

static const struct trial entry_call = {
	.options = { .call = true },
	.uses = { { .point = POINT_ENTRY } },
	.use_count = 1,
	.count = 1,
};

/*
 * One kernel k, one program p: body is what is between the kernel's braces, with `#` where the call
 * must be.
 */
static void check_place(const char *body) {
	const struct probe_program one = program("p", FUNCTION("p"));
	const char *mark = strchr(body, '#');
	char text[1024], expected[2048];
	struct trial trial = entry_call;

	trial.programs = &one;
	snprintf(text, sizeof(text), HEADER ".visible .entry k(.param .u64 x)\n{%.*s%s}\n",
		 (int)(mark - body), body, mark + 1);
	snprintf(expected, sizeof(expected),
		 HEADER FUNCTION("p") "\n%s\n.visible .entry k(.param .u64 x)\n{%.*s" CALL(
			 "__probe_func__k") "%s}\n",
		 CALLER_BEGIN("__probe_func__k") CALL_PROGRAM("p") CALLER_END, (int)(mark - body),
		 body, mark + 1);
	must(text, &trial);
	assert_string_equal(trial.out, expected);
	assert_int_equal(trial.sites[0], 1);
	finish(&trial);
}

static void test_places(void **state) {
	check_place("\n\t#ret;\n");
	check_place("\n\t.reg .b32 %r<4>; // a comment }\n\t.local .align 8 .b8 "
		    "d[8];\n\n\t#mov.u32 %r1, 0;\n\tret;\n");
	check_place(".reg .pred p;#$start: @p bra $start; ret;"); /* the loop does not come by */
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

static void test_programs(void **state) {
	struct probe_program programs[] = {
		program("p0", "// one\n" SHARED FUNCTION("p0")),
		program("p1", SHARED ".global .b32 p1_private;\n" PROTOTYPE FUNCTION("p1")),
		program("p2", "this is not read, nobody uses it"),
	};
	static const char text[] =
		HEADER "\n" PROTOTYPE ".visible .entry a();\n.visible .entry a() { exit; }\n.weak "
		       ".entry b { ret; }\n.entry c();\n";
	/* clang-format off */
	static const char expected[] =
		".version 7.5\n.target sm_80\n.address_size 64\n// one\n" SHARED FUNCTION(
			"p0") "\n\n.global .b32 p1_private;\n" PROTOTYPE FUNCTION("p1") "\n" CALLER_BEGIN("__probe_func__a")
			CALL_PROGRAM("p1") CALL_PROGRAM("p0") CALLER_END CALLER_BEGIN("__probe_func__b") CALL_PROGRAM("p0")
				CALLER_END
		"\n\n" PROTOTYPE ".visible .entry a();\n.visible .entry a() { " CALL(
			"__probe_func__a") "exit; }\n.weak .entry b { " CALL("__probe_func__b") "ret; }\n.entry c();\n";
	/* clang-format on */
	struct probe_use a[] = { { .program = 1 }, { .program = 0 } }, b[] = { { .program = 0 } },
			 c[] = { { .program = 2 } };
	struct probe_options options = { .call = true };
	struct probe_function functions[3];
	struct ptx_error error = { 0 };
	struct probe_result result;
	struct ptx_module module;
	struct ptx_edit *edit;
	size_t length;
	char *out;

	programs[1].isa = 75;
	assert_int_equal(ptx_module_parse(&module, text, strlen(text), &error), 0);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	functions[0] = (struct probe_function){ ptx_module_find_function(&module, "b", 1), b, 1 };
	functions[1] = (struct probe_function){ ptx_module_find_function(&module, "c", 1), c, 1 };
	functions[2] = (struct probe_function){ ptx_module_find_function(&module, "a", 1), a, 2 };
	if (probe_apply(edit, &module, &options, programs, 3, functions, 3, &result, &error))
		fail_msg("%s", error.message);
	assert_int_equal(a[0].sites, 1);
	assert_int_equal(a[1].sites, 1);
	assert_int_equal(b[0].sites, 1);
	assert_int_equal(c[0].sites, 0); /* a prototype: nothing to do */
	assert_int_equal(ptx_edit_apply(edit, &out, &length), 0);
	assert_string_equal(out, expected);
	free(out);
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
}

/* Two programs at every point of a kernel and of a device function: what they become, called and
 * inlined. */
static void test_all_points(void **state) {
	static const char text[] =
		HEADER ".visible .func f(.param .u64 x)\n{\n\t.reg .b64 %rd<3>;\n\tld.param.u64 "
		       "%rd1, [x];\n\tst.u64 [%rd1], %rd1;\n\tret;\n}\n"
		       ".visible .entry k(.param .u64 x)\n{\n\t.reg .b64 %rd<3>;\n\t.reg .pred "
		       "%p<2>;\n\tld.param.u64 %rd1, [x];\n"
		       "\tsetp.eq.s64 %p1, %rd1, 0;\n\t@%p1 ret;\n\t.loc 1 7 3\n\t@!%p1 "
		       "ld.global.u64 %rd2, [%rd1+8];\n"
		       "\tatom.global.add.u64 %rd2, [%rd1], 1;\n\tret;\n}\n.file 1 \"/a/x.cu\"\n";
	const struct probe_program programs[] = { program("p0", FUNCTION("p0")),
						  program("p1", FUNCTION("p1")) };
	struct trial trial = {
		.programs = programs,
		.count = 2,
		.uses = {
			{ .program = 0, .point = POINT_ENTRY },
			{ .program = 1, .point = POINT_ENTRY },
			{ .program = 1, .point = POINT_RETURN },
			{ .program = 0, .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			{ .program = 0, .point = POINT_LINE, .file = "x.cu", .line = 7 },
			{ .program = 0, .point = POINT_BLOCK, .block = 1 },
		},
		.use_count = 6,
	};
	static const uint32_t sites[] = { 2, 2, 3, 3, 1, 1 };

	for (int call = 0; call < 2; call++) {
		trial.options.call = call;
		must(text, &trial);
		for (uint32_t i = 0; i < 6; i++)
			assert_int_equal(trial.sites[i], sites[i]);
		assert_int_equal(occurrences(trial.out, "@%p1 bra $L__skip"), 1);
		assert_int_equal(occurrences(trial.out, "@!%p1 bra $L__skip"), 1);
		assert_int_equal(occurrences(trial.out, ".func"), call ? 1 + 2 + 2 + 2 + 3 : 1);
		assert_int_equal(occurrences(trial.out, "call __probe_func__k;"), call);
		assert_int_equal(occurrences(trial.out, "call __retprobe_func__k;"), 2 * call);
		assert_int_equal(occurrences(trial.out, "call __retprobe_func__f;"), call);
		assert_int_equal(occurrences(trial.out, "call __memcapture__0;"), 3 * call);
		assert_int_equal(occurrences(trial.out, "call __lineprobe__0;"), call);
		assert_int_equal(occurrences(trial.out, "call __blockprobe__0;"), call);
		assert_int_equal(occurrences(trial.out, "call (__gpuprobe_r), p0;"), call ? 5 : 0);
		assert_int_equal(occurrences(trial.out, "//"),
				 call ? 2 : 0); /* those of the programs */
		assert_null(strstr(trial.out, "ptxpass"));
		assert_null(strstr(trial.out, "globaltimer"));
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
}

/* A stack that is put into a kernel at each of its places adds up: programs are called then. */
static void test_stacks(void **state) {
	static const struct {
		unsigned bytes, calls; /* of four places */
	} stacks[] = { { 8, 0 }, { 128, 0 }, { 200, 2 }, { 512, 3 }, { 4096, 3 } };
	char text[256];
	struct probe_program one;
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT } },
		.use_count = 1,
		.kernels_only = true,
	};

	for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
		snprintf(text, sizeof(text),
			 ".func (.param .b64 r) p()\n{\n\t.local .align 8 .b8 stack[%u];\n\t.reg "
			 ".b64 a;\n"
			 "\tmov.u64 a, stack;\n\tst.local.u64 [a], a;\n\tst.param.b64 [r], "
			 "a;\n\tret;\n}\n",
			 stacks[i].bytes);
		one = program("p", text);
		must(HEADER ".visible .entry k(.param .u64 x) {\n\t.reg .b64 a;\n\tld.param.u64 a, "
			    "[x];\n\tst.global.u64 [a], a;\n"
			    "\tst.global.u64 [a], a;\n\tst.global.u64 [a], a;\n\tst.global.u64 "
			    "[a], a;\n\tret;\n}\n",
		     &trial);
		assert_int_equal(trial.sites[0], 4);
		assert_int_equal(occurrences(trial.out, "call __memcapture__"), stacks[i].calls);
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
}

/* A function that may be on the stack many times does not get a program's part of it each time. */
static void test_nested_stacks(void **state) {
	static const struct {
		const char *kind, *body;
		unsigned calls;
	} functions[] = {
		{ ".visible .func f()", "call f;", 1 },
		{ ".visible .func f()", "", 0 },
		{ ".visible .entry k()", "call g;", 0 },
	};
	const struct probe_program one = program(
		"p",
		".func (.param .b64 r) p()\n{\n\t.local .align 8 .b8 stack[8];\n\t.reg .b64 a;\n"
		"\tmov.u64 a, stack;\n\tst.local.u64 [a], a;\n\tst.param.b64 [r], a;\n\tret;\n}\n");
	struct trial trial = {
		.programs = &one, .count = 1, .uses = { { .point = POINT_ENTRY } }, .use_count = 1
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text), HEADER ".func g() { ret; }\n%s { %s ret; }\n",
			 functions[i].kind, functions[i].body);
		must(text, &trial);
		assert_int_equal(trial.sites[0], 2);
		assert_int_equal(occurrences(trial.out, "\tcall __probe_func__"),
				 functions[i].calls);
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
}

/* Lanes that come to a program with a loop leave it together, also where it is called. */
static void test_called_loop(void **state) {
	const struct probe_program one =
		program("p",
			".func (.param .b64 r) p()\n{\n\t.reg .pred a;\n\tsetp.eq.u32 a, 0, 1;\n"
			"again:\n\t@a bra again;\n\tst.param.b64 [r], 0;\n\tret;\n}\n");
	struct trial trial = entry_call;
	const char *call;

	trial.programs = &one;
	must(HEADER ".visible .entry k() { ret; }\n", &trial);
	call = strstr(trial.out, "\tcall (__gpuprobe_r), p");
	assert_non_null(call);
	assert_true(strstr(trial.out, PTX_LANES_BEGIN) < call);
	assert_non_null(strstr(trial.out, PTX_LANES_BEGIN));
	assert_non_null(strstr(call, PTX_LANES_END));
	assemble(trial.out, "sm_80");
	finish(&trial);
}

/* Loads of values that are done once: those that the L1 cache serves, where the target has them. */
static void test_loads(void **state) {
	static const char target[] = ".version 6.3\n.target sm_%s\n.address_size 64\n"
				     ".visible .entry k() { ret; }\n";
	const struct probe_program one =
		program("p", ".func (.param .b64 r) p()\n{\n\t.reg .b64 a;\n\tmov.u64 a, 0;\n"
			     "\tld.volatile.global.b64 a, [a];\n"
			     "\tld.volatile.global.u64 a, [a];\n"
			     "\tld.volatile.global.b64 a, [a+8];\n"
			     "\tst.param.b64 [r], a;\n\tret;\n}\n");
	struct trial trial = {
		.programs = &one, .count = 1, .uses = { { .point = POINT_ENTRY } }, .use_count = 1
	};
	char text[256];

	for (int call = 0; call < 2; call++) {
		trial.options.call = call;
		snprintf(text, sizeof(text), target, "70");
		must(text, &trial);
		assert_int_equal(occurrences(trial.out, "ld.relaxed.cta.global.b64"), 2);
		assert_int_equal(occurrences(trial.out, "ld.volatile.global.u64"), 1);
		assert_int_equal(occurrences(trial.out, "[a+8];"), 1);
		assemble(trial.out, "sm_80");
		finish(&trial);
		snprintf(text, sizeof(text), target, "62");
		must(text, &trial);
		assert_int_equal(occurrences(trial.out, "ld.relaxed"), 0);
		assert_int_equal(occurrences(trial.out, "ld.volatile.global.b64"), 2);
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
}

static void test_nothing_to_do(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry_call;

	trial.programs = &one;
	must(HEADER ".entry k();", &trial);
	assert_string_equal(trial.out, HEADER ".entry k();");
	assert_int_equal(trial.sites[0], 0);
	finish(&trial);
	/* there is no such point: the program does not come in */
	trial.uses[0].point = POINT_BLOCK;
	trial.uses[0].block = 1;
	must(HEADER ".entry k() { ret; }", &trial);
	assert_string_equal(trial.out, HEADER ".entry k() { ret; }");
	finish(&trial);
}

static void test_long_name(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	char name[1501], text[8192], call[2048];
	struct trial trial = entry_call;

	trial.programs = &one;
	memset(name, 'x', sizeof(name) - 1);
	name[1500] = '\0';
	snprintf(text, sizeof(text),
		 HEADER ".visible .entry %s(.param .u64 %s_param_0)\n{\n\tret;\n}\n", name, name);
	must(text, &trial);
	snprintf(call, sizeof(call), "\t{\n\tcall __probe_func__%s;\n\t}\n\tret;", name);
	assert_non_null(strstr(trial.out, call));
	assemble(trial.out, "sm_80");
	finish(&trial);
}

static void expect_error(const char *text, const struct probe_program *programs, uint32_t count,
			 int expected, const char *message) {
	struct trial trial = entry_call;
	int r;

	trial.programs = programs;
	trial.count = count;
	for (trial.use_count = 0; trial.use_count < count; trial.use_count++)
		trial.uses[trial.use_count] = (struct probe_use){ .program = trial.use_count };
	trial.kernels_only = true;
	r = attempt(text, &trial);
	if (r != expected || !strstr(trial.error.message, message))
		fail_msg("%d: %s", r, trial.error.message);
	assert_null(trial.result.instructions);
	finish(&trial);
}

static void test_taken(void **state) {
	const struct probe_program one = program("p", SHARED FUNCTION("p"));
	const struct probe_program clash[] = {
		program("p", ".func helper { ret; }\n" FUNCTION("p")),
		program("q", ".func helper { ret; }\n" FUNCTION("q")),
	};
	struct trial trial = entry_call;

	expect_error(HEADER ".func __probe_func__k() { ret; }\n.entry k { ret; }", &one, 1,
		     PROBE_E_TAKEN, "the module already has a symbol __probe_func__k");
	expect_error(HEADER ".global .b32 __probe_func__k;\n.entry k { ret; }", &one, 1,
		     PROBE_E_TAKEN, "__probe_func__k");
	expect_error(HEADER ".global .b32 p;\n.entry k { ret; }", &one, 1, PROBE_E_TAKEN,
		     "symbol p");
	expect_error(HEADER SHARED ".entry k { ret; }", &one, 1, PROBE_E_TAKEN, "__gpuprobe_o1_m0");
	expect_error(HEADER ".entry k { ret; }", clash, 2, PROBE_E_TAKEN, "helper");
	/* probed twice */
	trial.programs = &one;
	trial.kernels_only = true;
	must(HEADER ".entry k { ret; }", &trial);
	expect_error(trial.out, &one, 1, PROBE_E_TAKEN, "already has a symbol");
	finish(&trial);
}

static void test_bad_programs(void **state) {
	static const struct {
		const char *text;
		const char *message;
	} cases[] = {
		{ "\n\n.func x(", "program p, line 3: expected a type" },
		{ HEADER FUNCTION("p"), "program p, line 1: expected a function" },
		{ FUNCTION("q"), "does not define a function of that name" },
		{ ".func (.param .b64 r) p ();", "does not define a function of that name" },
		{ ".entry p() { ret; }", "does not define a function of that name" },
		{ ".func p () { ret; }", "not one result and one parameter" },
		{ ".func (.param .b64 r) p (.param .b64 c) { ret; }",
		  "not one result and one parameter" },
		{ ".func (.param .b32 r) p () { ret; }", "must be .param .b64" },
		{ ".func (.reg .b64 r) p () { ret; }", "must be .param .b64" },
		{ ".func (.param .b8 r[8]) p () { ret; }", "must be .param .b64" },
	};
	static const uint16_t unaligned[] = { 12 }, behind[] = { 8 * POINT_FIELDS };
	struct probe_program one;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		one = program("p", cases[i].text);
		expect_error(HEADER ".entry k { ret; }", &one, 1, PROBE_E_PROGRAM,
			     cases[i].message);
	}
	one = program("p", ".func (.param .b64 r) p (.param .b64 c) { ret; }");
	one.context_count = 1;
	one.context = unaligned;
	expect_error(HEADER ".entry k { ret; }", &one, 1, PROBE_E_PROGRAM,
		     "a field that its context does not have");
	one.context = behind;
	expect_error(HEADER ".entry k { ret; }", &one, 1, PROBE_E_PROGRAM,
		     "a field that its context does not have");
}

static void test_target(void **state) {
	struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = entry_call;

	one.label = "cuda__p";
	expect_error(".version 1.4 .target sm_13 .address_size 64 .entry k { ret; }", &one, 1,
		     PROBE_E_TARGET,
		     "program cuda__p needs PTX for sm_20 or newer with 64-bit addresses, the "
		     "module's is for sm_13");
	one.target = 70;
	expect_error(".version 6.0 .target sm_62 .address_size 64 .entry k { ret; }", &one, 1,
		     PROBE_E_TARGET,
		     "program cuda__p needs PTX for sm_70 or newer with 64-bit addresses, the "
		     "module's is for sm_62");
	one.target = 52;
	expect_error(".version 6.0 .target sm_60 .address_size 32 .entry k { ret; }", &one, 1,
		     PROBE_E_TARGET, "32-bit");
	one.target = 90; /* PTX for sm_70 would do: its target could be raised */
	expect_error(".version 7.0 .target sm_62 .address_size 64 .entry k { ret; }", &one, 1,
		     PROBE_E_TARGET, "program cuda__p needs PTX for sm_70 or newer");
	one.target = 100;
	expect_error(".version 8.0 .target sm_90a .address_size 64 .entry k { ret; }", &one, 1,
		     PROBE_E_TARGET, "program cuda__p needs PTX for sm_100 or newer");
	one.target = 90;
	trial.programs = &one;
	trial.options.capability = 80;
	assert_int_equal(attempt(".version 7.0 .target sm_80 .address_size 64 .entry k { ret; }",
				 &trial),
			 PROBE_E_TARGET);
	assert_non_null(strstr(trial.error.message,
			       "program cuda__p needs a GPU of sm_90 or newer, "
			       "this one is sm_80"));
	finish(&trial);
	trial.options.capability = 90;
	must(".version 7.0 .target sm_80 .address_size 64 .entry k { ret; }", &trial);
	assert_memory_equal(trial.out, ".version 7.0 .target sm_90 .address_size 64\n", 44);
	finish(&trial);
	one.target = 52;
	/* an old target is raised, below sm_70 */
	trial.programs = &one;
	must(".version 3.2 .target sm_20, texmode_independent .address_size 64 .entry k { ret; }",
	     &trial);
	assert_memory_equal(trial.out,
			    ".version 6.3 .target sm_52, texmode_independent .address_size 64\n",
			    64);
	finish(&trial);
	one.target = 60;
	must(".version 6.5 .target sm_53 .address_size 64 .entry k { ret; }", &trial);
	assert_memory_equal(trial.out, ".version 6.5 .target sm_60 .address_size 64\n", 44);
	finish(&trial);
	one.target = 52;
	/* an old version is raised, a newer target stays */
	trial.programs = &one;
	must(".version 6.0 .target sm_90a .entry k { ret; }", &trial);
	assert_memory_equal(trial.out, ".version 6.3 .target sm_90a\n", 28);
	finish(&trial);
	one.isa = 50;
	must(".version 6.0 .target sm_52 .entry k { ret; }", &trial);
	assert_memory_equal(trial.out, ".version 6.0 .target sm_52\n", 27);
	finish(&trial);
}

static void test_misuse(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	static const char text[] = HEADER ".func f { ret; } .entry k { ret; }";
	struct probe_use bad = { .program = 1 }, good = { 0 }, no_point = { .point = 99 },
			 no_file = { .point = POINT_LINE };
	struct probe_use *const uses[] = { &bad, &no_point, &no_file };
	struct probe_options options = { 0 };
	struct probe_function functions[2];
	struct ptx_error error = { 0 };
	struct probe_result result;
	struct ptx_module module;
	struct ptx_edit *edit;

	expect_error(HEADER ".entry k { add a; ) }", &one, 1, PROBE_E_FUNCTION, "a statement");
	expect_error(HEADER ".entry %k { ret; }", &one, 1, PROBE_E_FUNCTION, "begins with %");
	assert_int_equal(ptx_module_parse(&module, text, strlen(text), &error), 0);
	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	for (size_t i = 0; i < 3; i++) {
		functions[0] = (struct probe_function){ ptx_module_find_function(&module, "k", 1),
							uses[i], 1 };
		assert_int_equal(probe_apply(edit, &module, &options, &one, 1, functions, 1,
					     &result, &error),
				 -EINVAL);
	}
	functions[0].uses = &good;
	functions[1] = functions[0];
	assert_int_equal(probe_apply(edit, &module, &options, &one, 1, functions, 2, &result,
				     &error),
			 -EINVAL);
	functions[0].function = &(struct ptx_function){ .entry = true };
	assert_int_equal(probe_apply(edit, &module, &options, &one, 1, functions, 1, &result,
				     &error),
			 -EINVAL);
	ptx_edit_free(edit);
	ptx_module_deinit(&module);
}

#define SLOTS(n)                                       \
	".visible .const .align 8 .u64 __gpuprobe_o" n \
	"_m0;\n.visible .const .align 8 .u64 __gpuprobe_o" n "_m1;\n"
#define READS(name, n)                                                                 \
	SLOTS(n)                                                                       \
	".const .align 8 .b8 " name "_table[8] = {1, 2};\n.func (.param .b64 r) " name \
	"(.param .b64 c)\n{\n"                                                         \
	".reg .b64 %rd<3>;\n\tld .const .b64 %rd1, [__gpuprobe_o" n                    \
	"_m0];\n\tld.const.u64 %rd2, [" name "_table];\n"                              \
	"\tadd.s64 %rd2, %rd2, %rd1;\n\tld.const.b64 %rd1, [__gpuprobe_o" n            \
	"_m1+0];\n\tred.global.add.u64 [%rd1], %rd2;\n\tst.param.b64 [r], 0;\n\tret;\n}\n"

/*
 * Names that a module may well have. ptxas takes what a scope declares for a kernel's parameter of
 * that name, and dies of a signal where a function's parameter has the name of a variable.
 */
static void test_simple_names(void **state) {
	static const uint16_t first[] = { 64 };
	struct probe_program one =
		program("p", ".func (.param .b64 func_retval0) p(.param .b64 "
			     "p_param_0)\n{\n\tst.param.b64 [func_retval0], 0;\n\tret;\n}\n");
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_ENTRY }, { .point = POINT_RETURN } },
		.use_count = 2,
		.options = { .call = true },
	};

	one.context = first;
	one.context_count = 1;
	must(HEADER ".global .u64 c0, c8, result, r;\n.func a() { ret; }\n.visible .entry k(.param "
		    ".u64 a8, .param .u64 a0)\n"
		    "{ .reg .b64 b; ld.param.u64 b, [a8]; st.global.u64 [b], 1; call a; ret; }\n",
	     &trial);
	assemble(trial.out, "sm_80");
	finish(&trial);
}

/* The bank is full to the byte, and one byte more. */
static void test_constant_bank(void **state) {
	static const uint16_t device[] = { 8 };
	struct probe_program programs[] = { program("p", READS("p", "1")),
					    program("q", SLOTS("1") READS("q", "2")) };
	/* ours: p 2 slots and a table, q 2 new slots and a table, the process slot */
	enum {
		OURS = 6 * 8 + 64
	};
	static const unsigned int pads[] = { 65536 - OURS - 8, 65536 - OURS - 7 };
	struct trial trial = {
		.programs = programs,
		.count = 2,
		.uses = { { .program = 0 }, { .program = 1, .point = POINT_RETURN } },
		.use_count = 2,
	};
	char text[512];

	for (size_t i = 0; i < 2; i++)
		programs[i].context = device, programs[i].context_count = 1;
	for (int full = 0; full < 4; full++) {
		trial.options.call = full & 2;
		/* the pad is aligned up: the second one takes a byte of the next 8 */
		snprintf(text, sizeof(text),
			 HEADER ".const .b8 small = 1;\n.const .align 8 .b8 pad[%u];\n.visible "
				".entry k() { ret; }\n",
			 pads[full & 1]);
		must(text, &trial);
		assert_int_equal(occurrences(trial.out,
					     ".visible .const .align 8 .u64 __gpuprobe_o"),
				 full & 1 ? 0 : 4);
		assert_int_equal(occurrences(trial.out,
					     ".visible .global .align 8 .u64 __gpuprobe_o"),
				 full & 1 ? 4 : 0);
		assert_int_equal(
			occurrences(trial.out,
				    full & 1 ? ".global .align 8 .b8 __gpuprobe_process[64];"
					     : ".const .align 8 .b8 __gpuprobe_process[64];"),
			1);
		assert_int_equal(occurrences(trial.out, full & 1 ? "ld .global .b64 %rd1"
								 : "ld .const .b64 %rd1"),
				 2);
		assert_int_equal(occurrences(trial.out,
					     full & 1 ? "ld.global.b64 %rd1" : "ld.const.b64 %rd1"),
				 2);
		assert_int_equal(occurrences(trial.out, "ld.const.u64 %rd2"), 2); /* not a slot */
		assert_int_equal(
			occurrences(trial.out,
				    full & 1 ? "ld.global.u64 %gpuprobe_c1, [__gpuprobe_process+8]"
					     : "ld.const.u64 %gpuprobe_c1, [__gpuprobe_process+8]"),
			2);
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
	/* however the bytes are declared */
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text),
			 HEADER ".const .b8 small = 1;\n%s\n.visible .entry k() { ret; }\n",
			 i ? ".const .b64 pad<8188>;"
			   : ".const .b32 pad[][4094] = {{1}, {2}, {3}, {4}};");
		must(text, &trial);
		assert_int_equal(
			occurrences(trial.out, ".visible .const .align 8 .u64 __gpuprobe_o"), 0);
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
	/* a program has brought the process slot already */
	programs[0] = program(
		"p", ".visible .const .align 8 .b8 __gpuprobe_process[64];\n" FUNCTION("p"));
	must(HEADER ".visible .entry k() { ret; }\n", &trial);
	assert_int_equal(occurrences(trial.out, "__gpuprobe_process[64];"), 1);
	finish(&trial);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),        cmocka_unit_test(test_programs),
		cmocka_unit_test(test_all_points),    cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_nested_stacks), cmocka_unit_test(test_called_loop),
		cmocka_unit_test(test_loads),         cmocka_unit_test(test_nothing_to_do),
		cmocka_unit_test(test_long_name),     cmocka_unit_test(test_taken),
		cmocka_unit_test(test_bad_programs),  cmocka_unit_test(test_target),
		cmocka_unit_test(test_misuse),        cmocka_unit_test(test_constant_bank),
		cmocka_unit_test(test_simple_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
