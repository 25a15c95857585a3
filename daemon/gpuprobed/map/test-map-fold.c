/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of map-fold.c: a reader of a map sees everything once while it is folded in small
 * steps.
 */

#include "map.h"

#include <errno.h>
#include <linux/bpf.h>

#include "map-internal.h"
#include "test-map-view.h"

static struct map_accounts *accounts;

static struct map *map_of(const struct map_shape *shape) {
	struct map_spec spec = spec_of(shape);
	struct map *map;

	assert_int_equal(map_new(&map, 1, 1, OWNER, &spec, accounts), 0);
	return map;
}

static struct map *hash_of(uint32_t max_entries) {
	return map_of(&(struct map_shape){ .type = BPF_MAP_TYPE_HASH,
					   .key_size = 8,
					   .value_size = 8,
					   .max_entries = max_entries });
}

static void put(struct view *view, uint64_t slot, uint64_t key, uint64_t value) {
	uint64_t at =
		sizeof(struct map_hash) + slot * view->instance->map->spec.layout.entry_stride;

	put64(view, at, MAP_SLOT_LIVE);
	put64(view, at + 8, key);
	put64(view, at + 16, value);
}

/* The sum of all first values that a dump shows. */
static uint64_t sum_of(struct map *map, struct map_cursor cursor) {
	struct map_entry entry;
	uint64_t sum = 0;
	int r;

	while (!(r = next_entry(map, &cursor, &entry)))
		sum += value64(&entry, 0);
	assert_int_equal(r, MAP_E_END);
	map_cursor_deinit(&cursor);
	return sum;
}

/* One step of about `budget` bytes. */
static int step(struct map *map, uint64_t budget) {
	return map_fold(map, &budget);
}

static void test_array(void **state) {
	struct map *map = map_of(&(struct map_shape){
		.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 100 });
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_entry entry;
	unsigned int steps = 0;
	int r;

	for (uint64_t i = 0; i < 100; i++) {
		put64(&a, i * 8, 1);
		put64(&b, i * 8, 10);
	}
	a.header->mirrored_ns = 30;
	b.header->mirrored_ns = 20;
	map_process_end(map, 1);
	assert_int_equal(map->n_instances, 1);
	for (;; steps++) {
		assert_int_equal(sum_of(map, cursor_of(false, false, false)), 1100);
		assert_int_equal(sum_of(map, cursor_of(true, false, false)), 1100);
		assert_int_equal(sum_of(map, cursor_of(false, false, true)), 100);
		assert_int_equal(map_read(map, 50, &entry), 0);
		assert_int_equal(value64(&entry, 0), 11);
		r = step(map, 64);
		if (!r)
			break;
		assert_int_equal(r, MAP_E_AGAIN);
	}
	assert_true(steps > 10);
	assert_ptr_equal(map->instances, b.instance);
	assert_null(map->instances->next);
	assert_int_equal(step(map, 64), 0);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

static void test_threads(void **state) {
	struct map *map = map_of(&(struct map_shape){
		.type = 1502, .key_size = 4, .value_size = 8, .max_entries = 2, .threads = 2000 });
	struct view a = view_make(map, 1, 0);
	unsigned int steps = 0;

	for (uint64_t i = 0; i < 4000; i += 7)
		put64(&a, i * 8, i);
	map_process_end(map, 1);
	while (step(map, 4096)) {
		assert_int_equal(sum_of(map, cursor_of(false, true, false)), 1143142);
		assert_int_equal(sum_of(map, cursor_of(true, false, false)), 1143142);
		steps++;
	}
	assert_true(steps > 3);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), 1143142);
	view_free(&a);
	map_free(map);
}

/* A dump waits for the end of an instance, and sees each element once. */
static void test_hash(void **state) {
	struct map *map = hash_of(100);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;
	unsigned int steps = 0;

	for (uint64_t i = 0; i < 100; i++) {
		put(&a, i, i, 1);
		put(&b, 255 - i, i, 10);
	}
	map_process_end(map, 1);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), 1100);
	while (step(map, 1000)) {
		if (map->fold.instance)
			assert_int_equal(map_next(map, &cursor, &entry), MAP_E_AGAIN);
		steps++;
	}
	assert_true(steps > 10);
	map_cursor_deinit(&cursor);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), 1100);
	assert_int_equal(sum_of(map, cursor_of(true, false, false)), 1100);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Folding does not begin while a dump goes over the instances: it need not start again. */
static void test_dump_first(void **state) {
	struct map *map = hash_of(1 << 20); /* some steps of a dump */
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;
	unsigned int steps = 0;
	uint64_t sum = 0;
	int r;

	put(&a, 0, 1, 1);
	put(&a, (1 << 21) - 1, 2, 1);
	put(&b, (1 << 21) - 1, 3, 1);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_AGAIN);
	map_process_end(map, 1);
	map_process_end(map, 2);
	while ((r = map_next(map, &cursor, &entry)) != MAP_E_END) {
		if (!r)
			sum += value64(&entry, 0);
		else
			steps++;
		assert_int_equal(step(map, MAP_FOLD_BYTES), MAP_E_AGAIN);
		if (!sum)
			assert_null(map->fold.instance);
	}
	assert_true(steps > 3);
	assert_int_equal(sum, 3);
	map_cursor_deinit(&cursor);
	while (step(map, MAP_FOLD_BYTES))
		;
	assert_null(map->instances);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), 3);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* What is detached in the middle gives everything back. */
static void test_freed_meanwhile(void **state) {
	struct map *map = map_of(&(struct map_shape){
		.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 100 });
	struct view a = view_make(map, 1, 0);

	put64(&a, 0, 1);
	a.header->mirrored_ns = 1;
	map_process_end(map, 1);
	assert_int_equal(step(map, 64), MAP_E_AGAIN);
	assert_non_null(map->fold.latest);
	view_free(&a);
	map_free(map);
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
}

static unsigned int count(const struct map *map) {
	unsigned int n = 0;

	for (const struct map_instance *i = map->instances; i; i = i->next)
		n++;
	return n;
}

/* The end of a process with many rings costs no turn more than one of them, or a part of it. */
static void test_rings(void **state) {
	const uint64_t size = 2 * MAP_FOLD_BYTES, fit = MAP_GONE_BYTES_MAX / (size + 4 * 4096);
	struct map *map =
		map_of(&(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096, .ring_bytes = size });
	const unsigned int n = (unsigned int)fit + 10;
	unsigned int steps = 0, before;
	const uint64_t stamp = 0;
	struct view views[64];
	int r;

	assert_in_range(n, 1, sizeof(views) / sizeof(views[0]));
	for (unsigned int i = 0; i < n; i++)
		views[i] = view_make(map, i % 2 + 1, i);
	map_process_end(map, 1); /* there is nothing in them */
	assert_int_equal(map->n_instances, n / 2);
	assert_int_equal(count(map), n);
	do {
		before = count(map);
		r = step(map, MAP_FOLD_BYTES);
		assert_in_range(before - count(map), 0, 1);
		steps++;
	} while (r);
	assert_int_equal(count(map), n / 2);
	assert_in_range(steps, n, 10 * n); /* a half of one in a turn */
	map_process_end(map, 2);
	assert_int_equal(step(map, 0), MAP_E_AGAIN);
	assert_int_equal(count(map), n / 2);
	while (step(map, MAP_FOLD_BYTES))
		;
	assert_int_equal(count(map), 0);
	for (unsigned int i = 0; i < n; i++)
		view_free(&views[i]);
	for (unsigned int i = 0; i < n; i++) { /* one record each */
		const struct map_layout *layout = &map->spec.layout;
		struct map_ring *ring;
		struct map_batch *batch;

		views[i] = view_make(map, 3, i);
		ring = (void *)views[i].data;
		batch = (void *)((unsigned char *)views[i].header + map_host_offset(layout) +
				 map_ring_offset(layout, 0));
		*batch = (struct map_batch){ .size = 8, .count = 1, .lanes = 1 };
		ring->written = 1;
		memcpy(batch, &(uint64_t){ map_ring_stamp(stamp, ring->cookie) }, sizeof(uint64_t));
		view_free(&views[i]);
	}
	map_process_end(map, 3);
	do {
		before = count(map);
		r = step(map, MAP_FOLD_BYTES);
		assert_in_range(before - count(map), 0, 1);
	} while (r);
	assert_int_equal(count(map), fit); /* the newest stay */
	assert_int_equal(map_lost(map), n - fit);
	assert_int_equal(map_written(map), n);
	map_free(map);
}

/* Processes of another user end with new keys, again and again: the owner's memory is not theirs,
 * and what they counted of known keys is kept. */
static void test_strangers(void **state) {
	const uint64_t limit = map_accounts_limit(accounts), small = UINT64_C(1) << 20,
		       process = 1000;
	struct map *map = hash_of(100);
	uint64_t total = 0, keys = 0, lost;

	map_accounts_set_limit(accounts, small);
	while (map->lost < 1000) {
		struct view view = view_make(map, process + keys, 0);

		view.instance->uid = OWNER + 1;
		put(&view, 0, UINT64_MAX, 1);
		for (uint64_t i = 1; i < 100; i++)
			put(&view, i, keys++, 1);
		total += 100;
		view_free(&view);
		assert_int_equal(map_process_gone(map, process + keys - 99), 0);
		assert_true(map_totals_bytes(map) <= small / 2);
		assert_in_range(keys, 1, 100000);
	}
	assert_true(map_accounts_used(accounts, OWNER) < small * 3 / 4);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), total - map->lost);

	/* his own, which do not make room for theirs */
	struct view view = view_make(map, 1, 0);

	view.instance->uid = OWNER;
	for (uint64_t i = 0; i < 100; i++)
		put(&view, i, keys++, 1);
	view_free(&view);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(sum_of(map, cursor_of(false, false, false)), total - map->lost + 100);
	assert_true(map_accounts_used(accounts, OWNER) < small * 3 / 4);
	lost = map->lost;
	view = view_make(map, 2, 0);
	view.instance->uid = OWNER + 1;
	for (uint64_t i = 0; i < 100; i++)
		put(&view, i, keys++, 1);
	view_free(&view);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(map->lost, lost + 100);
	map_free(map);
	map_accounts_set_limit(accounts, limit);
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_array),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_dump_first),
		cmocka_unit_test(test_freed_meanwhile),
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_strangers),
	};
	int r;

	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 30), 0);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	map_accounts_free(accounts);
	return r;
}
