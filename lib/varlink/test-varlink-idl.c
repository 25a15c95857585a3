/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of varlink-idl.c and varlink-validate.c: the parser of interfaces, and the validation
 * of values.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "varlink-idl.h"
#include "varlink-interfaces.h"
#include "varlink-json.h"

static const char example[] =
	"# comment\n"
	"interface org.example.a-b.c1 # more\n"
	"type Color (red, green)\n"
	"type Node (value: int, next: ?Node, colors: []Color)\n"
	"method Do(b: bool, i: int, f: float, s: string, o: object, a: []?int, m: [string]string, "
	"set: [string](),\n"
	"          n: ?Node, in_line: ?(x: int, y: (one, two))) -> (nodes: [][string]Node)\n"
	"# comment\n"
	"\n"
	"method Empty()->()\n"
	"error Bad(reason: string)\n"
	"error Plain ()";

static void test_parse(void **state) {
	struct varlink_interface *interface;
	const struct varlink_member *member;
	struct varlink_fault fault;

	assert_int_equal(varlink_interface_new(&interface, example, &fault), 0);
	assert_string_equal(varlink_interface_name(interface), "org.example.a-b.c1");
	assert_string_equal(varlink_interface_text(interface), example);
	member = varlink_interface_find(interface, VARLINK_MEMBER_TYPE, "Node");
	assert_string_equal(member->type->fields->next->name, "next");
	assert_true(member->type->fields->next->type->nullable);
	assert_ptr_equal(member->type->fields->next->type->resolved, member->type);
	member = varlink_interface_find(interface, VARLINK_MEMBER_METHOD, "Do");
	assert_int_equal(member->reply->fields->type->kind, VARLINK_ARRAY);
	assert_int_equal(member->reply->fields->type->element->kind, VARLINK_MAP);
	assert_null(varlink_interface_find(interface, VARLINK_MEMBER_ERROR, "Do"));
	assert_non_null(varlink_interface_find(interface, VARLINK_MEMBER_ERROR, "Plain"));
	varlink_interface_free(interface);
}

static void test_own_interfaces(void **state) {
	struct varlink_interface *interface;
	struct varlink_fault fault;

	assert_int_equal(varlink_interface_new(&interface, varlink_org_varlink_service, &fault), 0);
	assert_string_equal(varlink_interface_name(interface), "org.varlink.service");
	varlink_interface_free(interface);
	assert_int_equal(varlink_interface_new(&interface, varlink_io_gpuprobe_control, &fault), 0);
	assert_string_equal(varlink_interface_name(interface), "io.gpuprobe.control");
	varlink_interface_free(interface);
}

static void test_refused(void **state) {
	static const struct {
		const char *text;
		unsigned int line;
	} cases[] = {
		{ "", 1 },
		{ "interface", 1 },
		{ "interface a", 1 },
		{ "interface a.b", 1 },
		{ "interface .a.b\ntype A (a: int)", 1 },
		{ "interface a..b\ntype A (a: int)", 1 },
		{ "interface a.b-\ntype A (a: int)", 1 },
		{ "interface a.-b\ntype A (a: int)", 1 },
		{ "interface 1a.b\ntype A (a: int)", 1 },
		{ "interface a.b\ntype A ()", 2 },
		{ "interface a.b\ntype a (a: int)", 2 },
		{ "interface a.b\ntype A (a: int,)", 2 },
		{ "interface a.b\ntype A (a: int b: int)", 2 },
		{ "interface a.b\ntype A (a: int, b)", 2 },
		{ "interface a.b\ntype A (a, b: int)", 2 },
		{ "interface a.b\ntype A (a: int, a: int)", 2 },
		{ "interface a.b\ntype A (a: ??int)", 2 },
		{ "interface a.b\ntype A (a: integer)", 2 },
		{ "interface a.b\ntype A (a: [int]string)", 2 },
		{ "interface a.b\ntype A (a: B)", 2 },
		{ "interface a.b\ntype A (_a: int)", 2 },
		{ "interface a.b\ntype A (a_: int)", 2 },
		{ "interface a.b\ntype A (a__b: int)", 2 },
		{ "interface a.b\ntype A (a: int)\nerror A ()", 3 },
		{ "interface a.b\nmethod A() ->", 2 },
		{ "interface a.b\nmethod A()", 2 },
		{ "interface a.b\nmethod A(a) -> ()", 2 },
		{ "interface a.b\nerror A (a)", 2 },
		{ "interface a.b\nstruct A (a: int)", 2 },
		{ "interface a.b\ntype A (a: int", 2 },
		{ "interface a.b\ntype A int", 2 },
		{ "interface a.b\ntype A (a: int)\n\xff", 1 },
		{ "interface a.b\ntype A (a: "
		  "[][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][]int)",
		  2 },
	};
	struct varlink_interface *interface;
	struct varlink_fault fault;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (varlink_interface_new(&interface, cases[i].text, &fault) !=
		    VARLINK_IDL_E_SYNTAX)
			fail_msg("accepted: %s", cases[i].text);
		assert_non_null(fault.reason);
		assert_in_range(fault.line, cases[i].line, cases[i].line + 1);
	}
}

/* Each prefix of a description is refused, or whole up to a member; none crashes. */
static void test_cut(void **state) {
	struct varlink_interface *interface;
	struct varlink_fault fault;
	char text[sizeof(example)];
	size_t accepted = 0;

	for (size_t n = 0; n < sizeof(example); n++) {
		memcpy(text, example, n);
		text[n] = '\0';
		if (!varlink_interface_new(&interface, text, &fault)) {
			accepted++;
			varlink_interface_free(interface);
		}
	}
	assert_true(accepted > 0 && accepted < sizeof(example) / 4);
}

static void check(const struct varlink_type *type, const char *text, int expected,
		  const char *field) {
	struct varlink_fault fault;
	json_object *value;
	int r;

	assert_int_equal(varlink_json_parse(&value, text, strlen(text)), 0);
	r = varlink_type_validate(type, value, &fault);
	if (r != expected || strcmp(fault.field, field))
		fail_msg("%s: %d at '%s', expected %d at '%s'", text, r, fault.field, expected,
			 field);
	json_object_put(value);
}

#define GOOD                                                                                     \
	"\"b\":true,\"i\":1,\"f\":1.5,\"s\":\"\",\"o\":{\"x\":[1]},\"a\":[1,null],\"m\":{\"k\":" \
	"\"v\"},\"set\":{\"x\":{}}"

static void test_validate(void **state) {
	struct varlink_interface *interface;
	const struct varlink_type *type;
	struct varlink_fault fault;

	assert_int_equal(varlink_interface_new(&interface, example, &fault), 0);
	type = varlink_interface_find(interface, VARLINK_MEMBER_METHOD, "Do")->type;
	check(type, "{" GOOD "}", 0, "");
	check(type, "{" GOOD ",\"n\":null,\"in_line\":null}", 0, "");
	check(type,
	      "{" GOOD
	      ",\"n\":{\"value\":1,\"next\":{\"value\":2,\"colors\":[\"red\"]},\"colors\":[]}}",
	      0, "");
	check(type, "{" GOOD ",\"x\":1}", VARLINK_IDL_E_UNKNOWN, "x");
	check(type,
	      "{" GOOD
	      ",\"n\":{\"value\":1,\"next\":{\"value\":2,\"colors\":[\"blue\"]},\"colors\":[]}}",
	      VARLINK_IDL_E_TYPE, "n.next.colors[0]");
	check(type, "{" GOOD ",\"n\":{\"colors\":[]}}", VARLINK_IDL_E_MISSING, "n.value");
	check(type, "{" GOOD ",\"in_line\":{\"x\":1,\"y\":1}}", VARLINK_IDL_E_TYPE, "in_line.y");
	check(type, "{" GOOD ",\"in_line\":{\"x\":1,\"y\":\"two\",\"z\":0}}", VARLINK_IDL_E_UNKNOWN,
	      "in_line.z");
	check(type, "{}", VARLINK_IDL_E_MISSING, "b");
	check(type, "{\"b\":null}", VARLINK_IDL_E_MISSING, "b");
	check(type, "{\"b\":0}", VARLINK_IDL_E_TYPE, "b");
	check(type, "{\"i\":1.0}", VARLINK_IDL_E_TYPE, "i");
	check(type, "{\"i\":\"1\"}", VARLINK_IDL_E_TYPE, "i");
	check(type, "{\"i\":true}", VARLINK_IDL_E_TYPE, "i");
	check(type, "{\"i\":9223372036854775808}", VARLINK_IDL_E_TYPE, "i");
	check(type, "{\"i\":99999999999999999999999}", VARLINK_IDL_E_TYPE, "i");
	check(type, "{\"i\":-9223372036854775808,\"s\":1}", VARLINK_IDL_E_TYPE, "s");
	check(type, "{\"i\":9223372036854775807,\"s\":1}", VARLINK_IDL_E_TYPE, "s");
	check(type, "{\"f\":1,\"s\":1}", VARLINK_IDL_E_TYPE, "s");
	check(type, "{\"f\":\"1\"}", VARLINK_IDL_E_TYPE, "f");
	check(type, "{\"o\":[]}", VARLINK_IDL_E_TYPE, "o");
	check(type, "{\"a\":{}}", VARLINK_IDL_E_TYPE, "a");
	check(type, "{\"a\":[1,2,\"3\"]}", VARLINK_IDL_E_TYPE, "a[2]");
	check(type, "{\"m\":[]}", VARLINK_IDL_E_TYPE, "m");
	check(type, "{\"m\":{\"a\":\"\",\"key\":1}}", VARLINK_IDL_E_TYPE, "m.key");
	check(type, "{\"set\":{\"x\":{\"y\":1}}}", VARLINK_IDL_E_UNKNOWN, "set.x.y");
	check(type, "[]", VARLINK_IDL_E_TYPE, "");
	check(type, "null", VARLINK_IDL_E_MISSING, "");
	type = varlink_interface_find(interface, VARLINK_MEMBER_METHOD, "Empty")->type;
	check(type, "{}", 0, "");
	check(type, "{\"x\":null}", VARLINK_IDL_E_UNKNOWN, "x");
	varlink_interface_free(interface);
}

/* A later version of a service may say more, but not something else. */
static void test_open(void **state) {
	struct varlink_interface *interface;
	const struct varlink_type *type;
	struct varlink_fault fault;
	json_object *value;

	assert_int_equal(varlink_interface_new(
				 &interface, "interface a.b\nmethod M(x: (y: int)) -> ()", &fault),
			 0);
	type = varlink_interface_find(interface, VARLINK_MEMBER_METHOD, "M")->type;
	value = json_tokener_parse("{\"new\":1,\"x\":{\"new\":2,\"y\":3}}");
	assert_int_equal(varlink_type_validate(type, value, &fault), VARLINK_IDL_E_UNKNOWN);
	assert_int_equal(varlink_type_validate_open(type, value, &fault), 0);
	json_object_put(value);
	value = json_tokener_parse("{\"new\":1,\"x\":{\"new\":2}}");
	assert_int_equal(varlink_type_validate_open(type, value, &fault), VARLINK_IDL_E_MISSING);
	assert_string_equal(fault.field, "x.y");
	json_object_put(value);
	varlink_interface_free(interface);
}

/* A path that is longer than its buffer is cut. */
static void test_long_path(void **state) {
	struct varlink_interface *interface;
	struct varlink_fault fault;
	char text[1024];

	assert_int_equal(varlink_interface_new(&interface,
					       "interface a.b\ntype T (a: T)\nmethod M(x: T) -> ()",
					       &fault),
			 0);
	snprintf(text, sizeof(text), "{\"x\":{\"%0500d\":1}}", 0);
	for (int i = 0; i < 2; i++) {
		json_object *value;

		assert_int_equal(varlink_json_parse(&value, text, strlen(text)), 0);
		assert_int_equal(
			varlink_type_validate(
				varlink_interface_find(interface, VARLINK_MEMBER_METHOD, "M")->type,
				value, &fault),
			VARLINK_IDL_E_UNKNOWN);
		assert_int_equal(strlen(fault.field), sizeof(fault.field) - 1);
		json_object_put(value);
	}
	varlink_interface_free(interface);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),    cmocka_unit_test(test_own_interfaces),
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_cut),
		cmocka_unit_test(test_validate), cmocka_unit_test(test_long_path),
		cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
