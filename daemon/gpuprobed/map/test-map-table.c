/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of map-table.c: a growing table finds every key at every moment, and never rebuilds
 * its index at once.
 */

#include "map-table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "map.h"

#define NO_LIMIT UINT64_MAX

static struct map_table *table_new(void) {
	struct map_table *table;

	assert_int_equal(map_table_new(&table, 8, 8), 0);
	return table;
}

/* Whether the key is new; in either case it gets this number. */
static bool get(struct map_table *table, uint64_t key, uint32_t number) {
	struct map_table_entry *entry;
	bool added;

	assert_int_equal(
		map_table_get(table, (const unsigned char *)&key, NO_LIMIT, &entry, &added), 0);
	assert_int_equal(map_table_number(table, entry), number);
	return added;
}

static void test_keys(void **state) {
	struct map_table *table = table_new();
	uint32_t n = 0;

	for (; n < 3000; n++) {
		assert_true(get(table, n * UINT64_C(0x10001), n));
		for (uint32_t i = 0; i <= n; i += n < 300 ? 1 : 97)
			assert_false(get(table, i * UINT64_C(0x10001), i));
	}
	assert_int_equal(map_table_count(table), n);
	map_table_free(table);
}

/* The index that is full stays, and goes when others have taken its entries along. */
static void test_index(void **state) {
	const uint64_t entry = map_table_entry_bytes(8, 8);
	struct map_table *table = table_new();
	uint64_t before;
	uint32_t n = 0;

	for (; n < 1024; n++)
		get(table, n, n);
	before = map_table_bytes(table);
	assert_int_equal(map_table_capacity(table), n);
	get(table, n, n);
	n++;
	assert_int_equal(map_table_capacity(table), 2 * 1024);
	assert_int_equal(map_table_bytes(table), before + entry + 4 * 1024 * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
		assert_false(get(table, i, i));
	for (; n < 2 * 1024; n++)
		get(table, n, n);
	assert_int_equal(map_table_bytes(table),
			 before + 1024 * entry + 2 * 1024 * sizeof(uint32_t));
	map_table_free(table);
}

/* A key takes what it says, and nothing where there is no room; a key that is there takes nothing.
 */
static void test_room(void **state) {
	const uint64_t entry_bytes = map_table_entry_bytes(8, 8);
	struct map_table *table = table_new();
	struct map_table_entry *entry;
	uint64_t key = 0, used;
	bool added;

	while (key < 1000) {
		const unsigned char *bytes = (const unsigned char *)&key;
		uint64_t room = entry_bytes;

		used = map_table_bytes(table);
		if (map_table_count(table) == map_table_capacity(table))
			room += 2 * sizeof(uint32_t) * (key ? 2 * key : 64);
		assert_int_equal(map_table_get(table, bytes, room - 1, &entry, &added),
				 MAP_E_QUOTA);
		assert_int_equal(map_table_bytes(table), used);
		assert_int_equal(map_table_get(table, bytes, room, &entry, &added), 0);
		assert_true(added);
		assert_true(map_table_bytes(table) <= used + room);
		assert_int_equal(map_table_get(table, bytes, 0, &entry, &added), 0);
		assert_false(added);
		key++;
	}
	map_table_free(table);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
