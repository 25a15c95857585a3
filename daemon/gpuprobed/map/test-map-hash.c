/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of map-hash.c: slots as the GPU writes them, and several instances that become one
 * table.
 */

#include "map.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "map-internal.h"
#include "map-table.h"
#include "test-map-view.h"

static struct map_accounts *accounts;

static int setup(void **state) {
	return map_accounts_new(&accounts, UINT64_C(256) << 20);
}

static int teardown(void **state) {
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
	assert_int_equal(map_accounts_room(accounts, 0), MAP_SNAPSHOT_BYTES_MAX);
	assert_int_equal(map_accounts_room(accounts, 1000), MAP_SNAPSHOT_BYTES_MAX / 2);
	accounts = map_accounts_free(accounts);
	return 0;
}

static struct map *map_of(uint32_t type, uint32_t key_size, uint32_t value_size,
			  uint32_t max_entries) {
	struct map_spec spec =
		spec_of(&(struct map_shape){ type, key_size, value_size, max_entries });
	struct map *map = NULL;

	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	return map;
}

/* Writes a slot; the values of all SMs follow one another. */
static void put_slot(struct view *view, uint64_t slot, const void *key, const void *values,
		     enum map_slot_state state) {
	const struct map_spec *spec = &view->instance->map->spec;
	unsigned char *at = view->data + sizeof(struct map_hash) + slot * spec->layout.entry_stride;
	uint64_t word = state | MAP_SLOT_VERSION_ONE * 3;
	size_t padded = (spec->key_size + 7) / 8 * 8;

	assert_true(slot < spec->layout.capacity);
	if (spec->key_size <= 4)
		memcpy((unsigned char *)&word + 4, key, spec->key_size);
	else
		memcpy(at + 8, key, spec->key_size);
	for (uint32_t i = 0; i < spec->layout.shards; i++)
		memcpy(at + 8 + padded + i * spec->layout.value_stride,
		       (const char *)values + i * spec->value_size, spec->value_size);
	memcpy(at, &word, sizeof(word));
}

static void put(struct view *view, uint64_t slot, uint64_t key, uint64_t value) {
	put_slot(view, slot, &key, &value, MAP_SLOT_LIVE);
}

struct expected {
	uint64_t key, value;
	pid_t pid;
};

/* Whether a dump gives these elements in this order, and no others. */
static void assert_dump(struct map *map, struct map_cursor cursor, size_t n,
			const struct expected expected[]) {
	struct map_entry entry;
	uint64_t key = 0;

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(next_entry(map, &cursor, &entry), 0);
		memcpy(&key, entry.key, map->spec.key_size);
		assert_int_equal(key, expected[i].key);
		assert_int_equal(value64(&entry, 0), expected[i].value);
		assert_int_equal(entry.pid, expected[i].pid);
	}
	assert_int_equal(next_entry(map, &cursor, &entry), MAP_E_END);
	map_cursor_deinit(&cursor);
}

#define DUMP(map, cursor, ...)                                                            \
	do {                                                                              \
		const struct expected expected[] = { __VA_ARGS__ };                       \
		assert_dump(map, cursor, sizeof(expected) / sizeof(*expected), expected); \
	} while (0)

static void test_merge(void **state) {
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, 100);
	struct view a = view_make(map, 1, 0), again = view_make(map, 1, 1),
		    b = view_make(map, 2, 0);

	assert_int_equal(map->spec.layout.capacity, 512);
	assert_dump(map, cursor_of(false, false, false), 0, NULL);
	put(&a, 255, 5, 1);
	put(&again, 3, 5, 2);
	put(&again, 4, 6, 9);
	put(&b, 0, 7, 0);
	put(&b, 17, 5, UINT64_MAX);
	a.header->mirrored_ns = 30;
	b.header->mirrored_ns = 20;
	DUMP(map, cursor_of(false, false, false), { 5, 2, 0 }, { 6, 9, 0 }, { 7, 0, 0 });
	DUMP(map, cursor_of(false, true, false), { 5, 2, 0 }, { 6, 9, 0 });
	DUMP(map, cursor_of(true, false, false), { 5, 3, 101 }, { 6, 9, 101 }, { 7, 0, 102 },
	     { 5, UINT64_MAX, 102 });
	DUMP(map, cursor_of(false, false, true), { 5, 1, 0 }, { 6, 9, 0 }, { 7, 0, 0 });

	assert_int_equal(map_process_gone(map, 2), 0);
	DUMP(map, cursor_of(false, true, false), { 5, 2, 0 }, { 6, 9, 0 });
	DUMP(map, cursor_of(true, false, false), { 5, 3, 101 }, { 6, 9, 101 }, { 7, 0, 0 },
	     { 5, UINT64_MAX, 0 });
	assert_int_equal(map_process_gone(map, 1), 0);
	DUMP(map, cursor_of(false, false, false), { 7, 0, 0 }, { 5, 2, 0 }, { 6, 9, 0 });
	DUMP(map, cursor_of(false, false, true), { 7, 0, 0 }, { 5, 1, 0 }, { 6, 9, 0 });
	assert_int_equal(map_bytes(map), map->own + map_table_bytes(map->totals->table));
	view_free(&a);
	view_free(&again);
	view_free(&b);
	map_free(map);
}

/* Only what is LIVE is an element, and a key counts once in an instance. */
static void test_slots(void **state) {
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 3, 8, 4);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	const enum map_slot_state states[] = {
		MAP_SLOT_EMPTY, MAP_SLOT_BUSY, MAP_SLOT_PENDING, MAP_SLOT_DEAD, 5, 7
	};
	uint64_t value = 1;

	for (uint64_t i = 0; i < 6; i++)
		put_slot(&a, i, "abc", &value, states[i]);
	assert_dump(map, cursor_of(false, false, false), 0, NULL);
	put(&a, 10, 0x030201, 5);
	put(&a, 11, 0x030201, 6);
	put(&b, 2, 0x030201, 7);
	DUMP(map, cursor_of(false, false, false), { 0x030201, 12, 0 });
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_process_gone(map, 2), 0);
	DUMP(map, cursor_of(false, false, false), { 0x030201, 12, 0 });
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Characters are not added: they are those of the newest instance that has the key. */
static void test_rest(void **state) {
	static const struct map_lane lanes[] = { { 0, 4 } };
	struct map_spec spec = spec_of(&(struct map_shape){ BPF_MAP_TYPE_HASH, 12, 8, 4 });
	struct map *map = NULL;
	struct map_cursor cursor;
	struct map_entry entry;
	struct view a, b;

	spec.lanes = lanes;
	spec.n_lanes = 1;
	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	put_slot(&a, 1, "twelve bytes", "\5\0\0\0abc", MAP_SLOT_LIVE);
	put_slot(&b, 2, "twelve bytes", "\6\0\0\0xyz", MAP_SLOT_LIVE);
	a.header->mirrored_ns = 20;
	b.header->mirrored_ns = 10;
	for (int pass = 0; pass < 3; pass++) {
		cursor = cursor_of(false, false, false);
		assert_int_equal(next_entry(map, &cursor, &entry), 0);
		assert_memory_equal(entry.key, "twelve bytes", 12);
		assert_memory_equal(entry.values, "\x0b\0\0\0abc", 8);
		map_cursor_deinit(&cursor);
		assert_int_equal(map_process_gone(map, pass ? 2 : 1), 0);
	}
	view_free(&a);
	view_free(&b);
	map_free(map);
}

static void test_percpu(void **state) {
	struct map *map = map_of(BPF_MAP_TYPE_PERCPU_HASH, 8, 4, 2);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	uint32_t values[256] = { 0, 0, 5 }, others[256] = { 1, 0, 6, UINT32_MAX };
	struct map_cursor cursor;
	struct map_entry entry;

	assert_int_equal(map->n_values, 256);
	put_slot(&a, 1, "the key", values, MAP_SLOT_LIVE);
	put_slot(&b, 63, "the key", others, MAP_SLOT_LIVE);
	for (int pass = 0; pass < 2; pass++) {
		cursor = cursor_of(false, false, false);
		assert_int_equal(next_entry(map, &cursor, &entry), 0);
		assert_int_equal(entry.n_values, 4);
		assert_memory_equal(entry.values, ((uint32_t[]){ 1, 0, 11, UINT32_MAX }), 16);
		map_cursor_deinit(&cursor);
		assert_int_equal(map_process_gone(map, 1), 0);
	}
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/*
 * A large map takes several steps. Processes that go in between, or come, are neither missed nor
 * counted twice, and what is given out was true at one time.
 */
static void test_steps(void **state) {
	const uint32_t n = 200000;
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, n);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0), c;
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;
	uint64_t sum = 0;
	uint32_t count = 0;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		put(&a, 2 * i, (uint64_t)i << 32, 1);
		put(&b, 2 * i + 1, (uint64_t)i << 32, 2);
	}
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_AGAIN);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_AGAIN);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_AGAIN);
	assert_int_equal(map_process_gone(map, 2), 0);
	c = view_make(map, 3, 0);
	put(&c, 100, UINT64_MAX, 4);
	while ((r = map_next(map, &cursor, &entry)) == 0 || r == MAP_E_AGAIN) {
		if (r)
			continue;
		if (!count++)
			assert_int_equal(map_process_gone(map, 3), 0); /* too late to matter */
		sum += value64(&entry, 0);
	}
	assert_int_equal(r, MAP_E_END);
	assert_int_equal(count, n + 1);
	assert_int_equal(sum, (uint64_t)n * 3 + 4);
	map_cursor_deinit(&cursor);
	view_free(&a);
	view_free(&b);
	view_free(&c);
	map_free(map);
}

/* Processes that never stop coming and going cannot hold up a dump for ever. */
static void test_unrest(void **state) {
	const uint32_t n = 300000;
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, n);
	struct view a = view_make(map, 1000, 0);
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_instance *other;
	struct map_entry entry;
	uint64_t process = 1;

	for (uint32_t i = 0; i < n; i++)
		put(&a, i, i, 1);
	for (; map_next(map, &cursor, &entry) == MAP_E_AGAIN; process++) {
		assert_int_equal(map_instance_get(map, process, 1, 0, process, &other), 0);
		assert_int_equal(map_process_gone(map, process), 0);
		assert_in_range(process, 1, 100);
	}
	assert_int_equal(value64(&entry, 0), 1);
	map_cursor_deinit(&cursor);
	view_free(&a);
	map_free(map);
}

/* What all dumps hold together has a limit. */
static void test_limit(void **state) {
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, 4);
	struct view a = view_make(map, 1, 0);
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;
	uint64_t held = 0;

	put(&a, 0, 1, 2);
	assert_int_equal(map_accounts_hold(accounts, 0, &held, MAP_SNAPSHOT_BYTES_MAX - 100), 0);
	assert_int_equal(next_entry(map, &cursor, &entry), MAP_E_QUOTA);
	map_cursor_deinit(&cursor);
	assert_int_equal(map_accounts_hold(accounts, 0, &held, MAP_SNAPSHOT_BYTES_MAX + 1),
			 MAP_E_QUOTA);
	assert_int_equal(map_accounts_hold(accounts, 0, &held, 0), 0);
	DUMP(map, cursor_of(false, false, false), { 1, 2, 0 });
	view_free(&a);
	map_free(map);
}

/* What users hold is in the way of themselves, before it is of others. */
static void test_limit_of_users(void **state) {
	static const uid_t readers[] = { 1000, 1001, 1002, 0 };
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, 4);
	struct view a = view_make(map, 1, 0);
	uint64_t held[2] = {};
	struct map_entry entry;

	put(&a, 0, 1, 2);
	assert_int_equal(map_accounts_hold(accounts, 1000, &held[0],
					   MAP_SNAPSHOT_BYTES_MAX / 2 + 1),
			 MAP_E_QUOTA);
	assert_int_equal(map_accounts_hold(accounts, 1000, &held[0], MAP_SNAPSHOT_BYTES_MAX / 2),
			 0);
	for (size_t full = 1; full <= 2; full++) {
		for (size_t i = 0; i < 4; i++) {
			struct map_cursor cursor;

			map_cursor_init(&cursor, &(struct map_order){ .reader = readers[i] });
			/* one has its half; then two have what is there for users */
			assert_int_equal(next_entry(map, &cursor, &entry),
					 (full == 1 ? !i : i < 3) ? MAP_E_QUOTA : 0);
			map_cursor_deinit(&cursor);
		}
		if (full == 1)
			assert_int_equal(map_accounts_hold(accounts, 1001, &held[1],
							   MAP_SNAPSHOT_BYTES_MAX / 4),
					 0);
	}
	assert_int_equal(map_accounts_hold(accounts, 1000, &held[0], 0), 0);
	assert_int_equal(map_accounts_hold(accounts, 1001, &held[1], 0), 0);
	view_free(&a);
	map_free(map);
}

/* A process in the middle of a copy: what is there is read, and marked. */
static void test_torn(void **state) {
	struct map *map = map_of(BPF_MAP_TYPE_HASH, 8, 8, 4);
	struct view a = view_make(map, 1, 0);
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;

	put(&a, 0, 1, 2);
	a.header->sequence = 9;
	assert_int_equal(next_entry(map, &cursor, &entry), 0);
	assert_true(entry.torn);
	assert_int_equal(value64(&entry, 0), 2);
	map_cursor_deinit(&cursor);
	view_free(&a);
	map_free(map);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_merge),  TEST(test_slots),          TEST(test_rest),
		TEST(test_percpu), TEST(test_steps),          TEST(test_unrest),
		TEST(test_limit),  TEST(test_limit_of_users), TEST(test_torn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
