/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of patch-kernel.c: the table of kernels that were not launched yet. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "patch-kernel.h"

#define KERNELS 5000
#define LIBRARY ((driver_handle)(uintptr_t)1)
#define OTHER ((driver_handle)(uintptr_t)2)

static driver_handle kernel_of(uintptr_t number) {
	return (driver_handle)(0x7f0000000000 + 64 * number);
}

/* Each is taken once, and none that was not given. */
static void test_once(void **state) {
	for (int round = 0; round < 3; round++) {
		for (uintptr_t i = 0; i < KERNELS; i++)
			patch_kernel_got(LIBRARY, kernel_of(i));
		patch_kernel_got(LIBRARY, kernel_of(0));
		assert_false(patch_kernel_take(NULL));
		assert_false(patch_kernel_take(kernel_of(KERNELS)));
		for (uintptr_t i = 0; i < KERNELS; i++) {
			assert_true(patch_kernel_take(kernel_of(i)));
			assert_false(patch_kernel_take(kernel_of(i)));
		}
	}
}

/* Of a library that is gone there are none, and a handle is of the library that had it last. */
static void test_library(void **state) {
	for (uintptr_t i = 0; i < KERNELS; i++)
		patch_kernel_got(i % 2 ? LIBRARY : OTHER, kernel_of(i));
	patch_kernel_got(OTHER, kernel_of(1));
	patch_kernel_forget(LIBRARY);
	for (uintptr_t i = 0; i < KERNELS; i++)
		assert_int_equal(patch_kernel_take(kernel_of(i)), i % 2 == 0 || i == 1);
	patch_kernel_forget(OTHER);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
