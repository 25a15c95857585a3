/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of ptx-edit.c: insertions and replacements in a PTX text, refused ones, and the
 * header.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ptx-edit.h"

static struct ptx_edit *start(const char *text) {
	struct ptx_edit *edit;

	assert_int_equal(ptx_edit_new(&edit, text, strlen(text)), 0);
	return edit;
}

/* Applies (twice: it changes nothing) and frees. */
static void finish(struct ptx_edit *edit, const char *expected) {
	size_t length;
	char *out;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(ptx_edit_apply(edit, &out, &length), 0);
		assert_string_equal(out, expected);
		assert_int_equal(length, strlen(expected));
		free(out);
	}
	assert_null(ptx_edit_free(edit));
}

static void test_changes(void **state) {
	struct ptx_edit *edit;

	finish(start(""), "");
	finish(start("unchanged\r\n\t "), "unchanged\r\n\t ");

	edit = start("0123456789");
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 8, 2 }, "Z", 1), 0);
	assert_int_equal(ptx_edit_insert(edit, 0, "a", 1), 0);
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 3, 2 }, NULL, 0), 0);
	assert_int_equal(ptx_edit_insertf(edit, 3, "<%d>", 7), 0); /* before what replaces 3 */
	assert_int_equal(ptx_edit_insert(edit, 0, "b", 1), 0);
	assert_int_equal(ptx_edit_insert(edit, 5, "x", 1), 0); /* right behind what was removed */
	assert_int_equal(ptx_edit_insert(edit, 10, "!", 1), 0);
	finish(edit, "ab012<7>x567Z!");
}

static void test_bad_changes(void **state) {
	struct ptx_edit *edit = start("0123456789");
	size_t length;
	char *out;

	assert_int_equal(ptx_edit_insert(edit, 11, "x", 1), -EINVAL);
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 9, 2 }, "x", 1), -EINVAL);
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 1, UINT32_MAX }, "x", 1),
			 -EINVAL);
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 2, 3 }, "x", 1), 0);
	assert_int_equal(ptx_edit_insert(edit, 4, "y", 1), 0); /* inside */
	assert_int_equal(ptx_edit_apply(edit, &out, &length), PTX_EDIT_E_OVERLAP);
	ptx_edit_free(edit);

	edit = start("0123456789");
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 2, 3 }, "x", 1), 0);
	assert_int_equal(ptx_edit_replace(edit, (struct ptx_range){ 2, 1 }, "y", 1), 0);
	assert_int_equal(ptx_edit_apply(edit, &out, &length), PTX_EDIT_E_OVERLAP);
	ptx_edit_free(edit);

	assert_int_equal(ptx_edit_new(&edit, "", (size_t)PTX_SOURCE_MAX + 1), -EFBIG);
	assert_null(ptx_edit_free(NULL));
}

static struct ptx_module parse(const char *text) {
	struct ptx_error error;
	struct ptx_module module;

	assert_int_equal(ptx_module_parse(&module, text, strlen(text), &error), 0);
	return module;
}

static void test_header(void **state) {
	static const char text[] =
		".version 7.0\n.target sm_70, debug\n.address_size 64 // x\n.entry k() { }";
	struct ptx_module module = parse(text);
	struct ptx_edit *edit = start(text);

	assert_int_equal(ptx_edit_raise_version(edit, &module, 63), PTX_EDIT_E_KEPT);
	assert_int_equal(ptx_edit_raise_version(edit, &module, 70), PTX_EDIT_E_KEPT);
	assert_int_equal(ptx_edit_raise_version(edit, &module, 85), 0);
	assert_int_equal(ptx_edit_raise_version(edit, &module, 80),
			 PTX_EDIT_E_KEPT); /* the highest counts */
	assert_int_equal(ptx_edit_insert_after_header(edit, &module, "A", 1), 0);
	assert_int_equal(ptx_edit_insert_after_header(edit, &module, "B", 1), 0);
	finish(edit,
	       ".version 8.5\n.target sm_70, debug\n.address_size 64\nA\nB // x\n.entry k() { }");
	ptx_module_deinit(&module);

	module = parse(".version 6.4\n.target sm_50, debug\n.entry k() { }");
	edit = start(module.text);
	assert_int_equal(ptx_edit_raise_target(edit, &module, 50), PTX_EDIT_E_KEPT);
	assert_int_equal(ptx_edit_raise_target(edit, &module, 60), 0);
	assert_int_equal(ptx_edit_raise_target(edit, &module, 52),
			 PTX_EDIT_E_KEPT); /* the highest counts */
	assert_int_equal(ptx_edit_raise_version(edit, &module, 65), 0);
	finish(edit, ".version 6.5\n.target sm_60, debug\n.entry k() { }");
	ptx_module_deinit(&module);

	module = parse(".version 9.0\n.target sm_90a\n");
	edit = start(module.text);
	assert_int_equal(ptx_edit_raise_version(edit, &module, 101), 0);
	finish(edit, ".version 10.1\n.target sm_90a\n");
	ptx_module_deinit(&module);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_bad_changes),
		cmocka_unit_test(test_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
