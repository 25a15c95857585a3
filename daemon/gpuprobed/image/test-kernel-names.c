/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of kernel-names.c: the next daemon knows what one remembered, and of a damaged file
 * the part that is whole.
 */

#include "kernel-names.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEADER 16 /* bytes; `used` is the second half */

static int count(const struct kept_name *name, void *userdata) {
	unsigned int *n = userdata;

	assert_true(*name->name && *name->demangled);
	(*n)++;
	return 0;
}

static unsigned int known(const struct kernel_names *names) {
	unsigned int n = 0;

	assert_int_equal(kernel_names_each(names, count, &n), 0);
	return n;
}

/* The next daemon's. */
static struct kernel_names *next(struct kernel_names *names) {
	const int fd = fcntl(kernel_names_fd(names), F_DUPFD_CLOEXEC, 3);

	kernel_names_free(names);
	assert_int_equal(kernel_names_new(&names, fd), 0);
	return names;
}

static int is_first(const struct kept_name *name, void *userdata) {
	assert_int_equal(name->uid, 1000);
	assert_string_equal(name->name, "_Z3fooPf");
	assert_string_equal(name->demangled, "foo(float*)");
	assert_true(name->device_function);
	return 7;
}

static void test_next_daemon(void **state) {
	struct kernel_names *names;

	assert_int_equal(kernel_names_new(&names, -1), 0);
	assert_false(kernel_names_inherited(names));
	for (int round = 0; round < 3; round++) {
		kernel_names_add(names, 1000, "_Z3fooPf", "foo(float*)", true);
		kernel_names_add(names, 1001, "_Z3fooPf", "foo(float*)", true);
		kernel_names_add(names, 1000, "bar", "bar", false);
		assert_int_equal(known(names), 3);
		names = next(names);
		assert_true(kernel_names_inherited(names));
		assert_int_equal(known(names), 3);
	}
	assert_int_equal(kernel_names_each(names, is_first, NULL), 7);
	kernel_names_free(names);
	kernel_names_add(NULL, 0, "bar", "bar", false);
	assert_int_equal(known(NULL), 0);
}

/* One user does not take the place of others; long names, and too many, are left out. */
static void test_limits(void **state) {
	char name[5000] = "", *demangled = name;
	struct kernel_names *names;
	unsigned int n;

	assert_int_equal(kernel_names_new(&names, -1), 0);
	memset(name, 'x', sizeof(name) - 1);
	kernel_names_add(names, 1, name, demangled, false);
	assert_int_equal(known(names), 0);
	for (unsigned int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "kernel_with_a_name_of_some_length_%u", i);
		kernel_names_add(names, 1, name, demangled, false);
	}
	n = known(names);
	assert_in_range(n, 1000, 19999);
	kernel_names_add(names, 2, "of somebody else", "of somebody else", false);
	kernel_names_add(names, 1, "one more", "one more", false);
	assert_int_equal(known(names), n + 1);
	names = next(names);
	kernel_names_add(names, 1, "one more", "one more", false);
	kernel_names_add(names, 2, "another of somebody else", "another", false);
	assert_int_equal(known(names), n + 2);
	for (unsigned int uid = 3; uid < 9; uid++)
		for (unsigned int i = 0; i < 20000; i++) {
			snprintf(name, sizeof(name), "kernel_with_a_name_of_some_length_%u", i);
			kernel_names_add(names, uid, name, demangled, false);
		}
	n = known(names);
	names = next(names);
	assert_int_equal(known(names), n);
	kernel_names_free(names);
}

static void test_damaged(void **state) {
	const uint64_t used[] = { 0,
				  8,
				  HEADER,
				  HEADER + 1,
				  HEADER + 12,
				  HEADER + 100,
				  HEADER + 101,
				  KERNEL_NAMES_SIZE,
				  KERNEL_NAMES_SIZE + 1,
				  UINT64_MAX };
	struct kernel_names *names;
	const char garbage[64] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
		assert_int_equal(kernel_names_new(&names, -1), 0);
		for (int k = 0; k < 10; k++)
			kernel_names_add(names, (uid_t)k, "kernel", "kernel()", false);
		assert_int_equal(pwrite(kernel_names_fd(names), &used[i], sizeof(used[i]), 8),
				 sizeof(used[i]));
		if (i & 1)
			assert_int_equal(pwrite(kernel_names_fd(names), garbage, sizeof(garbage),
						HEADER + 60),
					 sizeof(garbage));
		names = next(names);
		assert_true(known(names) <= 10);
		kernel_names_add(names, 77, "later", "later", false);
		assert_true(known(names) >= 1);
		kernel_names_free(names);
	}
	/* none of ours: another is begun */
	assert_int_equal(kernel_names_new(&names, open("/dev/null", O_RDWR | O_CLOEXEC)), 0);
	assert_false(kernel_names_inherited(names));
	kernel_names_free(names);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_next_daemon),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
