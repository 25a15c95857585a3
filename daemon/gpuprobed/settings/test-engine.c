/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of engine.c: which rules of --engine are accepted, which engine processes get, and
 * what the shims read of the rules.
 */

#include "engine.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void add(struct engine_rules *rules, const char *text) {
	char error[ENGINE_ERROR_SIZE] = "";

	if (engine_rules_add(rules, text, error))
		fail_msg("%s: %s", text, error);
}

static void test_find(void **state) {
	struct process_facts facts = { .uid = 1000,
				       .comm = "python3",
				       .exe = "/usr/bin/python3.11",
				       .cgroup = "/gpu.slice/job" };
	struct engine_rules rules = { .fallback = ENGINE_DEFAULT };

	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_PTX);
	assert_false(engine_rules_any_sanitizer(&rules));
	add(&rules, "off:uid=7");
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_PTX);
	add(&rules, "off"); /* for who matches none, wherever it stands */
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_OFF);
	assert_false(engine_rules_any_sanitizer(&rules));
	add(&rules, "sanitizer:cgroup=/gpu.slice");
	add(&rules, "auto:comm=python3");
	assert_true(engine_rules_any_sanitizer(&rules));
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_SANITIZER); /* the first one */
	facts.cgroup[0] = '\0';
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_AUTO);
	strcpy(facts.comm, "x");
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_OFF);
	add(&rules, "ptx:exe=/usr/bin/python3.11");
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_PTX);
	facts.uid = 7;
	assert_int_equal(engine_rules_find(&rules, &facts), ENGINE_OFF);
}

static void test_page(void **state) {
	struct interest_rule page[INTEREST_SASS_RULES_MAX];
	struct engine_rules rules = { .fallback = ENGINE_DEFAULT };

	assert_int_equal(engine_rules_to_page(&rules, page), 1);
	assert_int_equal(page[0].flags, INTEREST_RULE_NOT);
	add(&rules, "ptx:uid=7");
	add(&rules, "sanitizer:exe=/bin/x");
	add(&rules, "off:cgroup=/a/");
	add(&rules, "auto");
	assert_int_equal(engine_rules_to_page(&rules, page), 4);
	assert_int_equal(page[0].flags, INTEREST_RULE_UID | INTEREST_RULE_NOT);
	assert_int_equal(page[0].uid, 7);
	assert_int_equal(page[1].flags, INTEREST_RULE_EXE);
	assert_true(page[1].exe == interest_hash("/bin/x"));
	assert_int_equal(page[2].flags, INTEREST_RULE_CGROUP | INTEREST_RULE_NOT);
	assert_true(page[2].cgroup == interest_hash("/a"));
	assert_int_equal(page[3].flags, INTEREST_RULE_NOT); /* auto makes twins */
}

static void test_refused(void **state) {
	static const char *const texts[] = { "",
					     "x",
					     "auto:",
					     "auto:x",
					     "AUTO",
					     "ptxx",
					     "offoffoff",
					     "offoffoff:uid=1",
					     "sanitizer:uid=",
					     "sanitizer:uid=-1",
					     "sanitizer:uid=1x",
					     "sanitizer:uid=4294967295",
					     "off:exe=",
					     "off:exe=a",
					     "off:exe=/a*",
					     "off:comm=",
					     "off:comm=0123456789abcdef",
					     "ptx:cgroup=/",
					     "ptx:cgroup=a",
					     "ptx:cgroup=" };
	char error[ENGINE_ERROR_SIZE], text[32];
	struct engine_rules rules = {};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		error[0] = '\0';
		if (!engine_rules_add(&rules, texts[i], error))
			fail_msg("%s is taken", texts[i]);
		assert_true(error[0] && !strchr(error, '\n'));
	}
	assert_int_equal(rules.n, 0);
	assert_false(rules.has_fallback);
	add(&rules, "auto");
	assert_int_equal(engine_rules_add(&rules, "off", error), ENGINE_E_INVALID); /* twice */
	for (unsigned int i = 0; i < ENGINE_RULES_MAX; i++) {
		snprintf(text, sizeof(text), "off:uid=%u", i);
		add(&rules, text);
	}
	assert_int_equal(engine_rules_add(&rules, "off:uid=99", error), ENGINE_E_INVALID);
	assert_string_equal(error, "at most 15 rules, beside one for everybody else");
}

static void test_names(void **state) {
	enum engine engine;

	for (int i = ENGINE_AUTO; i <= ENGINE_OFF; i++) {
		assert_true(engine_from_name(engine_name((enum engine)i), true, &engine));
		assert_int_equal(engine, i);
	}
	assert_true(engine_from_name("sass", false, &engine)); /* its former name */
	assert_int_equal(engine, ENGINE_SANITIZER);
	assert_false(engine_from_name("off", false, &engine)); /* no engine of an attachment */
	assert_false(engine_from_name("", true, &engine));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
