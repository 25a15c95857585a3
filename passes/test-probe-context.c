/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of probe-context.c: the text that computes fields which the CPU driver cannot run.
 * tests/sim/test-sim-context.c has the others. tests/corpus/points.ptx has them too, for ptxas.
 */

#include "test-probe.h"

#include "proto/kernel-id.h"

#define FIELDS 6

static const uint16_t all[] = { 0, 8, 16, 24, 32, 40 };

/* Space and kind are those of proto/gpuprobe.bpf.h. size and value: a number, or lines that must be
 * there. */
struct row {
	const char *code, *address, *size;
	unsigned int space, kind;
	const char *value;
};

#define C1 "%gpuprobe_c1"
#define FROM_GLOBAL(source) "\tcvta.global.u64 " C1 ", " source ";\n"

static const struct row rows[] = {
	{ "cp.async.ca.shared.global [%r1], [%rd1], 4;", FROM_GLOBAL("%rd1"), "0x4", 1, 5, "0x0" },
	{ "cp.async.cg.shared.global.L2::128B [%r1+16], [%rd1+32], 16, %r2;",
	  "\tadd.s64 " C1 ", %rd1, 32;\n" FROM_GLOBAL(C1), "0x10", 1, 5, "0x0" },
	{ "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, "
	  "[%r3];",
	  FROM_GLOBAL("%rd1"), "\tcvt.u64.u32 %gpuprobe_c2, %r2;\n", 1, 5, "0x0" },
	{ "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], "
	  "32, [%r3];",
	  "\tcvt.u64.u32 " C1 ", %r1;\n\tcvta.shared::cluster.u64 " C1 ", " C1 ";\n", "0x20", 2, 5,
	  "0x0" },
	{ "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;", FROM_GLOBAL("%rd1"),
	  "0x40", 1, 5, "0x0" },
	{ "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 64;",
	  FROM_GLOBAL("%rd1"), "0x40", 1, 5, "0x0" },
	{ "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], "
	  "[%rd1, {%r2, %r3}], [%r3];",
	  "\tmov.b64 " C1 ", %rd1;\n", "0x0", 0, 5, "0x0" },
	{ "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd1+64, {%r2}], [%r1];",
	  "\tadd.s64 " C1 ", %rd1, 64;\n", "0x0", 0, 5, "0x0" },
	{ "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r2, %r2, %r2, %r2}, [%r1];",
	  "\tcvt.u64.u32 " C1 ", %r1;\n\tcvta.shared.u64 " C1 ", " C1 ";\n", "0x10", 2, 6, "0x0" },
	{ "ld.shared.u32 %r2, [%r1+8196];",
	  "\tadd.s64 " C1 ", " C1 ", 8196;\n\tand.b64 " C1 ", " C1
	  ", 0xffffffff;\n\tcvta.shared.u64 " C1 ", " C1 ";\n",
	  "0x4", 2, 1, "0x0" },
	{ "ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%rd1];", "\tmov.b64 " C1 ", %rd1;\n", "0x4", 0,
	  6, "0x0" },
	{ "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2, %r3};",
	  "\tcvta.shared.u64 " C1 ", " C1 ";\n", "0x8", 2, 2,
	  "\tcvt.u64.u32 %gpuprobe_c5, %r2;\n\t{\n\t.reg .b64 %gpuprobe_t;\n\tcvt.u64.u32 "
	  "%gpuprobe_t, %r3;\n"
	  "\tshl.b64 %gpuprobe_t, %gpuprobe_t, 32;\n\tor.b64 %gpuprobe_c5, %gpuprobe_c5, "
	  "%gpuprobe_t;\n\t}\n" },
	{ "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
	  "\tcvta.shared::cluster.u64 " C1 ", " C1 ";\n", "0x4", 2, 2,
	  "\tcvt.u64.u32 %gpuprobe_c5, %r2;\n" },
	{ "st.bulk.weak.shared::cta [%rd1], %rd2, 0;", "\tcvta.shared.u64 " C1 ", %rd1;\n",
	  "\tmov.b64 %gpuprobe_c2, %rd2;\n", 2, 2, "0x0" },
	{ "multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;",
	  FROM_GLOBAL("%rd1"), "0x40", 1, 5, "0x0" },
	{ "multimem.red.relaxed.gpu.global.add.u32 [%rd1], %r2;", FROM_GLOBAL("%rd1"), "0x4", 1, 4,
	  "\tcvt.u64.u32 %gpuprobe_c5, %r2;\n" },
	{ "multimem.ld_reduce.relaxed.gpu.global.add.v4.f32 {%f1, %f1, %f1, %f1}, [%rd1];",
	  FROM_GLOBAL("%rd1"), "0x10", 1, 1, "0x0" },
	{ "st.b128 [%rd1], %q;", "\tmov.b64 " C1 ", %rd1;\n", "0x10", 0, 2,
	  "\t{\n\t.reg .b64 %gpuprobe_e;\n\tmov.b128 {%gpuprobe_c5, %gpuprobe_e}, %q;\n\t}\n" },
	{ "st.global.v4.f32 [%rd1], v4;", FROM_GLOBAL("%rd1"), "0x10", 1, 2,
	  "\tmov.b32 %gpuprobe_w, v4.y;\n" },
	{ "st.global.u32 [%rd1], 1+2*3;", FROM_GLOBAL("%rd1"), "0x4", 1, 2,
	  "\tmov.b64 %gpuprobe_c5, 1+2*3;\n" },
	{ "st.global.f32 [%rd1], 0d3FF8000000000000;", FROM_GLOBAL("%rd1"), "0x4", 1, 2,
	  "0x3fc00000" },
	{ "st.global.f32 [%rd1], -1.5;", FROM_GLOBAL("%rd1"), "0x4", 1, 2, "0xbfc00000" },
	{ "st.u16 [4096+8], -1;", "\tmov.u64 " C1 ", 4096;\n\tadd.s64 " C1 ", " C1 ", 8;\n", "0x2",
	  0, 2, "0xffff" },
	{ "atom.global.v2.f32.add {%f1, %f1}, [%rd1], {%f1, %f1};", FROM_GLOBAL("%rd1"), "0x8", 1,
	  3, "\tmov.b32 %gpuprobe_w, %f1;\n" },
	{ "ld.param.u64 %rd2, [x];", "\tmov.u64 " C1 ", x;\n\tcvta.param.u64 " C1 ", " C1 ";\n",
	  "0x8", 5, 1, "0x0" },
	{ "ld.global.u32 %r2, array[%rd1+2];", "\tmov.u64 " C1 ", array[%rd1+2];\n" FROM_GLOBAL(C1),
	  "0x4", 1, 1, "0x0" },
	{ "st.volatile.global.u32 array[3], %r2;", "\tmov.u64 " C1 ", array[3];\n" FROM_GLOBAL(C1),
	  "0x4", 1, 2, "\tcvt.u64.u32 %gpuprobe_c5, %r2;\n" },
	{ "ld.param.u32 %r2, y[1];", "\tmov.u64 " C1 ", y[1];\n\tcvta.param.u64 " C1 ", " C1 ";\n",
	  "0x4", 5, 1, "0x0" },
	{ "st.global.u64 [%rd1+WARP_SZ*2], (.u64)-WARP_SZ;", "\tadd.s64 " C1 ", %rd1, WARP_SZ*2;\n",
	  "0x8", 1, 2, "\tmov.b64 %gpuprobe_c5, (.u64)-WARP_SZ;\n" },
	/* what is not understood is 0 */
	{ "ld.global.u32 %r2, [%rd1+nothing];", "\tst.param.b64 [__gpuprobe_a1], 0x0;\n", "0x4", 1,
	  1, "0x0" },
	{ "ld.global.u32 %r2, [%rd1 %r2];", "\tst.param.b64 [__gpuprobe_a1], 0x0;\n", "0x4", 1, 1,
	  "0x0" },
	{ "ld.global.u32 %r2, table;", "\tst.param.b64 [__gpuprobe_a1], 0x0;\n", "0x4", 1, 1,
	  "0x0" },
	{ "ld.global.u32 %r2, [];", "\tst.param.b64 [__gpuprobe_a1], 0x0;\n", "0x4", 1, 1, "0x0" },
	{ "ld.global.u32 %r2, [v4];", "\tmov.b64 " C1 ", 0;\n", "0x4", 1, 1, "0x0" },
	{ "st.global.u32 [%rd1];", FROM_GLOBAL("%rd1"), "0x4", 1, 2, "0x0" },
	{ "st.global.u32 [%rd1], unknown;", FROM_GLOBAL("%rd1"), "0x4", 1, 2,
	  "\tmov.b64 %gpuprobe_c5, 0x0;\n" },
	{ "st.global.unheard_of [%rd1], %r2;", FROM_GLOBAL("%rd1"), "0x0", 1, 2, "0x0" },
};

static struct probe_program reader(void) {
	static char text[512];
	struct probe_program one;

	snprintf(text, sizeof(text),
		 ".func (.param .b64 r) p(.param .b64 c0, .param .b64 c1, .param .b64 c2, .param "
		 ".b64 c3, .param .b64 c4, "
		 ".param .b64 c5)\n{\n\tst.param.b64 [r], 0;\n\tret;\n}\n");
	one = program("p", text);
	one.context = all;
	one.context_count = FIELDS;
	return one;
}

static void expect(const struct row *row, const char *out, const char *what) {
	if (!strstr(out, what))
		fail_msg("%s: no\n%s\nin\n%s", row->code, what, strstr(out, ".entry"));
}

static void test_memory(void **state) {
	const struct probe_program one = reader();
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = 0x3f } },
		.use_count = 1,
		.options = { .call = true, .image = 9 },
	};
	char text[1024], line[160];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(text, sizeof(text),
			 ".version 8.6\n.target sm_90\n.address_size 64\n.global .b32 "
			 "array[9];\n.visible .entry k(.param .u64 x, .param .b32 y[2])\n{\n.reg "
			 ".b64 %%rd<3>;\n.reg .b32 %%r<4>;\n"
			 ".reg .f32 %%f<2>;\n.reg .b128 %%q;\n.reg .v4 .f32 v4;\n%s\nret;\n}\n",
			 rows[i].code);
		must(text, &trial);
		assert_int_equal(trial.sites[0], 1);
		expect(&rows[i], trial.out, "\tst.param.b64 [__gpuprobe_a0], 0x900000000;\n");
		expect(&rows[i], trial.out, rows[i].address);
		for (unsigned int field = 2; field < FIELDS; field++) {
			const char *wanted = field == 2   ? rows[i].size
					     : field == 5 ? rows[i].value
							  : NULL;

			if (wanted && wanted[0] == '\t') {
				expect(&rows[i], trial.out, wanted);
				snprintf(line, sizeof(line),
					 "\tst.param.b64 [__gpuprobe_a%u], %%gpuprobe_c%u;\n",
					 field, field);
			} else if (wanted) {
				snprintf(line, sizeof(line),
					 "\tst.param.b64 [__gpuprobe_a%u], %s;\n", field, wanted);
			} else {
				snprintf(line, sizeof(line),
					 "\tst.param.b64 [__gpuprobe_a%u], 0x%x;\n", field,
					 field == 3 ? rows[i].space : rows[i].kind);
			}
			expect(&rows[i], trial.out, line);
		}
		finish(&trial);
	}
}

/*
 * What a place says of the fields that it fixes: they are the same in all lanes where a program
 * stands itself, unless a register has the size; not in a function that other places call.
 */
static void test_uniform(void **state) {
	static const uint16_t fields[] = { 16, POINT_UNIFORM };
	static const struct {
		const char *code, *inlined;
	} cases[] = {
		{ "ld.global.v2.u32 {%r1, %r2}, [%rd1];", "0x1" },
		{ "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 32;", "0x1" },
		{ "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", "0x0" },
	};
	struct probe_program one = program(
		"p",
		".func (.param .b64 r) p(.param .b64 c0, .param .b64 c1)\n{\n\t.reg .b64 x, y;\n"
		"\tld.param.u64 x, [c0];\n\tld.param.u64 y, [c1];\n\tst.param.b64 [r], 0;\n"
		"\tret;\n}\n");
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = 0x3f } },
		.use_count = 1,
	};
	char text[512], line[64];

	one.context = fields;
	one.context_count = 2;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text),
			 ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
			 ".reg .b64 %%rd<3>;\n.reg .b32 %%r<4>;\n%s\nret;\n}\n",
			 cases[i].code);
		trial.options.call = false;
		must(text, &trial);
		assert_int_equal(trial.sites[0], 1);
		snprintf(line, sizeof(line), "\tmov.b64 y, %s;\n", cases[i].inlined);
		if (!strstr(trial.out, line))
			fail_msg("%s: no\n%s\nin\n%s", cases[i].code, line, trial.out);
		assemble(trial.out, "sm_90");
		finish(&trial);
		trial.options.call = true;
		must(text, &trial);
		assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a25], 0x0;\n"));
		assemble(trial.out, "sm_90");
		finish(&trial);
	}
}

/* Parameters whose address or value cannot be had. */
static void test_parameters(void **state) {
	static const uint16_t fields[] = { 0, 56, 64, 72, 80, 88 };
	struct probe_program one = reader();
	struct trial trial = {
		.programs = &one,
		.count = 1,
		.uses = { { .point = POINT_MEMORY, .spaces = 0x3f } },
		.use_count = 1,
		.options = { .call = true },
	};
	char line[96];

	/* no cvta.param: before PTX 7.7, before sm_70, in functions */
	must(".version 7.6\n.target sm_90\n.address_size 64\n.entry k(.param .u64 x) { .reg .b64 "
	     "a; ld.param.u64 a, [x]; }\n",
	     &trial);
	assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a1], 0x0;\n"));
	finish(&trial);
	must(".version 8.0\n.target sm_60\n.address_size 64\n.entry k(.param .u64 x) { .reg .b64 "
	     "a; ld.param.u64 a, [x]; }\n",
	     &trial);
	assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a1], 0x0;\n"));
	finish(&trial);
	must(".version 8.0\n.target sm_90\n.address_size 64\n.func k(.param .u64 x) { .reg .b64 a; "
	     "ld.param.u64 a, [x]; }\n",
	     &trial);
	assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a1], 0x0;\n"));
	finish(&trial);
	/* references are no numbers */
	one.context = fields;
	trial.uses[0].point = POINT_ENTRY;
	must(".version 7.0\n.target sm_80, texmode_independent\n.address_size 64\n.visible .entry "
	     "k(.param .texref t, .param .samplerref s, .param .u64 x, .param .surfref u) { ret; "
	     "}\n",
	     &trial);
	assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a7], 0x4;\n"));
	for (unsigned int field = 8; field < 12; field++) {
		snprintf(line, sizeof(line),
			 field == 10 ? "ld.param.u64 %%gpuprobe_c%u, [x+0];\n"
				     : "\tst.param.b64 [__gpuprobe_a%u], 0x0;\n",
			 field);
		assert_non_null(strstr(trial.out, line));
	}
	snprintf(line, sizeof(line), "\tst.param.b64 [__gpuprobe_a0], 0x%llx;\n",
		 (unsigned long long)kernel_id("k", 1));
	assert_non_null(strstr(trial.out, line));
	assemble(trial.out, "sm_80");
	finish(&trial);
	/* a name that is another's in a scope */
	trial.uses[0].point = POINT_RETURN;
	must(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x, "
	     ".param .u64 y) { .reg .pred p; { .reg .u64 x; .reg .b64 y<3>; mov.u64 x, 5; "
	     "setp.eq.u64 p, x, 5; @p ret; } ret; }\n",
	     &trial);
	assert_non_null(strstr(trial.out, "\tst.param.b64 [__gpuprobe_a8], 0x0;\n"));
	assert_non_null(strstr(trial.out, "ld.param.u64 %gpuprobe_c9, [y+0];\n"));
	assert_non_null(
		strstr(strstr(trial.out, "@p ret;"), "ld.param.u64 %gpuprobe_c8, [x+0];\n"));
	finish(&trial);
}

static const uint16_t launch_of_kernel[] = { 168, 176, 184, 192, 160, 0 },
		      launch_of_memory[] = { 48, 56, 64, 72, 40, 0 };

#define BLOCK ".param .align 8 .b8 __gpuprobe_launch[32]"

/* Puts a reader of the launch at a point of a text, with or without blocks. */
static void put_reader(struct trial *trial, const char *text, enum point_kind point, bool launch) {
	static struct probe_program one;

	one = reader();
	one.context = point == POINT_MEMORY ? launch_of_memory : launch_of_kernel;
	*trial = (struct trial){
		.programs = &one,
		.count = 1,
		.uses = { { .point = point, .spaces = 0x3f } },
		.use_count = 1,
		.options = { .call = true, .launch = launch },
	};
	must(text, trial);
	assert_int_not_equal(trial->sites[0], 0);
}

/* Does a text have the block in a kernel, and read it? */
static bool has_block(const struct trial *trial) {
	const bool read = strstr(trial->out, ", [__gpuprobe_launch+0];");

	assert_int_equal(read, strstr(trial->out, BLOCK) != NULL);
	if (!read)
		assert_null(strstr(trial->out, "__gpuprobe_launch"));
	return read;
}

/* Every form of a list of parameters gets the block behind it. */
static void test_launch(void **state) {
	static const struct {
		const char *before, *after;
	} lists[] = {
		{ "k", "k(\n\t" BLOCK "\n)" },
		{ "k()", "k(\n\t" BLOCK ")" },
		{ "k /* ( */\n( ) ", "k /* ( */\n(\n\t" BLOCK " ) " },
		{ "k(.param .u64 x)", "k(.param .u64 x,\n\t" BLOCK ")" },
		{ "k(\n.param .align 16 .b8 x[20] // )\n,.param .u8 y\n)",
		  "k(\n.param .align 16 .b8 x[20] // )\n,.param .u8 y,\n\t" BLOCK "\n)" },
	};
	static const enum point_kind points[] = { POINT_ENTRY, POINT_RETURN, POINT_BLOCK,
						  POINT_MEMORY };
	char text[512], line[96];
	struct trial trial;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (size_t k = 0; k < sizeof(points) / sizeof(points[0]); k++) {
			snprintf(text, sizeof(text),
				 HEADER ".global .u32 g;\n.visible .entry %s\n.maxntid 64\n{ .reg "
					".b32 a; ld.global.u32 a, [g]; ret; }\n",
				 lists[i].before);
			put_reader(&trial, text, points[k], true);
			assert_true(has_block(&trial));
			if (!strstr(trial.out, lists[i].after))
				fail_msg("no\n%s\nin\n%s", lists[i].after, trial.out);
			for (unsigned field = 0; field < 4; field++) {
				snprintf(line, sizeof(line), "_c%u, [__gpuprobe_launch+%u];\n",
					 (points[k] == POINT_MEMORY ? 6 : 21) + field, 8 * field);
				if (!strstr(trial.out, line))
					fail_msg("no\n%s\nin\n%s", line, trial.out);
			}
			assemble(trial.out, "sm_80");
			finish(&trial);
		}
}

/* No block: nobody fills it in, no kernel, nobody reads it, no room, its name is another's. */
static void test_no_launch(void **state) {
	static const char one[] = HEADER ".visible .entry k(.param .u64 x) { ret; }\n";
	static const struct {
		const char *text;
		bool has;
	} cases[] = {
		{ one, true },
		{ HEADER ".visible .entry k(.param .b8 x[4064]) { ret; }\n", true },
		{ HEADER ".visible .entry k(.param .b8 x[4065]) { ret; }\n", false },
		{ HEADER ".visible .entry k(.param .b8 x[4096]) { ret; }\n", false },
		{ HEADER ".visible .entry k(.param .b8 x[4056], .param .u8 y) { ret; }\n", true },
		{ HEADER ".visible .entry k(.param .u8 y, .param .align 16 .b8 x[4048]) { ret; }\n",
		  true },
		{ HEADER ".visible .entry k(.param .u8 y, .param .align 16 .b8 x[4049]) { ret; }\n",
		  false },
		{ HEADER ".visible .entry k(.param .u8 y, .param .u64 .ptr .global .align 32 p, "
			 ".param .b8 x[4048]) { ret; }\n",
		  true },
		{ ".version 8.1\n.target sm_70\n.address_size 64\n.visible .entry k(.param .b8 "
		  "x[32728]) { ret; }\n",
		  true },
		{ ".version 8.1\n.target sm_70\n.address_size 64\n.visible .entry k(.param .b8 "
		  "x[32729]) { ret; }\n",
		  false },
		{ ".version 8.1\n.target sm_60\n.address_size 64\n.visible .entry k(.param .b8 "
		  "x[4080]) { ret; }\n",
		  false },
		{ HEADER ".visible .entry k(.param .texref x) { ret; }\n", false },
		{ HEADER ".func f(.param .u64 x) { ret; }\n", false },
	};
	static const char *const taken[] = {
		HEADER
		".global .u32 __gpuprobe_launch;\n.visible .entry k(.param .u64 x) { ret; }\n",
		HEADER ".visible .entry k(.param .u64 __gpuprobe_launch) { ret; }\n",
	};
	struct probe_program other = reader();
	struct trial trial;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put_reader(&trial, cases[i].text, POINT_ENTRY, true);
		if (has_block(&trial) != cases[i].has)
			fail_msg("%s", cases[i].text);
		if (!cases[i].has)
			assert_non_null(strstr(trial.out, "[__gpuprobe_a21], 0x0;\n"));
		finish(&trial);
	}
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		put_reader(&trial, taken[i], POINT_ENTRY, true);
		assert_null(strstr(trial.out, BLOCK));
		assert_non_null(strstr(trial.out, "[__gpuprobe_a21], 0x0;\n"));
		finish(&trial);
	}
	put_reader(&trial, one, POINT_ENTRY, false);
	assert_false(has_block(&trial));
	finish(&trial);
	trial.programs = &other; /* reads the first six fields */
	trial.options.launch = true;
	must(one, &trial);
	assert_false(has_block(&trial));
	finish(&trial);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),     cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_parameters), cmocka_unit_test(test_launch),
		cmocka_unit_test(test_no_launch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
