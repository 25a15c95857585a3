/* SPDX-License-Identifier: Apache-2.0 */

/* The table beside a plain array that does the same. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/hash-table.h"

#define KEYS 3000

struct pair {
	uint64_t a, b;
	uint64_t value;
};

static uint64_t random_number(uint64_t *state) {
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

static struct pair key_of(uint64_t i) {
	return (struct pair){ .a = i << 40, .b = i % 7 }; /* as unlike a hash as can be */
}

static void check_all(const struct hash_table *table, const uint64_t *values) {
	size_t n = 0;

	for (uint64_t i = 0; i < KEYS; i++) {
		const struct pair key = key_of(i), *entry = hash_table_find(table, &key);

		assert_int_equal(entry ? entry->value : 0, values[i]);
		n += values[i] != 0;
	}
	assert_int_equal(table->n, n);
	for (size_t i = 0; i < table->n; i++) {
		const struct pair *entry = hash_table_at(table, i);

		assert_ptr_equal(hash_table_find(table, entry), entry);
	}
}

/* Adds and removes at random. */
static void test_numbers(void **state) {
	struct hash_table table = { .key_size = 16, .entry_size = sizeof(struct pair) };
	static uint64_t values[KEYS];
	uint64_t random = 1;

	check_all(&table, values);
	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 500; i++) {
			const uint64_t number = random_number(&random) % KEYS;
			const struct pair key = key_of(number);
			struct pair *entry;
			bool added;

			if (random_number(&random) % 100 < (round < 30 ? 70 : 30)) {
				entry = hash_table_add(&table, &key, &added);
				assert_non_null(entry);
				assert_int_equal(added, !values[number]);
				assert_int_equal(entry->value, values[number]);
				entry->value = values[number] = random_number(&random) + 1;
			} else if ((entry = hash_table_find(&table, &key))) {
				hash_table_remove(&table, entry);
				values[number] = 0;
			}
		}
		check_all(&table, values);
	}
	while (table.n)
		hash_table_remove(&table, hash_table_at(&table, table.n / 2));
	memset(values, 0, sizeof(values));
	check_all(&table, values);
	hash_table_deinit(&table);
}

/* Entries are in the order in which they were added, whatever their hashes. */
static void test_order(void **state) {
	struct hash_table table = { .key_size = 8, .entry_size = 8 };

	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < 1000; i++)
			assert_non_null(hash_table_add(&table, &i, NULL));
		for (uint64_t i = 0; i < 1000; i++)
			assert_int_equal(*(uint64_t *)hash_table_at(&table, i), i);
		hash_table_clear(&table);
		assert_int_equal(table.n, 0);
		assert_null(hash_table_find(&table, &(uint64_t){ 5 }));
	}
	hash_table_deinit(&table);
	assert_null(hash_table_find(&table, &(uint64_t){ 5 }));
	hash_table_clear(&table);
	assert_non_null(hash_table_add(&table, &(uint64_t){ 5 }, NULL));
	assert_non_null(hash_table_find(&table, &(uint64_t){ 5 }));
	hash_table_deinit(&table);
}

struct word {
	struct hash_text text;
	uint64_t number;
};

/* Texts of all lengths, of which one is the beginning of another, and of two kinds. */
static void test_texts(void **state) {
	struct hash_table table = { .key_size = HASH_TEXT, .entry_size = sizeof(struct word) };
	char *bytes = malloc(40); /* without an end, so that a sanitizer sees a byte too many */

	for (size_t i = 0; i < 40; i++)
		bytes[i] = i < 20 ? '\0' : 'x';
	for (uint32_t n = 0; n <= 40; n++)
		for (uint32_t kind = 0; kind < 2; kind++) {
			const struct hash_text key = { bytes + 40 - n, n, kind };
			struct word *word;
			bool added;

			assert_null(hash_table_find(&table, &key));
			word = hash_table_add(&table, &key, &added);
			assert_non_null(word);
			assert_true(added && !word->number);
			word->number = 2 * n + kind + 1;
		}
	for (uint32_t n = 0; n <= 40; n++)
		for (uint32_t kind = 0; kind < 2; kind++) {
			char *copy = malloc(n);
			const struct hash_text key = { copy, n, kind };
			const struct word *word;

			memcpy(copy, bytes + 40 - n, n);
			word = hash_table_find(&table, &key);
			assert_non_null(word);
			assert_int_equal(word->number, 2 * n + kind + 1);
			free(copy);
		}
	hash_table_deinit(&table);
	free(bytes);
}

static int fail_at; /* the call of these, counted from now, that fails; 0: all have */

void *__real_reallocarray(void *memory, size_t n, size_t size);
void *__wrap_reallocarray(void *memory, size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
ssize_t __real_getrandom(void *bytes, size_t n, unsigned int flags);
ssize_t __wrap_getrandom(void *bytes, size_t n, unsigned int flags);

void *__wrap_reallocarray(void *memory, size_t n, size_t size) {
	return fail_at && !--fail_at ? NULL : __real_reallocarray(memory, n, size);
}

void *__wrap_calloc(size_t n, size_t size) {
	return fail_at && !--fail_at ? NULL : __real_calloc(n, size);
}

ssize_t __wrap_getrandom(void *bytes, size_t n, unsigned int flags) {
	return fail_at && !--fail_at ? -1 : __real_getrandom(bytes, n, flags);
}

/* A table that cannot grow keeps what it has, and can when there is memory again. */
static void test_no_memory(void **state) {
	struct hash_table table = { .key_size = 8, .entry_size = 16 };
	int n_failed = 0;

	for (uint64_t i = 0; i < 1000; i++) {
		for (int at = 1; at <= 3; at++) {
			fail_at = at;
			if (hash_table_add(&table, &i, NULL))
				break;
			n_failed++;
			assert_int_equal(fail_at, 0);
			assert_int_equal(table.n, i);
			assert_null(hash_table_find(&table, &i));
		}
		fail_at = 0;
		assert_non_null(hash_table_add(&table, &i, NULL));
		for (uint64_t k = 0; k <= i; k++)
			assert_non_null(hash_table_find(&table, &k));
	}
	assert_int_equal(n_failed, 3 + 6 * 2); /* its first memory, and six times twice of it */
	hash_table_deinit(&table);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
