/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of varlink-json.c: JSON that is refused though json-c alone would take it, and JSON
 * that must pass.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "varlink-json.h"
#include "lib/base/utf8.h"
#include "lib/json.h"
#include "varlink-message.h"

static int parse(const char *text) {
	json_object *value;
	int r = varlink_json_parse(&value, text, strlen(text));

	if (!r)
		json_object_put(value);
	return r;
}

static void test_accepted(void **state) {
	static const char *const texts[] = {
		"{}",
		"[]",
		" {} ",
		"null",
		"true",
		"-1",
		"0",
		"1.5e-3",
		"\"\"",
		"[1,2,[3,{\"a\":null}]]",
		"9223372036854775807",
		"-9223372036854775808",
		"{\"a\":{\"a\":1}}",
		"\"\\\"\\\\\\u00e9\"",
		"\"\xc3\xa9\"",
		"\"\\ud83d\\ude00\"",
		"\"a:b\"",
		"\t{\n\"a\" : 1 }\r\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (parse(texts[i]))
			fail_msg("refused: %s", texts[i]);
}

static void test_refused(void **state) {
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"}",
		"{}}",
		"{} {}",
		"[1,]",
		"[,1]",
		"{\"a\":1,}",
		"{a:1}",
		"{'a':1}",
		"'a'",
		"{\"a\" 1}",
		"{\"a\":}",
		"{\"a\":1,\"a\":2}",
		"{\"b\":{\"a\":1,\"a\":1}}",
		"[{\"a\":1,\"\\u0061\":2}]",
		"01",
		"-",
		"+1",
		"1.",
		".5",
		"1e",
		"1e+",
		"0x10",
		"1e999",
		"[-1e999]",
		"-9223372036854775809",
		"-99999999999999999999",
		"NaN",
		"Infinity",
		"-Infinity",
		"nan",
		"True",
		"TRUE",
		"nul",
		"truefalse",
		"tru",
		"\"a",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u0000\"",
		"\"a\\u0000b\"",
		"\"a\nb\"",
		"\"\x01\"",
		"\"\xff\"",
		"\"\xc0\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xe2\x82\"",
		"/* */{}",
		"{}//",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"
		"]]",
		"\xef\xbb\xbf{}",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (!parse(texts[i]))
			fail_msg("accepted: %s", texts[i]);
}

/* A text that is cut anywhere is no text. */
static void test_cut(void **state) {
	static const char text[] = "{\"method\":\"a.B\",\"parameters\":{\"x\":[1,2.5,"
				   "\"\\u00e9\\n\",true,null]},\"more\":false}";
	json_object *value;

	for (size_t n = 0; n < strlen(text); n++)
		assert_int_equal(varlink_json_parse(&value, text, n), VARLINK_JSON_E_INVALID);
	assert_int_equal(varlink_json_parse(&value, text, strlen(text)), 0);
	json_object_put(value);
}

/* A bad byte is found wherever it stands in a long text. */
static void test_utf8(void **state) {
	for (size_t n = 1; n < 40; n++)
		for (size_t i = 0; i < n; i++) {
			char text[40];

			memset(text, 'a', sizeof(text));
			assert_true(utf8_valid(text, n));
			text[i] = (char)0xff;
			assert_false(utf8_valid(text, n));
			text[i] = (char)0xc3;
			assert_false(utf8_valid(text, n));
			if (i + 1 == n)
				continue;
			text[i + 1] = (char)0xa9;
			assert_true(utf8_valid(text, n));
		}
}

/* Bytes that are not UTF-8 become U+FFFD one by one; the rest stays. */
static void test_string(void **state) {
	json_object *value = json_string("a\xff\xc3\xa9\xe2\x82z");

	assert_string_equal(json_object_get_string(value),
			    "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz");
	json_object_put(value);
}

static void test_print(void **state) {
	json_object *value = varlink_json_pack("a", json_object_new_string("x/y"), "b", NULL, NULL);
	const char *text;
	size_t n_text;

	assert_int_equal(varlink_json_print(value, &text, &n_text), 0);
	assert_string_equal(text, "{\"a\":\"x/y\",\"b\":null}");
	assert_int_equal(n_text, strlen(text));
	json_object_put(value);
	value = json_object_new_string("\xff");
	assert_int_equal(varlink_json_print(value, &text, &n_text), -EILSEQ);
	json_object_put(value);
}

/* The bound counts values, and is not passed by one. */
static void test_bounded(void **state) {
	static const struct {
		const char *text;
		size_t n_values;
	} cases[] = {
		{ "1", 1 },
		{ "[1,2,3]", 4 },
		{ "{\"a\":1}", 2 },
		{ "[[1,2],3]", 5 },
		{ "{\"a\":[1,\"x,[{\"]}", 4 },
	};
	json_object *value;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *text = cases[i].text;
		size_t n = strlen(text), max = cases[i].n_values;

		assert_int_equal(varlink_json_parse_bounded(&value, text, n, max), 0);
		json_object_put(value);
		if (max > 1)
			assert_int_equal(varlink_json_parse_bounded(&value, text, n, max - 1),
					 VARLINK_JSON_E_INVALID);
	}
}

static void test_call_message(void **state) {
	static const char *const good[] = {
		"{\"method\":\"a.B\"}",
		"{\"method\":\"a.B\",\"parameters\":null}",
		"{\"method\":\"a.B\",\"parameters\":{}}",
		"{\"parameters\":{\"x\":1},\"method\":\"a.B\",\"more\":true,\"oneway\":false}",
	};
	static const char *const bad[] = {
		"{}",
		"[]",
		"1",
		"null",
		"{\"method\":1}",
		"{\"method\":null}",
		"{\"method\":\"a.B\",\"parameters\":[]}",
		"{\"method\":\"a.B\",\"parameters\":\"\"}",
		"{\"method\":\"a.B\",\"more\":1}",
		"{\"method\":\"a.B\",\"more\":null}",
		"{\"method\":\"a.B\",\"x\":1}",
		"{\"method\":\"a.B\",\"error\":\"a.B\"}",
		"{\"method\":\"a.B\",\"more\":true,\"oneway\":true}",
	};
	struct varlink_call_message message;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(varlink_call_message_parse(&message, good[i], strlen(good[i])), 0);
		assert_string_equal(message.method, "a.B");
		json_object_put(message.root);
	}
	assert_true(message.parameters && message.more && !message.oneway && !message.upgrade);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(varlink_call_message_parse(&message, bad[i], strlen(bad[i])),
				 VARLINK_MESSAGE_E_INVALID);
}

static void test_reply_message(void **state) {
	static const char *const good[] = {
		"{}",
		"{\"parameters\":null}",
		"{\"parameters\":{\"a\":1},\"continues\":true}",
		"{\"error\":\"a.B\",\"continues\":false}",
	};
	static const char *const bad[] = {
		"[]",
		"null",
		"{\"error\":null}",
		"{\"error\":\"B\"}",
		"{\"error\":\"a.\"}",
		"{\"error\":\"a.B\",\"continues\":true}",
		"{\"parameters\":1}",
		"{\"method\":\"a.B\"}",
		"{\"continues\":\"true\"}",
	};
	struct varlink_reply_message message;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(varlink_reply_message_parse(&message, good[i], strlen(good[i])),
				 0);
		json_object_put(message.root);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(varlink_reply_message_parse(&message, bad[i], strlen(bad[i])),
				 VARLINK_MESSAGE_E_INVALID);
}

/* As a tree prints, with what may be in a string; then empty. */
static void test_list(void **state) {
	struct varlink_json_list list = {};
	json_object *tree = json_object_new_array(), *array, *item;
	const char *text, *expected;
	size_t n_text, n_expected;

	for (int i = 0; i < 3000; i++) {
		item = varlink_json_pack("n", json_object_new_int(i), "text",
					 json_object_new_string("\"/\xc3\xa4\n"), NULL);
		json_object_array_add(tree, json_object_get(item));
		assert_int_equal(varlink_json_list_add(&list, item), 0);
	}
	assert_int_equal(varlink_json_list_add(&list, json_object_new_string("\xff")), -EILSEQ);
	assert_int_equal(varlink_json_list_add(&list, NULL), -ENOMEM);
	assert_int_equal(varlink_json_print(tree, &expected, &n_expected), 0);
	array = varlink_json_list_steal(&list);
	assert_int_equal(varlink_json_print(array, &text, &n_text), 0);
	assert_string_equal(text, expected);
	json_object_put(array);
	json_object_put(tree);
	array = varlink_json_list_steal(&list);
	assert_int_equal(varlink_json_print(array, &text, &n_text), 0);
	assert_string_equal(text, "[]");
	json_object_put(array);
	varlink_json_list_deinit(&list);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8),         cmocka_unit_test(test_accepted),
		cmocka_unit_test(test_refused),      cmocka_unit_test(test_cut),
		cmocka_unit_test(test_string),       cmocka_unit_test(test_print),
		cmocka_unit_test(test_call_message), cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_list),         cmocka_unit_test(test_reply_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
