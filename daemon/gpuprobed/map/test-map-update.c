/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of map-start.c, writes by the host: what instances start with, what maps read as
 * before, between and after processes, which writes are refused, and what the next daemon finds. A
 * random walk of writes, processes and additions is compared with a model.
 */

#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <unistd.h>

#include "test-map-view.h"

static struct map_accounts *accounts;
static uint64_t last_id = 1000000;

static int setup(void **state) {
	return map_accounts_new(&accounts, UINT64_C(64) << 20);
}

static int teardown(void **state) {
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
	accounts = map_accounts_free(accounts);
	return 0;
}

static struct map *map_of(const struct map_shape *shape) {
	struct map_spec spec = spec_of(shape);
	struct map *map = NULL;

	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	return map;
}

static struct map *array_of(uint32_t type, uint32_t merge, uint32_t place) {
	return map_of(
		&(struct map_shape){ type, 4, 8, 4, .merge = merge, .place = place, .threads = 3 });
}

static int update(struct map *map, uint32_t index, uint64_t value) {
	return map_update(map, &index, &value, MAP_UPDATE_ANY, ++last_id);
}

static uint64_t read64(struct map *map, uint32_t index) {
	struct map_entry entry;

	assert_int_equal(map_read(map, index, &entry), 0);
	return value64(&entry, 0);
}

static uint64_t get64(const struct view *view, uint64_t offset) {
	uint64_t value;

	memcpy(&value, view->data + offset, sizeof(value));
	return value;
}

static void add64(struct view *view, uint64_t offset, uint64_t n) {
	put64(view, offset, get64(view, offset) + n);
	view->header->mirrored_ns++;
}

/* What an array of one copy starts with counts once, whoever adds to it. */
static void test_array(void **state) {
	struct map *map = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE);
	struct view a, b;

	assert_int_equal(update(map, 1, 100), 0);
	assert_int_equal(read64(map, 1), 100);
	assert_int_equal(read64(map, 0), 0);
	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	assert_int_equal(get64(&a, 8), 100);
	assert_int_equal(get64(&b, 8), 100);
	assert_int_equal(read64(map, 1), 100);
	add64(&a, 8, 5);
	add64(&b, 8, 2);
	assert_int_equal(read64(map, 1), 107);
	assert_int_equal(update(map, 1, 1), MAP_E_RUNNING);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(read64(map, 1), 107);
	assert_int_equal(update(map, 1, 1), MAP_E_RUNNING);
	map_process_end(map, 2); /* what it had is folded first */
	assert_int_equal(update(map, 1, 50), 0);
	assert_int_equal(read64(map, 1), 50);
	view_free(&a);
	view_free(&b);
	a = view_make(map, 3, 0);
	assert_int_equal(get64(&a, 8), 50);
	add64(&a, 8, 1);
	assert_int_equal(read64(map, 1), 51);
	view_free(&a);
	map_free(map);
}

/* Instances in host memory are written to while processes have them. */
static void test_host_memory(void **state) {
	struct map *map = array_of(1513, MAP_MERGE_NONE, MAP_PLACE_DEVICE);
	struct view a = view_make(map, 1, 0), b;

	assert_int_equal(map->spec.layout.place, MAP_PLACE_HOST);
	add64(&a, 16, 3);
	assert_int_equal(update(map, 2, 10), 0);
	assert_int_equal(get64(&a, 16), 10);
	assert_int_equal(read64(map, 2), 10);
	b = view_make(map, 2, 0);
	assert_int_equal(get64(&b, 16), 10);
	add64(&a, 16, 1);
	add64(&b, 16, 1);
	assert_int_equal(read64(map, 2), 12);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Sums and the latest are set to what they read as, while processes have them, which start with
 * zeros. */
static void test_apart(void **state) {
	struct map *sums = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_SUM64, MAP_PLACE_DEVICE),
		   *latest = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_LATEST, MAP_PLACE_DEVICE);
	struct view a = view_make(sums, 1, 0), b = view_make(latest, 1, 0);

	add64(&a, 8, 3);
	add64(&a, sums->spec.layout.shard_stride + 8, 4);
	assert_int_equal(read64(sums, 1), 7);
	assert_int_equal(update(sums, 1, 1000), 0);
	assert_int_equal(read64(sums, 1), 1000);
	assert_int_equal(get64(&a, 8), 3);
	add64(&a, 8, 1);
	assert_int_equal(read64(sums, 1), 1001);
	assert_int_equal(map_process_gone(sums, 1), 0);
	assert_int_equal(read64(sums, 1), 1001);
	assert_int_equal(update(sums, 1, 0), 0);
	assert_int_equal(read64(sums, 1), 0);
	view_free(&a);
	a = view_make(sums, 2, 0);
	assert_int_equal(get64(&a, 8), 0);
	view_free(&a);
	map_free(sums);

	put64(&b, 16, 5);
	put64(&b, 24, 100);
	assert_int_equal(read64(latest, 1), 5);
	assert_int_equal(update(latest, 1, 6), 0);
	assert_int_equal(read64(latest, 1), 6);
	put64(&b, 16, 7);
	put64(&b, 24, 200);
	assert_int_equal(read64(latest, 1), 7);
	put64(&b, 24, UINT64_MAX); /* a process may say anything */
	assert_int_equal(update(latest, 1, 8), 0);
	view_free(&b);
	map_free(latest);
}

/* All SMs and all threads get the value. */
static void test_copies(void **state) {
	struct map *percpu = array_of(BPF_MAP_TYPE_PERCPU_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE),
		   *threads = array_of(1502, MAP_MERGE_NONE, MAP_PLACE_DEVICE);
	const struct map_layout *layout = &percpu->spec.layout;
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_entry entry;
	struct view a;

	assert_int_equal(update(percpu, 3, 9), 0);
	a = view_make(percpu, 1, 0);
	for (uint32_t i = 0; i < layout->shards; i++)
		assert_int_equal(get64(&a, i * layout->shard_stride + 24), 9);
	add64(&a, layout->shard_stride + 24, 1);
	assert_int_equal(map_read(percpu, 3, &entry), 0);
	assert_int_equal(entry.n_values, layout->shards);
	assert_int_equal(value64(&entry, 0), 9);
	assert_int_equal(value64(&entry, 1), 10);
	assert_int_equal(map_process_gone(percpu, 1), 0);
	assert_int_equal(map_read(percpu, 3, &entry), 0);
	assert_int_equal(value64(&entry, 0), 9);
	assert_int_equal(value64(&entry, 1), 10);
	view_free(&a);
	map_free(percpu);

	assert_int_equal(update(threads, 1, 9), 0);
	a = view_make(threads, 1, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(get64(&a, (1 * 3 + i) * 8), 9);
	put64(&a, (1 * 3 + 1) * 8, 0);
	assert_int_equal(map_process_gone(threads, 1), 0);
	view_free(&a);
	for (uint32_t i = 0; next_entry(threads, &cursor, &entry) == 0; i++)
		if (entry.index == 1)
			assert_int_equal(value64(&entry, 0), entry.thread == 1 ? 0 : 9);
	map_cursor_deinit(&cursor);
	map_free(threads);
}

/* The value of a key in a dump of all; -1: it is not there. */
static int64_t find(struct map *map, uint64_t key, bool latest) {
	struct map_cursor cursor = cursor_of(false, false, latest);
	struct map_entry entry;
	int64_t value = -1;

	while (next_entry(map, &cursor, &entry) == 0)
		if (!memcmp(entry.key, &key, sizeof(key)))
			value = (int64_t)value64(&entry, 0);
	map_cursor_deinit(&cursor);
	return value;
}

static int put(struct map *map, uint64_t key, uint64_t value, uint64_t flags) {
	return map_update(map, &key, &value, flags, ++last_id);
}

static int drop(struct map *map, uint64_t key) {
	return map_delete(map, &key);
}

/* The slot of a key in an instance. */
static uint64_t slot_of(const struct view *view, uint64_t key) {
	const struct map_layout *layout = &view->instance->map->spec.layout;

	for (uint64_t i = 0; i < layout->capacity; i++) {
		const uint64_t at = sizeof(struct map_hash) + i * layout->entry_stride;

		if ((get64(view, at) & MAP_SLOT_STATE_MASK) == MAP_SLOT_LIVE &&
		    get64(view, at + 8) == key)
			return at;
	}
	return 0;
}

static void test_hash(void **state) {
	struct map *map = map_of(&(struct map_shape){ BPF_MAP_TYPE_HASH, 8, 8, 3 });
	struct view a;

	assert_int_equal(put(map, 5, 50, MAP_UPDATE_EXIST), MAP_E_NO_KEY);
	assert_int_equal(put(map, 5, 50, MAP_UPDATE_NOEXIST), 0);
	assert_int_equal(put(map, 5, 51, MAP_UPDATE_NOEXIST), MAP_E_EXISTS);
	assert_int_equal(put(map, 6, 60, MAP_UPDATE_ANY), 0);
	assert_int_equal(put(map, 7, 70, MAP_UPDATE_ANY), 0);
	assert_int_equal(put(map, 8, 80, MAP_UPDATE_ANY), MAP_E_FULL);
	assert_int_equal(drop(map, 7), 0);
	assert_int_equal(drop(map, 7), MAP_E_NO_KEY);
	assert_int_equal(find(map, 7, false), -1);
	a = view_make(map, 1, 0);
	assert_int_equal(find(map, 5, false), 50);
	assert_int_equal(slot_of(&a, 7), 0);
	assert_true(slot_of(&a, 5));
	assert_int_equal(get64(&a, slot_of(&a, 5) + 16), 50);
	add64(&a, slot_of(&a, 5) + 16, 4);
	assert_int_equal(find(map, 5, false), 54);
	assert_int_equal(find(map, 6, false), 60);
	assert_int_equal(put(map, 5, 1, MAP_UPDATE_ANY), MAP_E_RUNNING);
	assert_int_equal(drop(map, 5), MAP_E_RUNNING);
	assert_int_equal(map_process_gone(map, 1), 0);
	view_free(&a);
	assert_int_equal(find(map, 5, false), 54);
	assert_int_equal(find(map, 5, true), 54);
	a = view_make(map, 2, 0); /* starts with 50 again: as it reads, 4 were added */
	assert_int_equal(get64(&a, slot_of(&a, 5) + 16), 50);
	add64(&a, slot_of(&a, 5) + 16, 1);
	assert_int_equal(map_process_gone(map, 2), 0);
	view_free(&a);
	assert_int_equal(find(map, 5, false), 55);
	assert_int_equal(put(map, 5, 9, MAP_UPDATE_EXIST), 0);
	assert_int_equal(find(map, 5, false), 9);
	assert_int_equal(find(map, 5, true), 9);
	assert_int_equal(drop(map, 5), 0);
	assert_int_equal(find(map, 5, false), -1);
	assert_int_equal(find(map, 6, false), 60);
	map_free(map);
}

static void test_refused(void **state) {
	struct map *array = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE),
		   *large = map_of(&(struct map_shape){ BPF_MAP_TYPE_ARRAY, 4, 1 << 20, 32 }),
		   *ring = map_of(&(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096,
						       .ring_bytes = 1 << 14 });
	unsigned char *value = calloc(1, 1 << 20);
	struct map *poor;
	uint32_t key = 0;

	assert_int_equal(update(array, 4, 1), MAP_E_NO_KEY);
	assert_int_equal(map_update(array, &key, value, MAP_UPDATE_NOEXIST, ++last_id),
			 MAP_E_EXISTS);
	assert_int_equal(map_update(array, &key, value, MAP_UPDATE_EXIST, ++last_id), 0);
	assert_int_equal(map_delete(array, &key), MAP_E_ARRAY);
	assert_int_equal(map_update(large, &key, value, 0, ++last_id), MAP_E_LARGE);
	assert_int_equal(map_update(ring, &key, value, 0, ++last_id), MAP_E_RING);
	assert_int_equal(map_delete(ring, &key), MAP_E_RING);
	map_free(large);
	map_free(ring);
	map_free(array);

	map_accounts_set_limit(accounts, 4096);
	poor = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE);
	assert_int_equal(update(poor, 0, 1), MAP_E_QUOTA);
	assert_int_equal(read64(poor, 0), 0);
	map_free(poor);
	map_accounts_set_limit(accounts, UINT64_C(64) << 20);
	free(value);
}

/* The next daemon finds what was written. */
static void test_adopted(void **state) {
	struct map *map = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE), *next;
	struct map_instance *start, like;
	struct view a;
	int fd;

	assert_int_equal(update(map, 1, 100), 0);
	like = *map->start;
	assert_int_equal(like.process, 0);
	fd = fcntl(map->start->fd, F_DUPFD_CLOEXEC, 0);
	map_free(map);
	next = array_of(BPF_MAP_TYPE_ARRAY, MAP_MERGE_NONE, MAP_PLACE_DEVICE);
	assert_int_equal(map_adopt_instance(next, &like, fd, false, &start), 0);
	assert_int_equal(next->n_instances, 0);
	assert_int_equal(read64(next, 1), 100);
	a = view_make(next, 1, 0);
	assert_int_equal(get64(&a, 8), 100);
	assert_int_equal(map_process_gone(next, 1), 0);
	assert_int_equal(update(next, 1, 5), 0);
	assert_int_equal(read64(next, 1), 5);
	view_free(&a);
	map_free(next);
}

/* Writes, processes that come and go, and what they add. */
static void walk(uint32_t merge, uint32_t place, bool hash) {
	struct map *map = hash ? map_of(&(struct map_shape){ BPF_MAP_TYPE_HASH, 8, 8, 4 })
			       : array_of(BPF_MAP_TYPE_ARRAY, merge, place);
	const bool apart = merge == MAP_MERGE_SUM64,
		   device = map->spec.layout.place == MAP_PLACE_DEVICE;
	struct view views[3] = {};
	uint64_t model[4] = {}, process = 0;
	bool known[4] = { !hash, !hash, !hash, !hash };

	for (int step = 0; step < 3000; step++) {
		const uint32_t index = (uint32_t)rand() % 4, which = (uint32_t)rand() % 3,
			       n = (uint32_t)rand() % 1000;
		struct view *view = &views[which];
		const bool running = views[0].data || views[1].data || views[2].data;
		uint64_t at;
		int r;

		switch (rand() % 4) {
		case 0:
			r = hash ? put(map, index, n, 0) : update(map, index, n);
			assert_int_equal(r, running && (hash || (device && !apart)) ? MAP_E_RUNNING
										    : 0);
			if (!r) {
				model[index] = n;
				known[index] = true;
			}
			break;
		case 1:
			if (!view->data)
				*view = view_make(map, ++process, 0);
			break;
		case 2:
			if (view->data) {
				assert_int_equal(map_process_gone(map, view->instance->process), 0);
				view_free(view);
				*view = (struct view){};
			}
			break;
		default:
			if (!view->data)
				break;
			at = hash ? slot_of(view, index) : index * 8;
			if (hash && !at)
				break;
			add64(view, at + (hash ? 16 : 0), n);
			model[index] += n;
		}
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(hash ? (uint64_t)find(map, i, false) : read64(map, i),
					 known[i] ? model[i] : (uint64_t)-1);
	}
	for (int i = 0; i < 3; i++)
		if (views[i].data)
			view_free(&views[i]);
	map_free(map);
}

static void test_walks(void **state) {
	srand(1);
	walk(MAP_MERGE_NONE, MAP_PLACE_DEVICE, false);
	walk(MAP_MERGE_NONE, MAP_PLACE_HOST, false);
	walk(MAP_MERGE_SUM64, MAP_PLACE_DEVICE, false);
	walk(MAP_MERGE_NONE, MAP_PLACE_DEVICE, true);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_array),   cmocka_unit_test(test_host_memory),
		cmocka_unit_test(test_apart),   cmocka_unit_test(test_copies),
		cmocka_unit_test(test_hash),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_adopted), cmocka_unit_test(test_walks),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
