/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of image-target.c, image-edit.c and image-check.c without a worker: targets and what
 * is reported about them, the list of instructions, the check of foreign text.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "image-edit.h"

static const char ptx[] = ".version 7.0\n"
			  ".target sm_80\n"
			  ".address_size 64\n"
			  ".file 1 \"/a/x.cu\"\n"
			  ".visible .const .align 8 .u64 constant;\n"
			  ".func _Z3devv()\n{\n\tret;\n}\n"
			  ".visible .entry _Z1fPm(.param .u64 p)\n"
			  "{\n"
			  "\t.reg .b64 %a;\n"
			  "\t.loc 1 7 1\n"
			  "\tld.param.u64 %a, [p];\n"
			  "\tst.global.u64\t[%a],\n\t\t%a;\n"
			  "\tret;\n"
			  "}\n"
			  ".visible .entry g()\n{\n\tret;\n}\n";

static const char program_text[] = ".visible .const .align 8 .u64 slot = 0;\n"
				   ".func (.param .b64 r) p()\n"
				   "{\n"
				   "\t.reg .b64 %a, %one;\n"
				   "\tld.const.u64 %a, [slot];\n"
				   "\tmov.u64 %one, 1;\n"
				   "\tred.global.add.u64 [%a], %one;\n"
				   "\tst.param.b64 [r], %one;\n"
				   "\tret;\n"
				   "}\n";

static struct probe_program program = { .symbol = "p",
					.text = program_text,
					.length = sizeof(program_text) - 1,
					.isa = 63,
					.target = 52 };

static struct image_request make_request(struct image_attachment *attachments, size_t n) {
	return (struct image_request){ .programs = &program,
				       .n_programs = 1,
				       .attachments = attachments,
				       .n_attachments = n };
}

static void parse(struct ptx_module *module, const char *text) {
	struct ptx_error error = {};

	assert_int_equal(ptx_module_parse(module, text, strlen(text), &error), 0);
}

/* A copy of `ptx` in which the first `old` is `new`; the caller's. */
static char *replace(const char *text, const char *old, const char *new) {
	const char *at = strstr(text, old);
	char *out;

	assert_non_null(at);
	assert_true(asprintf(&out, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old)) > 0);
	return out;
}

static void test_targets(void **state) {
	struct image_attachment attachments[] = {
		{ .id = 3,
		  .kernel = "f",
		  .use = { .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT } },
		{ .id = 4,
		  .kernel = "*",
		  .device_function = true,
		  .use = { .point = POINT_BLOCK, .block = 9 } },
		{ .id = 5, .kernel = "*", .use = { .point = POINT_RETURN } },
		{ .id = 6, .kernel = "nothing", .use = { .point = POINT_ENTRY } },
	};
	struct image_request request = make_request(attachments, 4);
	struct json_object *reply = json_object_new_object();
	struct image_targets targets = {};
	struct image_edited edited;
	struct ptx_module module;
	struct ptx_error error = {};
	size_t length;
	char *list;

	parse(&module, ptx);
	assert_int_equal(image_targets_match(&targets, &request, "_Z1fPm", false), 0);
	assert_int_equal(image_targets_match(&targets, &request, "g", false), 0);
	assert_int_equal(image_targets_match(&targets, &request, "_Z3devv", true), 0);
	assert_int_equal(image_targets_match(&targets, &(struct image_request){}, "g", false), 0);
	assert_int_equal(targets.n, 3);
	assert_int_equal(targets.targets[0].count, 2);
	assert_int_equal(image_targets_sites(&targets), 0);

	assert_int_equal(image_edit(&edited, &module, &request, &targets, &error), 0);
	/* One memory instruction, two ways out, no ninth block. */
	assert_int_equal(image_targets_sites(&targets), 3);
	assert_int_equal(image_targets_add_applied(&targets, &request, reply), 0);
	assert_int_equal(image_targets_add_kernels(&targets, &request, reply, true), 0);
	assert_string_equal(
		json_object_to_json_string_ext(reply, JSON_C_TO_STRING_PLAIN),
		"{\"applied\":[3,5],\"kernels\":["
		"{\"attachments\":[3,5],\"name\":\"_Z1fPm\",\"demangled\":\"f(unsigned long*)\"},"
		"{\"attachments\":[5],\"name\":\"g\",\"demangled\":\"g\"}]}");
	assert_int_equal(image_targets_add_kernels(&targets, &request, reply, false), 0);
	assert_non_null(strstr(json_object_to_json_string_ext(reply, JSON_C_TO_STRING_PLAIN),
			       "{\"attachments\":[4],\"name\":\"_Z3devv\",\"demangled\":\"dev()\","
			       "\"device_function\":true}"));
	json_object_put(reply);

	assert_int_equal(image_instructions_write(&edited.probes, &module, &list, &length), 0);
	assert_string_equal(
		list, "[{\"index\":0,\"kernel\":\"_Z1fPm\",\"text\":\"st.global.u64 [%a], %a;\","
		      "\"file\":\"/a/x.cu\",\"line\":7}]");
	assert_int_equal(length, strlen(list));
	free(list);
	image_edited_deinit(&edited);
	image_targets_deinit(&targets);
	ptx_module_deinit(&module);
}

/* Bytes that JSON has no place for. */
static void test_instruction_text(void **state) {
	static const char text[] = "a\"b\\c\xff\x7f\n\t d   \n";
	const struct ptx_module module = { .text = text, .length = sizeof(text) - 1 };
	const struct ptx_function function = { .name = { 0, 1 } };
	struct probe_instruction instruction = { .index = 5,
						 .function = &function,
						 .text = { 0, sizeof(text) - 1 } };
	const struct probe_result probes = { &instruction, 1 };
	size_t length;
	char *list;

	assert_int_equal(image_instructions_write(&probes, &module, &list, &length), 0);
	assert_string_equal(list, "[{\"index\":5,\"kernel\":\"a\",\"text\":\"a\\\"b\\\\c?? d\"}]");
	free(list);
}

static void test_point_names(void **state) {
	static const struct {
		struct probe_use use;
		const char *name;
	} cases[] = {
		{ { .point = POINT_ENTRY }, "entry" },
		{ { .point = POINT_RETURN }, "return" },
		{ { .point = POINT_MEMORY }, "memory instruction" },
		{ { .point = POINT_LINE, .file = "x.cu", .line = 12 }, "line x.cu:12" },
		{ { .point = POINT_BLOCK, .block = 3 }, "block 3" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[160];

		image_point_format(&cases[i].use, text, sizeof(text));
		assert_string_equal(text, cases[i].name);
	}
}

static void test_check(void **state) {
	static const struct {
		const char *old, *new, *words; /* words NULL: it is fine */
	} cases[] = {
		{ "ret;", "ret; // changed", NULL },
		{ ".func _Z3devv()\n{\n\tret;\n}\n", "", NULL },
		{ ".visible .const .align 8 .u64 slot", ".visible .global .align 8 .u64 slot",
		  NULL },
		{ ".visible .const .align 8 .u64 slot", ".visible .shared .align 8 .u64 slot",
		  "variable slot is another" },
		{ ".visible .const .align 8 .u64 slot", ".const .align 8 .u64 slot",
		  "variable slot is gone" },
		{ "u64 constant", "u32 constant", "variable constant is another" },
		{ ".visible .const .align 8 .u64 constant",
		  ".visible .global .align 8 .u64 constant", "variable constant is another" },
		{ ".entry g()", ".entry g(.param .u32 x)",
		  "kernel g has 1 parameters instead of 0" },
		{ ".param .u64 p)", ".param .align 8 .b8 p[8])",
		  "parameter 0 of kernel _Z1fPm is another" },
		{ ".param .u64 p)", ".param .f64 p)", "parameter 0 of kernel _Z1fPm is another" },
		{ ".visible .entry g()", ".visible .func g()", "kernel g is gone" },
		{ ".version 7.0", ".version 7.1", ".version 7.1 is newer than 7.0" },
		{ "sm_80", "sm_80a", ".target sm_80a instead of sm_80" },
	};
	struct image_attachment attachment = { .id = 1,
					       .kernel = "*",
					       .use = { .point = POINT_ENTRY } };
	struct image_request request = make_request(&attachment, 1);
	struct image_targets targets = {};
	struct ptx_module original;
	char *edited;

	parse(&original, ptx);
	assert_int_equal(image_targets_match(&targets, &request, "g", false), 0);
	edited = replace(ptx, ".func _Z3devv",
			 ".visible .const .align 8 .u64 slot = 0;\n.func _Z3devv");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = replace(edited, cases[i].old, cases[i].new);
		struct ptx_error error = {};
		struct ptx_module foreign;

		parse(&foreign, text);
		assert_int_equal(image_check(&foreign, &original, &request, &targets, &error),
				 cases[i].words ? IMAGE_EDIT_E_TRANSFORM : 0);
		assert_string_equal(error.message, cases[i].words ? cases[i].words : "");
		ptx_module_deinit(&foreign);
		free(text);
	}
	/* More than the image and the programs have, if the request says so. */
	{
		char *text = replace(edited, ".version 7.0", ".version 8.0");
		struct ptx_error error = {};
		struct ptx_module foreign;

		parse(&foreign, text);
		request.isa = 80;
		assert_int_equal(image_check(&foreign, &original, &request, &targets, &error), 0);
		ptx_module_deinit(&foreign);
		free(text);
	}
	free(edited);
	image_targets_deinit(&targets);
	ptx_module_deinit(&original);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_instruction_text),
		cmocka_unit_test(test_point_names),
		cmocka_unit_test(test_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
