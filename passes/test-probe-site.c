/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of probe-site.c: where the points of each kind are. In the texts here, `#` marks the
 * places.
 */

#include "test-probe.h"

#include "probe-site.h"

/* A kernel k with that body, without the marks, must become one with calls where the marks are, and
 * nowhere else. */
static void check(const char *body, struct probe_use use, const char *call) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = { .programs = &one,
			       .count = 1,
			       .uses = { use },
			       .use_count = 1,
			       .options = { .call = true } };
	char *text = NULL, *expected = NULL;
	size_t text_length, expected_length;
	FILE *bare = open_memstream(&text, &text_length),
	     *probed = open_memstream(&expected, &expected_length);
	const char *begin;

	fputs(HEADER ".visible .func f();\n.visible .entry k(.param .u64 x)\n", bare);
	for (const char *c = body; *c; c++) {
		if (*c == '#')
			fprintf(probed, "{\n\tcall %s;\n\t}\n\t", call);
		else
			fputc(*c, bare), fputc(*c, probed);
	}
	fputs("\n.file 1 \"/home/a/x.cu\", 1, 2\n.file\t3 \"y.cu\"\n.file 2 \"x.cu\"\n", bare);
	fclose(bare);
	fclose(probed);
	must(text, &trial);
	begin = strstr(trial.out, ".visible .entry k(.param .u64 x)\n");
	assert_non_null(begin);
	begin += strlen(".visible .entry k(.param .u64 x)\n");
	if (strncmp(begin, expected, expected_length))
		fail_msg("%s\nis not\n%s", begin, expected);
	assert_int_equal(trial.sites[0], occurrences(body, "#"));
	finish(&trial);
	free(text);
	free(expected);
}

static void check_return(const char *body) {
	check(body, (struct probe_use){ .point = POINT_RETURN }, "__retprobe_func__k");
}

static void test_returns(void **state) {
	check_return("{ #ret; }");
	check_return("{ #ret.uni; }");
	check_return("{ #exit; }");
	check_return("{ trap; }");
	check_return("{ #}");
	check_return("{ .reg .b32 %r; mov.u32 %r, 0; #}");
	check_return("{ { #ret; } }");
	check_return("{ { { #exit; } } }");
	/* code behind a return that nothing leads to is none */
	check_return("{ #ret; $L__func_end0: }");
	check_return("{ $loop: bra.uni $loop; }");
	check_return("{ $a: bra $b; $b: #ret; $c: }");
	/* something leads there */
	check_return("{ .reg .pred p; @p bra $end; #ret; $end: #}");
	check_return("{ .reg .b32 i; brx.idx i, t; t: .branchtargets a, b; a: #exit; b: #}");
	check_return("{ .reg .b32 i; t: .branchtargets a<2>, c; brx.idx i, t; a1: #exit; c: #exit; "
		     "a0: #}");
	check_return("{ .reg .b32 i; t: .branchtargets a<2>; brx.idx i, t; a0: a1: #exit; a2: }");
	check_return("{ .reg .b32 i; t: .branchtargets a<2>; brx.idx i, t; a0: a1: #exit; a01: }");
	check_return("{ call f, (); #}");
	check_return(
		"{ .reg .b32 ret; ret: mov.u32 ret, 0; bra ret; }"); /* a label, not a return */
	check_return("{ .loc 1 2 3\n#ret;\n.loc 1 3 3\n}");
	check_return("{ #.pragma \"nounroll\";\n.loc 1 2 3\nret;\n}");
}

/* Under the predicate of the return, which stays. */
static void test_predicated_returns(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = {
		.programs = &one, .count = 1, .uses = { { .point = POINT_RETURN } }, .use_count = 1
	};

	must(HEADER ".visible .entry k()\n{\n.reg .pred %p<3>;\n@%p1 ret;\n@!%p2 exit;\n{ @ ! "
		    "%p2\nret; }\n}\n",
	     &trial);
	assert_int_equal(trial.sites[0], 4);
	assert_non_null(strstr(trial.out, "\t@!%p1 bra $L__skip__gpuprobe0;\n"));
	assert_non_null(strstr(trial.out, "$L__skip__gpuprobe0:\n\t}\n\t@%p1 ret;\n"));
	assert_int_equal(occurrences(trial.out, "\t@%p2 bra $L__skip__gpuprobe"), 2);
	assert_non_null(strstr(trial.out, "\t}\n\t@!%p2 exit;\n"));
	assert_non_null(strstr(trial.out, "\t}\n\t@ ! %p2\nret; }\n"));
	assemble(trial.out, "sm_80");
	finish(&trial);
}

/* Arguments, call and results stay together; so do a result and the return. */
static void test_frames(void **state) {
	static const char text[] = "{ .reg .b32 r;\n.loc 1 1 1\nmov.u32 r, 1;\n{ .param .b32 "
				   "a;\n.loc 1 2 1\n%sst.param.b32 [a], r;\n"
				   ".param .b32 b;\n.loc 1 3 1\nst.param.b32 [b], r;\n.param .b32 "
				   "q;\n.loc 1 4 1\ncall (q), f, (a, b);\n"
				   ".loc 1 5 1\nld.param.b32 r, [q];\n}\n.loc 1 6 1\n%scall "
				   "f;\n.loc 1 7 1\n%scall f; ret; }";
	char body[1024];

	for (uint32_t line = 2; line < 8; line++) {
		snprintf(body, sizeof(body), text, line < 6 ? "#" : "", line == 6 ? "#" : "",
			 line == 7 ? "#" : "");
		check(body, (struct probe_use){ .point = POINT_LINE, .file = "x.cu", .line = line },
		      "__lineprobe__0");
	}
	check("{ .reg .b64 t; .reg .b32 r; mov.u32 r, 1;\n{ .param .b32 a;\n#st.param.b32 [a], "
	      "r;\nproto: .callprototype _ (.param .b32 _);\n"
	      ".loc 1 9 1\ncall t, (a), proto; } ret; }",
	      (struct probe_use){ .point = POINT_LINE, .file = "x.cu", .line = 9 },
	      "__lineprobe__0");
	check_return("{ .reg .b32 r; mov.u32 r, 1;\n#st.param.b32 [x], r;\n.loc 1 1 "
		     "1\nst.param.b32 [x+4], r;\nret; }");
	check_return("{ .reg .b32 r; st.param.b32 [x], r; mov.u32 r, 1;\n#ret; }");
	check_return("{ .reg .b32 r; st.param.b32 [x], r; $a: #ret; }");
}

/* Between a call and the read of its result nothing is called. */
static void test_results(void **state) {
	static const char text[] = HEADER
		".visible .func (.param .align 8 .b8 r[8]) f() { st.param.b32 [r], 1; ret; }\n"
		".visible .entry k(.param .u64 x)\n{\n.reg .b32 %r<3>; .reg .b64 "
		"%rd;\nld.param.u64 %rd, [x];\n{ .param .align 8 .b8 q[8]; call (q), f;\n"
		"ld.param.b32 %r1, [q];\nst.global.u32 [%rd], %r1;\n.loc 1 5 1\nld.param.b32 %r2, "
		"[q+4];\n}\nst.global.u32 [%rd], %r2;\nret;\n}\n"
		".file 1 \"x.cu\"\n";
	const struct probe_program programs[] = {
		program("p", FUNCTION("p")),
		program("p", ".func p_helper() { ret; }\n.func (.param .b64 r) p()\n{\n\tcall "
			     "p_helper;\n\tst.param.b64 [r], 0;\n\tret;\n}\n"),
	};
	struct trial trial = {
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			  { .point = POINT_LINE, .file = "x.cu", .line = 5 } },
		.use_count = 2,
		.kernels_only = true,
		.options = { .call = true },
	};

	for (size_t i = 0; i < 2; i++) {
		trial.programs = &programs[i];
		must(text, &trial);
		assert_int_equal(trial.sites[0], i ? 1 : 2);
		assert_int_equal(trial.sites[1], i ? 0 : 1);
		assert_int_equal(trial.result.n_instructions, i ? 1 : 2);
		assert_int_equal(occurrences(trial.out, "call __memcapture__0;"), 1);
		assert_null(strstr(trial.out, "call __lineprobe__0;"));
		assert_true(strstr(trial.out, "call __memcapture__0;") >
			    strstr(trial.out, "[q+4]"));
		assemble(trial.out, "sm_80");
		finish(&trial);
	}
}

/* Results that are read as elements of an array are results; the memory instructions are the two
 * others. */
static void test_indexed_results(void **state) {
	static const char text[] =
		HEADER ".visible .func (.param .align 8 .b8 r[8]) f() { st.param.b32 [r], 1; ret; "
		       "}\n.global .b32 array[4];\n"
		       ".visible .entry k(.param .b64 x[2])\n{\n.reg .b32 %r<3>; .reg .b64 "
		       "%rd;\nld.param.u64 %rd, x[1];\n{ .param .align 8 .b8 q[8]; call (q), f;\n"
		       "ld.param.b32 %r1, q[0];\nld.param.b32 %r2, q[4];\n}\nst.global.u32 "
		       "array[1], %r2;\nret;\n}\n.file 1 \"x.cu\"\n";
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = 0x3f } },
		.use_count = 1,
		.kernels_only = true,
		.options = { .call = true },
	};

	must(text, &trial);
	assert_int_equal(trial.sites[0], 2);
	assert_int_equal(occurrences(trial.out, "call __memcapture__0;"), 2);
	assert_non_null(strstr(trial.out, "ld.param.b32 %r1, q[0];\nld.param.b32 %r2, "
					  "q[4];\n}\n{\n\tcall __memcapture__0;\n"));
	assemble(trial.out, "sm_80");
	finish(&trial);
}

static void check_line(const char *body, const char *file, uint32_t line) {
	check(body, (struct probe_use){ .point = POINT_LINE, .file = file, .line = line },
	      "__lineprobe__0");
}

static void test_lines(void **state) {
	static const char body[] = "{ .reg .b32 r;\n.loc 1 5 3\n%smov.u32 r, 0;\nmov.u32 r, "
				   "1;\n.loc 1 6 1\nmov.u32 r, 2;\n.loc 1 5 9\n"
				   ".loc 1 5 4\n%smov.u32 r, 3;\n.loc 1 5 1\nmov.u32 r, "
				   "4;\n.loc\t3 5 1\nmov.u32 r, 5;\n.loc 2 5 1\n"
				   "%s@!r bra $x; $x: mov.u32 r, 6; .loc 9 5 1\nret; }";
	char text[1024];

	snprintf(text, sizeof(text), body, "#", "#", "#");
	check_line(text, "x.cu", 5);
	snprintf(text, sizeof(text), body, "#", "#", "");
	check_line(text, "/home/a/x.cu", 5);
	check_line(text, "a/x.cu", 5);
	snprintf(text, sizeof(text), body, "", "", "");
	check_line(text, "/x.cu", 5); /* ends at a '/' or is whole */
	check_line(text, "u", 5);
	check_line(text, ".cu", 5);
	check_line(text, "b/home/a/x.cu", 5);
	check_line(text, "x.cu", 7);
	check_line("{ .reg .b32 r; .loc 1 1 1, function_name $L__info+4, inlined_at 3 9 "
		   "9\n#mov.u32 r, 1; ret; }",
		   "x.cu", 1);
	check_line("{ ret; }", "x.cu", 0);
	check_line("{ .loc 1 1 1\n}", "x.cu", 1);
}

static void check_block(const char *body, uint32_t block) {
	check(body, (struct probe_use){ .point = POINT_BLOCK, .block = block }, "__blockprobe__0");
}

static void test_blocks(void **state) {
	check_block("{ .reg .pred p; .loc 1 1 1\n#@p bra $end; call f, (); $debug: bra $end; $end: "
		    "ret; }",
		    0);
	check_block("{ .reg .pred p; .loc 1 1 1\n@p bra $end; #call f, (); $debug: bra $end; $end: "
		    "ret; }",
		    1);
	check_block("{ .reg .pred p; .loc 1 1 1\n@p bra $end; call f, (); $debug: bra $end; $end: "
		    "#ret; }",
		    2);
	check_block("{ .reg .pred p; .loc 1 1 1\n@p bra $end; call f, (); $debug: bra $end; $end: "
		    "ret; }",
		    3);
	check_block("{ .reg .pred p; @p ret; #@p exit; trap; call f, (); }", 1);
	check_block("{ .reg .pred p; @p ret; @p exit; trap; #call f, (); }", 3);
	check_block("{ .reg .b32 i; brx.idx i, t; t: .branchtargets a, b; a: #mov.u32 i, 0; b: { "
		    "mov.u32 i, 1; } bra b; }",
		    1);
	check_block("{ .reg .b32 i; brx.idx i, t; t: .branchtargets a, b; a: mov.u32 i, 0; b: { "
		    "#mov.u32 i, 1; } bra b; }",
		    2);
	/* a table of labels is no place that something branches to */
	check_block("{ .reg .b32 i; mov.u32 i, 0; t: .branchtargets a, b; brx.idx i, t; a: "
		    "#mov.u32 i, 0; b: ret; }",
		    1);
	check_block("{ .reg .b32 i; a:\n#.pragma \"nounroll\";\nmov.u32 i, 0; bra a; }", 0);
	check_block("{ }", 0);
}

static const char *const stub_names[] = { "trace", "ns::trace" };

/* Calls of stubs go; what surrounds them stays. */
static void check_stub(const char *text, const char *expected, uint32_t sites) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_ENTRY } },
		.use_count = 1,
		.options = { .call = true, .stubs = stub_names, .n_stubs = 2 },
		.kernels_only = true,
	};
	char body[1024];
	const char *begin;

	snprintf(body, sizeof(body),
		 HEADER ".extern .func _Z5tracev();\n.extern .func (.param .b64 r) "
			"_ZN2ns5traceEif(.param .b32 a);\n"
			".visible .entry k()\n{%s}\n",
		 text);
	must(body, &trial);
	assert_int_equal(trial.sites[0], sites);
	begin = strstr(trial.out, ".visible .entry k()\n{");
	assert_non_null(begin);
	snprintf(body, sizeof(body), ".visible .entry k()\n{%s}\n", expected);
	assert_string_equal(begin, body);
	if (getenv("PTXAS") && *getenv("PTXAS"))
		assemble(trial.out, "sm_80");
	finish(&trial);
}

#define CALL "{\n\tcall __probe_func__k;\n\t}\n\t"

static void test_stubs(void **state) {
	check_stub("ret;", CALL "ret;", 1); /* the fallback */
	check_stub("\n{ // callseq 0, 0\n\tcall.uni \n\t_Z5tracev, \n\t(\n\t);\n\t} // callseq "
		   "0\n\tret;\n",
		   "\n{ // callseq 0, 0\n\t" CALL "\n\t} // callseq 0\n\tret;\n", 1);
	check_stub("call _Z5tracev; ret;", CALL " ret;", 1);
	check_stub(".reg .pred p; setp.eq.u32 p, 0, 0; @p call _Z5tracev, (); call.uni _Z5tracev; "
		   "ret;",
		   ".reg .pred p; setp.eq.u32 p, 0, 0; {\n\t@!p bra $L__skip__gpuprobe0;\n\tcall "
		   "__probe_func__k;\n$L__skip__gpuprobe0:\n\t}\n\t " CALL " ret;",
		   2);
	/* what it would have returned is 0 */
	check_stub(".reg .b64 %rd<3>; .reg .f64 %fd; { .param .b32 param0; st.param.b32 [param0], "
		   "1; .param .b64 retval0;\n"
		   "call (retval0), _ZN2ns5traceEif, (param0);\nld.param.b64 %rd1, "
		   "[retval0];\nld.param.f64 %fd, [retval0+0]; } ret;",
		   ".reg .b64 %rd<3>; .reg .f64 %fd; { .param .b32 param0; st.param.b32 [param0], "
		   "1; .param .b64 retval0;\n" CALL
		   "\nmov.b64 %rd1, 0; \nmov.f64 %fd, 0d0000000000000000;  } ret;",
		   1);
	/* where it would have been read */
	check_stub(".reg .pred p; .reg .b64 %rd; setp.eq.u32 p, 0, 0; { .param .b32 param0; "
		   "st.param.b32 [param0], 1; .param .b64 retval0;\n"
		   "call (retval0), _ZN2ns5traceEif, (param0);\n@!p ld.param.b64 %rd, [retval0]; } "
		   "ret;",
		   ".reg .pred p; .reg .b64 %rd; setp.eq.u32 p, 0, 0; { .param .b32 param0; "
		   "st.param.b32 [param0], 1; .param .b64 retval0;\n" CALL
		   "\n@!p mov.b64 %rd, 0;  } ret;",
		   1);
}

static void test_stub_errors(void **state) {
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_ENTRY } },
		.use_count = 1,
		.options = { .stubs = stub_names, .n_stubs = 2 },
	};

	assert_int_equal(attempt(HEADER ".entry k() { .param .b64 r; call (r), trace; ld.param.b64 "
					"[x], [r]; ret; }",
				 &trial),
			 PROBE_E_FUNCTION);
	assert_non_null(strstr(trial.error.message, "what a stub returns"));
	must(HEADER ".entry k() { .reg .b64 r; .reg .pred p; @p call (r), trace; ret; }", &trial);
	assert_non_null(strstr(trial.out, "@p mov.b64 r, 0; "));
	finish(&trial);
	must(HEADER ".entry k() { .reg .b64 r; call (r), trace; ret; }", &trial);
	assert_non_null(strstr(trial.out, "mov.b64 r, 0; "));
	finish(&trial);
	/* not through a pointer of that name */
	must(HEADER ".entry k() { .reg .b64 %trace; call (r), %trace, (), x; ret; }", &trial);
	assert_non_null(strstr(trial.out, "call (r), %trace, (), x;"));
	finish(&trial);
}

static void test_names(void **state) {
	static const struct {
		const char *mangled, *name;
		bool same;
	} cases[] = {
		{ "f", "f", true },
		{ "f", "g", false },
		{ "_Z28__bpftime_cuda__kernel_tracev", "__bpftime_cuda__kernel_trace", true },
		{ "_Z28__bpftime_cuda__kernel_tracev", "_Z28__bpftime_cuda__kernel_tracev", true },
		{ "_ZL1fi", "f", true },
		{ "_ZN2ns3sub1fEPKc", "ns::sub::f", true },
		{ "_ZN2ns3sub1fEPKc", "sub::f", false },
		{ "_ZN2ns3sub1fEPKc", "ns::sub", false },
		{ "_ZN2ns3sub1fEPKc", "ns::sub::f::g", false },
		{ "_Z1fIiEvT_", "f", false }, /* a template: by its mangled name only */
		{ "_Z1f", "f", false },
		{ "_Z99f", "f", false },
		{ "_ZN1f", "f", false },
		{ "_Z", "", false },
		{ "_ZN", "", false },
		{ "_Z0v", "", false },
		{ "_Z1fv", "ff", false },
		{ "_Z2ffv", "f", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (probe_name_is(cases[i].mangled, strlen(cases[i].mangled), cases[i].name) !=
		    cases[i].same)
			fail_msg("%s %s", cases[i].mangled, cases[i].name);
}

static void check_memory(const char *body) {
	check(body, (struct probe_use){ .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
	      "__memcapture__0");
}

static void test_memory(void **state) {
	check_memory("{ .reg .b32 r; .reg .b64 a; #ld.global.u32 r, [a]; mov.u32 r, 1; "
		     "#st.volatile.u32 [a+4], r; ret; }");
	check_memory("{ #.pragma \"used_bytes_mask 0xff\";\n.loc 1 1 1\nld.global.u32 r, [a]; l: "
		     "#ld .shared .u32 r, [a]; ret; }");
	check_memory("{ ld.param.u64 a, [x]; { .param .b32 p0; st.param.b32 [p0], 1; call f, (p0); "
		     ".param .b32 r0; ld.param.b32 r, [r0]; } ret; }");
	check_memory("{ #atom.add.u32 r, [a], 1; #red.add.u32 [a], 1; #ldu.global.u32 r, [a]; "
		     "#ld.global.nc.u32 r, [a]; fence.sc.gpu; ret; }");
	check_memory("{ #cp.async.ca.shared.global [s], [a], 16; cp.async.commit_group; "
		     "cp.async.wait_group 0; cp.async.wait_all; "
		     "cp.async.mbarrier.arrive.shared.b64 [s]; ret; }");
	check_memory(
		"{ #cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [a], r, "
		"[m]; cp.async.bulk.commit_group; "
		"cp.async.bulk.wait_group.read 0; cp.async.bulk.prefetch.L2.global [a], r; ret; }");
	check_memory("{ #ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r, r, r, r}, [s]; "
		     "#stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {r}; ret; }");
	check_memory("{ prefetch.global.L2 [a]; mbarrier.init.shared.b64 [s], 1; tex.1d.v4.s32.s32 "
		     "{r, r, r, r}, [t, {r}]; ret; }");
}

/* Only those spaces, numbered over the module in the order of the text. */
static void test_instructions(void **state) {
	static const char text[] =
		HEADER ".visible .func f(.param .b64 a)\n{\n.reg .b64 %rd<3>;\nld.param.u64 %rd1, "
		       "[a];\nst.global.u64 [%rd1], %rd1;\nret;\n}\n"
		       ".visible .entry k(.param .u64 x)\n{\n.shared .b64 s;\n.reg .b64 "
		       "%rd<3>;\n.loc 7 1 1\nld.param.u64 %rd1, [x];\n.loc 1 12 5\n"
		       "ld.global.u64\n\t%rd2, [%rd1];\n.loc 8 13 1\nst.shared.u64 [s], %rd2; "
		       "ret;\n}\n.file 1 \"/src/x.cu\"\n.file 8 \"\"\n";
	const struct probe_program one = program("p", FUNCTION("p"));
	struct trial trial = { .programs = &one,
			       .count = 1,
			       .uses = { { .point = POINT_MEMORY, .spaces = 1 << 1 | 1 << 5 } },
			       .use_count = 1 };
	static const char *const expected[] = { "f ld.param.u64 %rd1, [a]; :0",
						"f st.global.u64 [%rd1], %rd1; :0",
						"k ld.param.u64 %rd1, [x]; :0",
						"k ld.global.u64\n\t%rd2, [%rd1]; /src/x.cu:12" };
	char line[256];

	must(text, &trial);
	assert_int_equal(trial.sites[0], 4);
	assert_int_equal(trial.result.n_instructions, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct probe_instruction *one_of = &trial.result.instructions[i];

		assert_int_equal(one_of->index, i);
		snprintf(line, sizeof(line), "%s %.*s %.*s:%u", i < 2 ? "f" : "k",
			 (int)one_of->text.length, text + one_of->text.offset,
			 (int)one_of->file.length, text + one_of->file.offset, one_of->line);
		assert_string_equal(line, expected[i]);
	}
	assemble(trial.out, "sm_80");
	finish(&trial);
}

/* Places that share an instruction: in the order in which they run. */
static void test_order(void **state) {
	const struct probe_program programs[] = { program("p0", FUNCTION("p0")),
						  program("p1", FUNCTION("p1")) };
	struct trial trial = {
		.programs = programs,
		.count = 2,
		.uses = {
			{ .program = 0, .point = POINT_RETURN },
			{ .program = 0, .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			{ .program = 1, .point = POINT_LINE, .file = "x.cu", .line = 3 },
			{ .program = 1, .point = POINT_MEMORY, .spaces = 1 << 1 },
			{ .program = 0, .point = POINT_LINE, .file = "x.cu", .line = 3 },
			{ .program = 0, .point = POINT_BLOCK },
			{ .program = 0, .point = POINT_ENTRY },
		},
		.use_count = 7,
		.options = { .call = true },
	};
	static const char *const expected[] = {
		"call __probe_func__k;", "call __blockprobe__0;",   "call __lineprobe__0;",
		"call __memcapture__0;", "ld.global.u32 r, [a];",   "call __memcapture__1;",
		"st.shared.u32 [b], r;", "call __retprobe_func__k;"
	};
	const char *at;

	must(HEADER ".visible .entry k() {\n.reg .b32 r, b; .reg .b64 a;\n.loc 1 3 "
		    "1\nld.global.u32 r, [a];\nst.shared.u32 [b], r;\nret;\n}\n"
		    ".file 1 \"x.cu\"\n",
	     &trial);
	at = strstr(trial.out, ".entry k");
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		at = strstr(at, expected[i]);
		if (!at)
			fail_msg("%s is missing or too early in\n%s", expected[i], trial.out);
	}
	/* by use: of the same programs in the same order there is one function */
	at = strstr(trial.out, ".func __lineprobe__0");
	assert_non_null(at);
	assert_true(strstr(at, "call (__gpuprobe_r), p1;") <
		    strstr(at, "call (__gpuprobe_r), p0;"));
	at = strstr(trial.out, ".func __memcapture__0");
	assert_true(strstr(at, "call (__gpuprobe_r), p0;") <
		    strstr(at, "call (__gpuprobe_r), p1;"));
	finish(&trial);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_returns),         cmocka_unit_test(test_predicated_returns),
		cmocka_unit_test(test_frames),          cmocka_unit_test(test_results),
		cmocka_unit_test(test_indexed_results), cmocka_unit_test(test_lines),
		cmocka_unit_test(test_blocks),          cmocka_unit_test(test_stubs),
		cmocka_unit_test(test_stub_errors),     cmocka_unit_test(test_names),
		cmocka_unit_test(test_memory),          cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
