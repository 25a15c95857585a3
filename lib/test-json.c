/* SPDX-License-Identifier: Apache-2.0 */

/* The one JSON of the tree: writers that remember lack of memory, readers with types. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "json.h"

/* json-c without memory: these calls fail when `calls_left` has come to 0. */
static int calls_left = -1;

int __real_json_object_object_add(json_object *object, const char *key, json_object *value);
int __real_json_object_array_add(json_object *array, json_object *value);
json_object *__real_json_object_new_string_len(const char *text, int n);
int __wrap_json_object_object_add(json_object *object, const char *key, json_object *value);
int __wrap_json_object_array_add(json_object *array, json_object *value);
json_object *__wrap_json_object_new_string_len(const char *text, int n);

static bool fails(void) {
	return calls_left >= 0 && calls_left-- == 0;
}

int __wrap_json_object_object_add(json_object *object, const char *key, json_object *value) {
	return fails() ? -1 : __real_json_object_object_add(object, key, value);
}

int __wrap_json_object_array_add(json_object *array, json_object *value) {
	return fails() ? -1 : __real_json_object_array_add(array, value);
}

json_object *__wrap_json_object_new_string_len(const char *text, int n) {
	return fails() ? NULL : __real_json_object_new_string_len(text, n);
}

/* One of everything. */
static json_object *build(void) {
	json_object *object = json_object_new_object(), *inner, *list, *item;

	json_add_int(object, "int", INT64_MIN);
	json_add_bool(object, "bool", true);
	json_add_text(object, "text", "a\xff\xc3\xa9\xe2\x82z");
	inner = json_add_object(object, "inner");
	list = json_add_array(inner, "list");
	json_append_int(list, 7);
	json_append_string(list, "x");
	item = json_append_object(list);
	json_add(item, "deep", json_object_new_array());
	json_append(list, json_object_new_boolean(false));
	return object;
}

#define BUILT                                                                                      \
	"{\"int\":-9223372036854775808,\"bool\":true,\"text\":\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd" \
	"\xef\xbf\xbdz\",\"inner\":{\"list\":[7,\"x\",{\"deep\":[]},false]}}"

static const char *print(json_object *value) {
	return json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
}

static void test_write(void **state) {
	json_object *object = build();

	assert_false(json_incomplete(object));
	assert_string_equal(print(object), BUILT);
	json_object_put(object);

	object = json_object_new_object();
	json_add_string(object, "text", "a\xff"); /* its bytes stay: varlink refuses them */
	assert_string_equal(json_string_of(object, "text"), "a\xff");
	json_object_put(object);
}

/* Whichever call fails: no text is made of what is left, at whatever depth it lacks something. */
static void test_no_memory(void **state) {
	bool all = false;

	for (int i = 0; !all; i++) {
		json_object *object, *list = json_object_new_array();

		calls_left = i;
		object = build();
		all = calls_left >= 0;
		calls_left = -1;
		if (all) {
			assert_true(i >= 11); /* each call has failed once */
			assert_string_equal(print(object), BUILT);
		} else {
			assert_null(print(object));
		}
		json_append(list, object);
		assert_true(!print(list) == !all);
		json_object_put(list);
	}
}

static void test_incomplete(void **state) {
	json_object *object = json_object_new_object(), *outer = json_object_new_object();

	json_add(object, "a", NULL);
	assert_true(json_incomplete(object));
	assert_null(print(object));
	assert_null(json_add_array(object, "b"));
	json_add(outer, "object", object);
	assert_true(json_incomplete(outer));
	json_clear(outer);
	assert_false(json_incomplete(outer));
	json_add_int(outer, "n", 1);
	json_add_int(outer, "m", 2);
	assert_string_equal(print(outer), "{\"n\":1,\"m\":2}");
	json_object_put(outer);

	/* what is no object any more is let alone */
	assert_true(json_incomplete(NULL));
	json_add_int(NULL, "a", 1);
	json_append_string(NULL, "a");
	assert_null(json_add_object(NULL, "a"));
	assert_null(json_append_object(NULL));
}

static void test_read(void **state) {
	static const char text[] =
		"{\"n\":5,\"big\":18446744073709551615,\"t\":\"x\","
		"\"nul\":\"a\\u0000b\",\"yes\":true,\"none\":null,\"list\":[1,\"y\",-2],"
		"\"o\":{},\"real\":5.0,\"digits\":\"5\"}";
	json_object *object = json_parse(text, strlen(text), 4), *member = NULL;
	const char *string = "before";
	bool flag = false;
	uint32_t u32 = 77;
	int64_t n = 77;

	assert_non_null(object);
	/* absent, null, other types */
	for (const char *const *key = (const char *const[]){ "absent", "none", "t", "yes", "list",
							     "o", "real", "digits", NULL };
	     *key; key++) {
		assert_false(json_get_int(object, *key, INT64_MIN, INT64_MAX, &n));
		assert_false(json_get_u32(object, *key, 0, UINT32_MAX, &u32));
		assert_int_equal(json_int_of(object, *key), 0);
	}
	assert_int_equal(n, 77);
	assert_int_equal(u32, 77);
	assert_false(json_get_bool(object, "n", &flag));
	assert_false(json_get_bool(object, "absent", &flag));
	assert_false(json_get_string(object, "n", &string));
	assert_false(json_get_string(object, "nul", &string));
	assert_false(json_get_array(object, "o", 9, &member));
	assert_false(json_get_object(object, "list", &member));
	assert_string_equal(string, "before");
	assert_false(flag);
	assert_null(member);
	assert_null(json_string_of(object, "n"));
	assert_null(json_string_of(object, "nul"));
	assert_false(json_bool_of(object, "n"));
	assert_null(json_get(object, "n", json_type_string));
	assert_null(json_get(NULL, "n", json_type_int));
	assert_null(json_get(json_get(object, "n", json_type_int), "n", json_type_int));

	/* ranges */
	assert_false(json_get_int(object, "n", 6, 9, &n));
	assert_false(json_get_int(object, "n", 0, 4, &n));
	assert_false(json_get_u32(object, "n", 6, 9, &u32));
	assert_true(json_get_int(object, "n", 5, 5, &n));
	assert_int_equal(n, 5);
	assert_true(json_get_u32(object, "n", 0, 5, &u32));
	assert_int_equal(u32, 5);
	assert_false(json_get_int(object, "big", 0, INT64_MAX - 1, &n));
	assert_false(json_get_array(object, "list", 2, &member));

	assert_true(json_get_string(object, "t", &string));
	assert_string_equal(string, "x");
	assert_true(json_get_bool(object, "yes", &flag));
	assert_true(flag);
	assert_true(json_bool_of(object, "yes"));
	assert_true(json_get_object(object, "o", &member));
	assert_true(json_get_array(object, "list", 3, &member));
	assert_int_equal(json_length_of(member), 3);
	assert_int_equal(json_length_of(object), 0);
	assert_int_equal(json_length_of(NULL), 0);
	assert_true(json_int_at(member, 2, -2, 0, &n));
	assert_int_equal(n, -2);
	assert_false(json_int_at(member, 0, 2, 3, &n));
	assert_false(json_int_at(member, 1, INT64_MIN, INT64_MAX, &n));
	assert_false(json_int_at(member, 3, INT64_MIN, INT64_MAX, &n));
	assert_string_equal(json_string_at(member, 1), "y");
	assert_null(json_string_at(member, 0));
	assert_null(json_string_at(member, 3));
	assert_true(json_has(object, "none"));
	assert_false(json_has(object, "absent"));
	json_object_put(object);
}

struct thing {
	uint32_t small;
	uint64_t large, any;
	bool flag;
	char text[4];
};

static void test_fields(void **state) {
	static const struct json_field fields[] = {
		JSON_INT(struct thing, small, 9),      JSON_INT(struct thing, large, INT64_MAX),
		JSON_INT(struct thing, any, JSON_ANY), JSON_BOOL(struct thing, flag),
		JSON_TEXT(struct thing, text),
	};
	static const struct {
		const char *text, *wrong;
	} cases[] = {
		{ "{\"small\":9,\"large\":9223372036854775807,\"any\":-1,\"flag\":true,\"text\":"
		  "\"abc\"}",
		  NULL },
		{ "{\"small\":10,\"large\":0,\"any\":0,\"flag\":true,\"text\":\"\"}", "small" },
		{ "{\"small\":-1,\"large\":0,\"any\":0,\"flag\":true,\"text\":\"\"}", "small" },
		{ "{\"small\":0,\"large\":-1,\"any\":0,\"flag\":true,\"text\":\"\"}", "large" },
		{ "{\"small\":0,\"large\":0,\"flag\":true,\"text\":\"\"}", "any" },
		{ "{\"small\":0,\"large\":0,\"any\":0,\"flag\":1,\"text\":\"\"}", "flag" },
		{ "{\"small\":0,\"large\":0,\"any\":0,\"flag\":false,\"text\":\"abcd\"}", "text" },
		{ "{\"small\":0,\"large\":0,\"any\":0,\"flag\":false,\"text\":\"a\\u0000\"}",
		  "text" },
		{ "{\"small\":0,\"large\":0,\"any\":0,\"flag\":false,\"text\":7}", "text" },
	};
	const size_t n = sizeof(fields) / sizeof(*fields);
	struct thing thing = {};
	json_object *object;
	const struct json_field *wrong;

	assert_ptr_equal(json_get_fields(NULL, fields, n, &thing), fields);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		object = json_parse(cases[i].text, strlen(cases[i].text), 3);
		assert_non_null(object);
		wrong = json_get_fields(object, fields, n, &thing);
		assert_string_equal(wrong ? wrong->key : "", cases[i].wrong ?: "");
		json_object_put(object);
		if (i)
			continue;
		assert_int_equal(thing.small, 9);
		assert_true(thing.large == INT64_MAX && thing.any == UINT64_MAX && thing.flag);
		object = json_object_new_object();
		json_add_fields(object, fields, n, &thing);
		assert_string_equal(print(object), cases[0].text);
		json_object_put(object);
	}
}

static void test_parse(void **state) {
	static const struct {
		const char *text;
		bool good;
	} cases[] = {
		{ "{}", true },
		{ " {\"a\": [1]} \n", true },
		{ "", false },
		{ "[]", false },
		{ "1", false },
		{ "null", false },
		{ "{", false },
		{ "{} {}", false },
		{ "{}x", false },
		{ "{\"a\":\"\xff\"}", false },
		{ "{\"a\":[[[]]]}", false }, /* deeper than was asked for */
	};
	json_object *object;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		object = json_parse(cases[i].text, strlen(cases[i].text), 3);
		if (!object != !cases[i].good)
			fail_msg("%s", cases[i].text);
		json_object_put(object);
	}
	assert_null(json_parse("{}\0{}", 5, 3));
	assert_null(json_parse("{}\0", 3, 3));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),      cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_incomplete), cmocka_unit_test(test_read),
		cmocka_unit_test(test_fields),     cmocka_unit_test(test_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
