/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of host-target.c: what sections lack, what callers say, and whose folder a path is
 * relative to.
 */

#include "host-target.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void test_resolved(void **state) {
	static const struct {
		const char *section, *target, *folder, *result;
	} cases[] = {
		/* as the section says: libbpf's business */
		{ "uprobe//bin/app:main", NULL, "/home/u", NULL },
		{ "uprobe/libc.so.6:malloc", NULL, "/home/u", NULL },
		{ "uretprobe/libc.so.6:malloc", NULL, NULL, NULL },
		{ "tracepoint/sched/sched_switch", NULL, "/home/u", NULL },
		{ "kprobe/do_unlinkat", NULL, "/home/u", NULL },
		{ "fentry/do_unlinkat", NULL, NULL, NULL },
		{ "socket", NULL, "/home/u", NULL },
		{ "", NULL, "/home/u", NULL },
		/* in the caller's folder */
		{ "uprobe/./vdrv:main", NULL, "/home/u", "/home/u/./vdrv:main" },
		{ "uprobe/bin/vdrv:main", NULL, "/home/u", "/home/u/bin/vdrv:main" },
		{ "uretprobe.s/../vdrv:main+4", NULL, "/home/u", "/home/u/../vdrv:main+4" },
		{ "usdt/./app:group:name", NULL, "/home/u", "/home/u/./app:group:name" },
		{ "uprobe/app:weird/name", NULL, "/home/u",
		  NULL }, /* the slash is in the function */
		/* as the caller says */
		{ "uprobe", "/bin/app:main", "/home/u", "/bin/app:main" },
		{ "uprobe", "./app:main", "/home/u", "/home/u/./app:main" },
		{ "uprobe", "libc.so.6:malloc", NULL, "libc.so.6:malloc" },
		{ "uprobe/", "/bin/app:main", NULL, "/bin/app:main" },
		{ "uretprobe/other:f", "/bin/app:main", NULL, "/bin/app:main" },
		{ "usdt", "/bin/app:group:name", NULL, "/bin/app:group:name" },
		{ "kprobe", "do_unlinkat", NULL, "do_unlinkat" },
		{ "tp", "sched:sched_switch", NULL, "sched:sched_switch" },
		{ "raw_tp", "sched_switch", NULL, "sched_switch" },
		{ "fentry", "do_unlinkat", NULL, "do_unlinkat" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char error[HOST_TARGET_ERROR_SIZE] = "", *target = NULL;

		assert_int_equal(host_target_resolve("p", cases[i].section, cases[i].target,
						     cases[i].folder, &target, error),
				 0);
		if (cases[i].result)
			assert_string_equal(target, cases[i].result);
		else
			assert_null(target);
		free(target);
	}
}

static void test_refused(void **state) {
	static const struct {
		const char *section, *target, *folder, *words;
	} cases[] = {
		{ "uprobe", NULL, "/",
		  "program p: its section \"uprobe\" lacks /FILE:FUNCTION: say where with "
		  "--host-target=p=FILE:FUNCTION" },
		{ "uprobe/", NULL, "/", "lacks /FILE:FUNCTION" },
		{ "uretprobe.s", NULL, "/", "lacks /FILE:FUNCTION" },
		{ "usdt", NULL, "/", "--host-target=p=FILE:PROVIDER:NAME" },
		{ "tracepoint", NULL, "/", "--host-target=p=GROUP:NAME" },
		{ "fentry", NULL, "/", "--host-target=p=FUNCTION" },
		{ "uprobe", "main", "/", "main: expected FILE:FUNCTION" },
		{ "uprobe", ":main", "/", "expected FILE:FUNCTION" },
		{ "uprobe", "./app:", "/", "expected FILE:FUNCTION" },
		{ "usdt", "./app:name", "/", "expected FILE:PROVIDER:NAME" },
		{ "usdt", "./app::name", "/", "expected FILE:PROVIDER:NAME" },
		{ "kprobe", "a:b", "/", "expected FUNCTION" },
		{ "socket", "a:b", "/", "a section \"socket\" takes no target" },
		{ "uprobe/./vdrv:main", NULL, NULL,
		  "the path is relative, and the caller did not say its folder" },
		{ "uprobe", "./vdrv:main", "here", "the path is relative" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char error[HOST_TARGET_ERROR_SIZE] = "", *target = NULL;

		assert_int_equal(host_target_resolve("p", cases[i].section, cases[i].target,
						     cases[i].folder, &target, error),
				 1);
		assert_null(target);
		if (!strstr(error, cases[i].words))
			fail_msg("%s: not \"%s\"", error, cases[i].words);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resolved),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
