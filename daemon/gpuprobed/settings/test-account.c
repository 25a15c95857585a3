/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of account.c: the quotas of users, for modules and for the time of workers. */

#include "account.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void test_limits(void **state) {
	struct account_limits limits = { .connections = 2, .images = 2, .image_bytes = 100 };
	struct account_table table = { .limits = &limits };
	struct account *account, *same, *other;

	assert_int_equal(account_get(&table, 7, &account), 0);
	assert_int_equal(account_get(&table, 7, &same), 0);
	assert_ptr_equal(account, same);
	assert_int_equal(account_get(&table, 8, &other), 0);
	assert_int_equal(account_charge_connection(account), 0);
	assert_int_equal(account_charge_connection(account), 0);
	assert_int_equal(account_charge_connection(account), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge_connection(other), 0);
	limits.connections = 3; /* as a reload does */
	assert_int_equal(account_charge_connection(account), 0);

	assert_int_equal(account_charge_image(account, 1000), 0); /* alone */
	assert_int_equal(account_charge_image(account, 1), ACCOUNT_E_QUOTA);
	account_discharge_image(account, 1000);
	assert_int_equal(account_charge_image(account, 60), 0);
	assert_int_equal(account_charge_image(account, 41), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge_image(account, 40), 0);
	assert_int_equal(account_charge_image(account, 0), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge_attach(account, 1), 0);
	assert_int_equal(account_charge_attach(account, 1), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge_attach(other, 1), 0);
	account_discharge_attach(account);
	assert_int_equal(account_charge_attach(account, 1), 0);
	account_unref(same);
	account_unref(account);
	account_unref(other);
	assert_null(table.first);
}

/* Modules: of a user, and of all. */
static void test_modules(void **state) {
	struct account_table table = {};
	struct account *accounts[9];

	for (uid_t i = 0; i < 9; i++)
		assert_int_equal(account_get(&table, i, &accounts[i]), 0);
	for (int i = 0; i < 8; i++) {
		for (int k = 0; k < 32768; k++)
			assert_int_equal(account_charge_module(accounts[i]), 0);
		assert_int_equal(account_charge_module(accounts[i]), ACCOUNT_E_QUOTA);
	}
	assert_int_equal(account_charge_module(accounts[8]), ACCOUNT_E_QUOTA);
	account_discharge_module(accounts[0]);
	assert_int_equal(account_charge_module(accounts[8]), 0);
	assert_int_equal(account_charge_module(accounts[0]), ACCOUNT_E_QUOTA);
	assert_int_equal(table.refused_images, 10);
	for (int i = 0; i < 9; i++)
		account_unref(accounts[i]);
}

/* A share of each minute; who goes and comes back is remembered. */
static void test_time(void **state) {
	struct account_limits limits = { .connections = 1, .images = 1, .compile_seconds = 6 };
	struct account_table table = { .limits = &limits };
	struct account *account;

	assert_int_equal(account_get(&table, 7, &account), 0);
	account_charge_time(account, 5999, 1000);
	assert_int_equal(account_check_time(account, 1000), 0);
	account_charge_time(account, 2, 1000);
	assert_int_equal(account_check_time(account, 1000), ACCOUNT_E_QUOTA);
	account_unref(account);
	assert_non_null(table.first);
	assert_int_equal(account_get(&table, 7, &account), 0);
	assert_int_equal(account_check_time(account, 1005), ACCOUNT_E_QUOTA);
	assert_int_equal(account_check_time(account, 1020),
			 0); /* 2 ms of 6000 are forgiven in 20 of 60000 */
	account_charge_time(account, 6000, 1020);
	assert_int_equal(account_check_time(account, 1020 + 59000), ACCOUNT_E_QUOTA);
	assert_int_equal(account_check_time(account, 1020 + 61000), 0);
	assert_int_equal(account_check_time(account, 1000000), 0); /* and nothing more than all */
	account_charge_time(account, 60000, 1000000); /* ten minutes' worth */
	assert_int_equal(account_check_time(account, 1000000 + 9 * 60000 - 10), ACCOUNT_E_QUOTA);
	assert_int_equal(account_check_time(account, 1000000 + 9 * 60000 + 10), 0);
	account_unref(account);

	/* an account that nobody holds goes when all is forgiven */
	assert_int_equal(account_get(&table, 8, &account), 0);
	account_charge_time(account, 1, 1000000 + 20 * 60000);
	assert_ptr_equal(table.first, account);
	assert_null(account->next);
	limits.compile_seconds = 0; /* no limit */
	account_charge_time(account, 1000000, 1000000 + 20 * 60000);
	assert_int_equal(account_check_time(account, 1000000 + 20 * 60000), 0);
	account_unref(account);
	account_table_deinit(&table);
	assert_null(table.first);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_modules),
		cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
