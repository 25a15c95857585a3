/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of exclude.c: which processes are excluded, and that the interest page excludes no
 * other.
 */

#include "exclude.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static void exclude(struct config *config, const char *text) {
	char error[CONFIG_ERROR_SIZE];

	config->source = 1;
	assert_int_equal(config_set(config, config_setting("exclude"), text, error), 0);
}

static void test_find(void **state) {
	struct config config = {};
	struct process_facts facts = { .pid = 1,
				       .uid = 1000,
				       .comm = "python3",
				       .exe = "/opt/v1/bin/python3",
				       .cgroup = "/a/b" };

	assert_null(exclude_find(&config, &facts));
	exclude(&config, "comm=python");
	exclude(&config, "uid=1001");
	exclude(&config, "cgroup=/a/bc");
	exclude(&config, "cgroup=/sys/fs/cgroup/a/c");
	exclude(&config, "cgroup=/sys/fs/cgroupa/b");
	exclude(&config, "exe=/opt/*/bin/perl");
	assert_null(exclude_find(&config, &facts));
	exclude(&config, "exe=/opt/*/bin/python3");
	exclude(&config, "cgroup=/a");
	assert_string_equal(exclude_find(&config, &facts),
			    "exe=/opt/*/bin/python3"); /* the first that means it */
	facts.exe[0] = '\0';
	assert_string_equal(exclude_find(&config, &facts), "cgroup=/a");
	exclude(&config, "");
	assert_null(exclude_find(&config, &facts));
	exclude(&config, "cgroup=/sys/fs/cgroup/a"); /* as a shell sees it */
	assert_non_null(exclude_find(&config, &facts));
	exclude(&config, "");
}

/* A rule of the page means no process that the setting does not mean. */
static void test_page(void **state) {
	struct interest_rule rules[INTEREST_EXCLUDE_RULES_MAX + 1] = {};
	struct config config = {};

	assert_int_equal(exclude_to_page(&config, rules), 0);
	exclude(&config, "exe=/opt/*");
	exclude(&config, "exe=/opt/a");
	assert_int_equal(exclude_to_page(&config, rules), 1);
	assert_int_equal(rules[0].flags, INTEREST_RULE_EXE);
	assert_true(rules[0].exe == interest_hash("/opt/a"));
	for (int i = 0; i < INTEREST_EXCLUDE_RULES_MAX; i++)
		exclude(&config, i % 2 ? "uid=7" : "comm=x");
	assert_int_equal(exclude_to_page(&config, rules), INTEREST_EXCLUDE_RULES_MAX);
	assert_int_equal(rules[INTEREST_EXCLUDE_RULES_MAX].flags,
			 0); /* the rest is for the daemon */
	for (int i = 0; i < INTEREST_EXCLUDE_RULES_MAX; i++)
		assert_int_not_equal(rules[i].flags, 0);
	exclude(&config, "");
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
