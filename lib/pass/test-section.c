/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of section.c: every form of job.md's table, and every malformed one with its message.
 */

#include "section.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "proto/patch.h"

static void test_forms(void **state) {
	static const struct {
		const char *text, *kernel;
		enum point_kind point;
		bool known, device;
		const char *name, *file;
		uint32_t line, block;
	} cases[] = {
		{ "kprobe/f", NULL, POINT_ENTRY, true, false, "f", "", 0, 0 },
		{ "kretprobe/f", NULL, POINT_RETURN, true, false, "f", "", 0, 0 },
		{ "memcapture/f", NULL, POINT_MEMORY, true, false, "f", "", 0, 0 },
		{ "kprobe/__memcapture", NULL, POINT_MEMORY, true, false, "*", "", 0, 0 },
		{ "memcapture/__memcapture", NULL, POINT_MEMORY, true, false, "*", "", 0, 0 },
		{ "kprobe/__directly_run", NULL, POINT_ENTRY, true, false, SECTION_DIRECTLY_RUN, "",
		  0, 0 },
		{ "kprobe/dev:g", NULL, POINT_ENTRY, true, true, "g", "", 0, 0 },
		{ "kretprobe/dev:g", NULL, POINT_RETURN, true, true, "g", "", 0, 0 },
		{ "memcapture/dev:g*", NULL, POINT_MEMORY, true, true, "g*", "", 0, 0 },
		{ "kprobe/f@x.cu:12", NULL, POINT_LINE, true, false, "f", "x.cu", 12, 0 },
		{ "kprobe/f@C:/a b/x.cu:4294967294", NULL, POINT_LINE, true, false, "f",
		  "C:/a b/x.cu", UINT32_MAX - 1, 0 },
		{ "kprobe/dev:f@x.cu:1", NULL, POINT_LINE, true, true, "f", "x.cu", 1, 0 },
		{ "kprobe/f@block:0", NULL, POINT_BLOCK, true, false, "f", "", 0, 0 },
		{ "kprobe/f@block:31", NULL, POINT_BLOCK, true, false, "f", "", 0, 31 },
		{ "kprobe/f@call", NULL, POINT_CLASS, true, false, "f", "", 0, 0 },
		{ "kprobe/@barrier", "k*", POINT_CLASS, true, false, "k*", "", 0, 0 },
		{ "kprobe/f@call:3", NULL, POINT_LINE, true, false, "f", "call", 3, 0 },
		{ "kprobe/f@myblock:3", NULL, POINT_LINE, true, false, "f", "myblock", 3, 0 },
		{ "kprobe/ns::f<int>(float*)", NULL, POINT_ENTRY, true, false, "ns::f<int>(float*)",
		  "", 0, 0 },
		{ "kprobe", NULL, POINT_ENTRY, true, false, "", "", 0, 0 },
		{ "kprobe/", NULL, POINT_ENTRY, true, false, "", "", 0, 0 },
		{ "kretprobe", "k", POINT_RETURN, true, false, "k", "", 0, 0 },
		{ "gpu", NULL, POINT_ENTRY, false, false, "", "", 0, 0 },
		{ "gpu/f@x", "k", POINT_ENTRY, false, false, "k", "", 0, 0 },
		{ "kprobes/f", "k", POINT_ENTRY, false, false, "k", "", 0, 0 },
		/* --kernel stands for the name, and for no more */
		{ "kprobe/f@x.cu:12", "k*", POINT_LINE, true, false, "k*", "x.cu", 12, 0 },
		{ "kprobe/@x.cu:12", "k", POINT_LINE, true, false, "k", "x.cu", 12, 0 },
		{ "kprobe/dev:f", "k", POINT_ENTRY, true, true, "k", "", 0, 0 },
		{ "kretprobe/f", "dev:k", POINT_RETURN, true, true, "k", "", 0, 0 },
		{ "kprobe/__memcapture", "k", POINT_MEMORY, true, false, "k", "", 0, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char error[SECTION_ERROR_SIZE] = "";
		struct section section;

		if (section_parse(&section, cases[i].text, cases[i].kernel, error))
			fail_msg("%s: %s", cases[i].text, error);
		if (section.point != cases[i].point || section.known != cases[i].known ||
		    section.device_function != cases[i].device || section.line != cases[i].line ||
		    section.block != cases[i].block)
			fail_msg("%s: point %s, line %u, block %u", cases[i].text,
				 section_point(&section)->name, section.line, section.block);
		assert_string_equal(section.kernel, cases[i].name);
		assert_string_equal(section.file, cases[i].file);
	}
}

static void test_malformed(void **state) {
	static char long_name[SECTION_KERNEL_SIZE + 8] = "kprobe/",
						    long_file[SECTION_FILE_SIZE + 16] = "kprobe/f@";
	static const struct {
		const char *text, *kernel, *error;
	} cases[] = {
		{ "kprobe/f@x.cu", NULL,
		  "kprobe/f@x.cu: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ "kprobe/f@", NULL,
		  "kprobe/f@: expected FILE:LINE, block:N, or one of call, ret, barrier, syncwarp, "
		  "shfl, malloc, free after @" },
		{ "kprobe/f@:12", NULL,
		  "kprobe/f@:12: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ "kprobe/f@x.cu:", NULL,
		  "kprobe/f@x.cu:: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ "kprobe/f@12", NULL,
		  "kprobe/f@12: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ "kprobe/f@x.cu:y", NULL,
		  "kprobe/f@x.cu:y: expected the number of a line after the file: FILE:LINE" },
		{ "kprobe/f@x.cu:0", NULL,
		  "kprobe/f@x.cu:0: expected the number of a line after the file: FILE:LINE" },
		{ "kprobe/f@x.cu:-1", NULL,
		  "kprobe/f@x.cu:-1: expected the number of a line after the file: FILE:LINE" },
		{ "kprobe/f@x.cu:4294967295", NULL,
		  "kprobe/f@x.cu:4294967295: expected the number of a line after the file: "
		  "FILE:LINE" },
		{ "kprobe/f@block:", NULL,
		  "kprobe/f@block:: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ "kprobe/f@block:x", NULL, "kprobe/f@block:x: expected a number after block:" },
		{ "kprobe/f@block:4294967295", NULL,
		  "kprobe/f@block:4294967295: expected a number after block:" },
		{ "kprobe/f@block:1x", NULL, "kprobe/f@block:1x: expected a number after block:" },
		{ "kprobe/dev:", NULL,
		  "kprobe/dev:: expected the name of a device function after dev:" },
		{ "kprobe/dev:@x:1", NULL,
		  "kprobe/dev:@x:1: expected the name of a device function after dev:" },
		{ "kprobe/f", "dev:", "dev:: expected the name of a device function after dev:" },
		{ "kretprobe/f@x.cu:1", NULL,
		  "kretprobe/f@x.cu:1: a source line, block or class of instructions has one "
		  "point, that of kprobe/: no @ here" },
		{ "memcapture/f@block:1", NULL,
		  "memcapture/f@block:1: a source line, block or class of instructions has one "
		  "point, that of kprobe/: no @ here" },
		{ "kprobe/__memcapture@x:1", NULL,
		  "kprobe/__memcapture@x:1: a source line, block or class of instructions has one "
		  "point, that of kprobe/: no @ here" },
		{ "kprobe/dev:f@call", NULL,
		  "kprobe/dev:f@call: classes of instructions are those of kernels: no dev: here" },
		{ "kretprobe/f@ret", NULL,
		  "kretprobe/f@ret: a source line, block or class of instructions has one point, "
		  "that of kprobe/: no @ here" },
		{ "kprobe/a\tb", NULL, "kprobe/a?b: strange character in the name" },
		{ long_name, NULL, NULL },
		{ long_file, NULL, NULL },
	};

	memset(long_name + 7, 'n', SECTION_KERNEL_SIZE);
	memset(long_file + 9, 'n', SECTION_FILE_SIZE);
	strcat(long_file, ":12");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char error[SECTION_ERROR_SIZE] = "";
		struct section section;

		if (section_parse(&section, cases[i].text, cases[i].kernel, error) !=
		    SECTION_E_INVALID)
			fail_msg("%s is taken", cases[i].text);
		if (cases[i].error)
			assert_string_equal(error, cases[i].error);
		else
			assert_non_null(
				strstr(error, i + 1 < sizeof(cases) / sizeof(cases[0])
						      ? "...: a name has at most 2047 bytes"
						      : "the file has more than 255 bytes"));
	}
}

/* Each class under its name, and which engine can have what. */
static void test_engines(void **state) {
	static const struct {
		const char *place;
		enum patch_instruction instruction;
	} classes[] = {
		{ "call", PATCH_CALL },       { "ret", PATCH_RET },
		{ "barrier", PATCH_BARRIER }, { "syncwarp", PATCH_SYNCWARP },
		{ "shfl", PATCH_SHFL },       { "malloc", PATCH_MALLOC },
		{ "free", PATCH_FREE },
	};
	static const char *const ptx[] = { "kprobe/f@x.cu:1", "kprobe/f@block:2", "kprobe/dev:f",
					   "memcapture/dev:f", "kprobe/__directly_run" },
				 *const both[] = { "kprobe/f", "kretprobe/f", "memcapture/f",
						   "kprobe/__memcapture" };
	char text[64], error[SECTION_ERROR_SIZE];
	struct section section;

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		snprintf(text, sizeof(text), "kprobe/f@%s", classes[i].place);
		assert_int_equal(section_parse(&section, text, NULL, error), 0);
		assert_int_equal(section.instruction, classes[i].instruction);
		assert_string_equal(section_point(&section)->name, classes[i].place);
		assert_true(section_needs_sass(&section));
		assert_null(section_needs_ptx(&section));
	}
	for (size_t i = 0; i < sizeof(ptx) / sizeof(ptx[0]); i++) {
		assert_int_equal(section_parse(&section, ptx[i], NULL, error), 0);
		assert_non_null(section_needs_ptx(&section));
		assert_false(section_needs_sass(&section));
	}
	for (size_t i = 0; i < sizeof(both) / sizeof(both[0]); i++) {
		assert_int_equal(section_parse(&section, both[i], NULL, error), 0);
		assert_null(section_needs_ptx(&section));
		assert_false(section_needs_sass(&section));
	}
	assert_int_equal(section_parse(&section, "kretprobe/f", NULL, error), 0);
	assert_string_equal(section_point(&section)->name, "return");
}

static void test_spaces(void **state) {
	uint32_t all = 0;

	for (unsigned int i = 0; i < POINT_SPACES; i++) {
		assert_int_equal(point_space(point_spaces[i]), 1u << i);
		all |= 1u << i;
	}
	assert_int_equal(all & ~point_space("param"), POINT_SPACES_DEFAULT);
	assert_int_equal(point_space("globals"), 0);
	assert_int_equal(point_space("global"), 2); /* enum gpuprobe_space */
}

/* The convention cuda_ of other loaders. */
static void test_prefix(void **state) {
	static const struct {
		const char *text, *kernel;
		bool prefixed;
	} cases[] = {
		{ "kprobe/cuda__Z1fv", NULL, true },   { "kretprobe/cuda_f", NULL, true },
		{ "memcapture/cuda_f", NULL, true },   { "kprobe/cuda_f@x.cu:3", NULL, true },
		{ "kprobe/f", NULL, false },           { "kprobe/cuda_", NULL, false },
		{ "kprobe/cuda_*", NULL, false },      { "kprobe/cuda_f", "cuda_g", false },
		{ "kprobe/cuda_fg", "cuda_f", false }, { "kprobe/cuda_f", "f", false },
		{ "kprobe/dev:cuda_f", NULL, false },  { "gpu", "cuda_f", false },
		{ "kprobe", "cuda_f", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct section section;
		char error[SECTION_ERROR_SIZE];

		assert_int_equal(section_parse(&section, cases[i].text, cases[i].kernel, error), 0);
		assert_int_equal(section_prefixed(&section, cases[i].text), cases[i].prefixed);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),   cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_engines), cmocka_unit_test(test_spaces),
		cmocka_unit_test(test_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
