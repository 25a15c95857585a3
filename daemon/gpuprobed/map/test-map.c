/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of map storage: instances as a process sees and writes them through the descriptor,
 * and what the daemon reads. Arrays only; other kinds: test-map-kinds.c.
 */

#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "map-internal.h"
#include "test-map-view.h"

static struct map_accounts *accounts;

static int setup(void **state) {
	return map_accounts_new(&accounts, UINT64_C(1) << 20);
}

static int teardown(void **state) {
	assert_int_equal(map_accounts_used(accounts, OWNER),
			 0); /* every test gives back what it took */
	accounts = map_accounts_free(accounts);
	return 0;
}

/* An array: 256 shards if it merges, where these fit. */
static struct map_spec spec_make(uint32_t value_size, uint32_t max_entries, uint32_t merge) {
	return spec_of(&(struct map_shape){
		.type = merge == MAP_MERGE_PERCPU ? BPF_MAP_TYPE_PERCPU_ARRAY : BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = value_size,
		.max_entries = max_entries,
		.merge = merge,
	});
}

static struct map *map_make(const struct map_spec *spec) {
	struct map *map = NULL;

	assert_int_equal(map_new(&map, 7, 1, OWNER, spec, accounts), 0);
	return map;
}

static uint64_t read64(struct map *map, uint32_t index) {
	struct map_entry entry;

	assert_int_equal(map_read(map, index, &entry), 0);
	assert_int_equal(entry.index, index);
	return value64(&entry, 0);
}

static void test_instance(void **state) {
	struct map_spec spec = spec_make(12, 10, MAP_MERGE_NONE);
	struct map *map = map_make(&spec);
	struct map_instance *instance, *again;
	struct map_header header;
	struct stat status;
	char link[64], path[64] = "";

	assert_int_equal(map_instance_get(map, 3, 103, 1, 55, &instance), 0);
	assert_int_equal(map_instance_get(map, 3, 103, 1, 56, &again), 0);
	assert_ptr_equal(instance, again);
	assert_int_equal(instance->id, 55);
	assert_int_equal(map_instance_get(map, 3, 103, 0, 57, &again), 0);
	assert_ptr_not_equal(instance, again);
	assert_ptr_equal(map->instances, again); /* in order of the device */
	assert_int_equal(map->n_instances, 2);

	assert_int_equal(fstat(instance->fd, &status), 0);
	assert_int_equal(status.st_size, MAP_DATA_OFFSET + 160);
	assert_int_equal(instance->size, status.st_size);
	assert_int_equal(fcntl(instance->fd, F_GET_SEALS),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(ftruncate(instance->fd, 100), -1);
	assert_int_equal(fcntl(instance->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", instance->fd);
	assert_true(readlink(link, path, sizeof(path) - 1) > 0);
	assert_string_equal(path, "/memfd:gpuprobe-map:values (deleted)");

	assert_int_equal(pread(instance->fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(header.magic, MAP_MAGIC);
	assert_int_equal(header.version, MAP_LAYOUT_VERSION);
	assert_int_equal(header.map_id, 7);
	assert_int_equal(header.instance_id, 55);
	assert_int_equal(header.value_size, 12);
	assert_int_equal(header.layout.value_stride, 16);
	assert_int_equal(header.layout.data_size, 160);
	assert_int_equal(header.state, MAP_INSTANCE_NEW);
	assert_int_equal(map_bytes(map), map->own + 2 * (MAP_DATA_OFFSET + 160));
	assert_int_equal(map_accounts_used(accounts, OWNER), map_bytes(map));
	map_free(map);
}

static void test_layout_rules(void **state) {
	struct map_spec good = spec_make(8, 4, MAP_MERGE_SUM64), bad;
	static const struct map_lane overlap[] = { { 0, 8 }, { 4, 4 } }, beyond[] = { { 4, 8 } },
				     odd[] = { { 0, 3 } };
	struct map *map = NULL;
	unsigned char byte = 1;

#define REFUSED(...)                                                                         \
	do {                                                                                 \
		bad = good;                                                                  \
		__VA_ARGS__;                                                                 \
		assert_int_equal(map_new(&map, 1, 1, OWNER, &bad, accounts), MAP_E_INVALID); \
	} while (0)
	REFUSED(bad.name = "");
	REFUSED(bad.name = "a-name-of-more-than-sixty-three-characters-is-more-than-what-fits");
	REFUSED(bad.key_size = 8);
	REFUSED(bad.value_size = 0);
	REFUSED(bad.value_size = 16);
	REFUSED(bad.max_entries = 0);
	REFUSED(bad.max_entries = 100);
	REFUSED(bad.type = BPF_MAP_TYPE_HASH);
	REFUSED(bad.type = BPF_MAP_TYPE_STACK);
	REFUSED(bad.layout.kind = MAP_KIND_RING);
	REFUSED(bad.layout.place = MAP_PLACE_HOST); /* has one shard */
	REFUSED(bad.layout.place = 3);
	REFUSED(bad.layout.shards = 3);
	REFUSED(bad.layout.shards = 0);
	REFUSED(bad.layout.shards = 512);
	REFUSED(bad.layout.merge = MAP_MERGE_LATEST); /* has another stride */
	REFUSED(bad.layout.merge = MAP_MERGE_NONE); /* has one shard */
	REFUSED(bad.layout.merge = 5);
	REFUSED(bad.layout.value_stride = 16);
	REFUSED(bad.layout.shard_stride = 32);
	REFUSED(bad.layout.shard_stride = UINT64_MAX);
	REFUSED(bad.layout.data_size = 1024);
	REFUSED(bad.layout.data_size = 0);
	REFUSED(bad.layout.host_size = 4096);
	REFUSED(bad = spec_make(UINT32_MAX - 8, 1, MAP_MERGE_NONE)); /* not with verify=off */
	REFUSED(bad = spec_make(16, 4, MAP_MERGE_LATEST));
	REFUSED(bad.lanes = overlap, bad.n_lanes = 2);
	REFUSED(bad.lanes = beyond, bad.n_lanes = 1);
	REFUSED(bad.lanes = odd, bad.n_lanes = 1);
	REFUSED(bad.initial = &byte, bad.n_initial = 1); /* more than one entry */
	REFUSED(bad = spec_make(4, 1, MAP_MERGE_NONE), bad.initial = "12345678", bad.n_initial = 8);
	REFUSED(bad = spec_make(8, 1, MAP_MERGE_PERCPU), bad.initial = &byte, bad.n_initial = 1);
	assert_null(map);
	map_free(map_make(&good));
}

/* Shards and instances add up, modulo 2^64; a process that ends leaves its count behind. */
static void test_sum64(void **state) {
	struct map_spec spec = spec_make(16, 3, MAP_MERGE_SUM64);
	struct map *map = map_make(&spec);
	struct view a, b;

	assert_int_equal(spec.layout.shard_stride, 128);
	assert_int_equal(read64(map, 1), 0);
	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	for (uint64_t shard = 0; shard < 8; shard++) {
		put64(&a, shard * 128 + 16, shard + 1); /* index 1 */
		put64(&b, shard * 128 + 16, 100);
		put64(&b, shard * 128 + 24, 1); /* its second lane */
	}
	put64(&a, 0, UINT64_MAX); /* index 0 */
	put64(&a, 128, 3);
	assert_int_equal(read64(map, 0), 2);
	assert_int_equal(read64(map, 1), 36 + 800);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map->n_instances, 1);
	assert_true(map->retained);
	assert_int_equal(read64(map, 0), 2);
	assert_int_equal(read64(map, 1), 36 + 800);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(map_process_gone(map, 2), 0); /* nothing more to do */
	assert_int_equal(read64(map, 1), 36 + 800);
	assert_int_equal(map_bytes(map), map->own + 3 * 16); /* the totals */
	view_free(&a);
	view_free(&b);
	map_free(map);
}

static void test_sum32(void **state) {
	struct map_spec spec = spec_make(8, 1, MAP_MERGE_SUM32);
	struct map *map = map_make(&spec);
	struct view a = view_make(map, 1, 0);
	const uint32_t first[] = { UINT32_MAX, 10 }, second[] = { 5, 20 };
	struct map_entry entry;

	memcpy(a.data, first, sizeof(first));
	memcpy(a.data + 128, second, sizeof(second));
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, ((uint32_t[]){ 4, 30 }), 8); /* no carry between lanes */
	assert_int_equal(map_read(map, 1, &entry), MAP_E_END);
	view_free(&a);
	map_free(map);
}

/* Each SM its own value; those of one SM add up over instances. */
static void test_percpu(void **state) {
	struct map_spec spec = spec_make(8, 2, MAP_MERGE_PERCPU);
	struct map *map = map_make(&spec);
	struct view a = view_make(map, 1, 0),
		    b = view_make(map, 1, 1); /* two devices of one process */
	struct map_entry entry;

	put64(&a, 3 * 128 + 8, 5);
	put64(&b, 3 * 128 + 8, 6);
	put64(&b, 7 * 128 + 8, 9);
	assert_int_equal(map_read(map, 1, &entry), 0);
	assert_int_equal(entry.n_values, 8);
	assert_int_equal(value64(&entry, 3), 11);
	assert_int_equal(value64(&entry, 7), 9);
	assert_int_equal(value64(&entry, 0), 0);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_int_equal(entry.n_values, 1);
	view_free(&a);
	view_free(&b);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_read(map, 1, &entry), 0);
	assert_int_equal(value64(&entry, 3), 11);
	assert_int_equal(value64(&entry, 7), 9);
	map_free(map);
}

/*
 * Bytes that cannot be added: an instance in which nothing was written has none to offer, however
 * new it is, whether the others are there or gone; of a percpu map each value for itself.
 */
static void test_rest(void **state) {
	static const struct map_lane lanes[] = { { 0, 8 } };
	struct map_spec spec = spec_make(16, 2, MAP_MERGE_NONE);
	struct view a, b, idle;
	struct map_entry entry;
	struct map *map;

	for (int percpu = 0; percpu < 2; percpu++) {
		spec = spec_make(16, 2, percpu ? MAP_MERGE_PERCPU : MAP_MERGE_NONE);
		spec.lanes = lanes;
		spec.n_lanes = 1;
		map = map_make(&spec);
		a = view_make(map, 1, 0);
		b = view_make(map, 2, 0);
		idle = view_make(map, 3, 0);
		put64(&a, 16, 1);
		memcpy(a.data + 24, "one", 3);
		if (percpu) {
			put64(&b, spec.layout.shard_stride + 16, 2);
			memcpy(b.data + spec.layout.shard_stride + 24, "two", 3);
		}
		a.header->mirrored_ns = 5;
		b.header->mirrored_ns = 6;
		idle.header->mirrored_ns = 7;
		for (int gone = 0; gone < 4; gone++) {
			assert_int_equal(map_process_gone(map, (uint64_t)gone), 0);
			assert_int_equal(map_read(map, 1, &entry), 0);
			assert_int_equal(value64(&entry, 0), 1);
			assert_string_equal((const char *)entry.values + 8, "one");
			assert_int_equal(entry.n_values, percpu ? 2 : 1);
			if (percpu)
				assert_string_equal((const char *)entry.values + 24, "two");
		}
		view_free(&a);
		view_free(&b);
		view_free(&idle);
		map_free(map);
	}
}

/* A data section: what it starts with counts once; characters are the latest copy's. */
static void test_initial(void **state) {
	static const struct map_lane lanes[] = { { 0, 8 }, { 8, 4 } };
	static const unsigned char initial[] = { 100, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 'a', 'b' };
	struct map_spec spec = spec_make(16, 1, MAP_MERGE_NONE);
	struct map *map;
	struct view a, b;
	struct map_entry entry;

	spec.lanes = lanes;
	spec.n_lanes = 2;
	spec.initial = initial;
	spec.n_initial = sizeof(initial);
	map = map_make(&spec);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, initial, sizeof(initial));

	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	assert_memory_equal(a.data, initial, sizeof(initial));
	put64(&a, 0, 101);
	put64(&b, 0, 110);
	memcpy(b.data + 12, "zy", 2);
	a.header->mirrored_ns = 5;
	b.header->mirrored_ns = 6;
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_int_equal(value64(&entry, 0), 111);
	assert_int_equal(entry.values[8], 7);
	assert_memory_equal(entry.values + 12, "zy", 2);
	a.header->mirrored_ns = 7;
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values + 12, "ab", 2);

	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_int_equal(value64(&entry, 0), 111);
	assert_int_equal(entry.values[8], 7);
	assert_memory_equal(entry.values + 12, "ab", 2); /* the last to go */
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/*
 * A data section to which programs only add: instances start with zeros, the start is added once
 * when read.
 */
static void test_initial_sum(void **state) {
	const uint64_t initial[] = { 40, 7 };
	struct map_spec spec = spec_make(20, 1, MAP_MERGE_SUM64);
	struct map *map;
	struct view a, b;
	struct map_entry entry;

	spec.initial = "\x28\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0tail";
	spec.n_initial = 20;
	map = map_make(&spec);
	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	assert_int_equal(*(uint64_t *)(void *)a.data, 0);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, initial, 16);
	put64(&a, 0, 1);
	put64(&a, 3 * 128, 2);
	put64(&b, 128 + 8, 5);
	a.header->mirrored_ns = b.header->mirrored_ns = 9;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(map_read(map, 0, &entry), 0);
		assert_int_equal(value64(&entry, 0), 43);
		assert_int_equal(value64(&entry, 1), 12);
		assert_memory_equal(entry.values + 16, "tail", 4);
		assert_int_equal(map_process_gone(map, 2 - (uint64_t)i % 2), 0);
	}
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* An instance that never differed from the start (.rodata, a probe that never ran) needs no totals.
 */
static void test_untouched(void **state) {
	struct map_spec spec = spec_make(8, 1, MAP_MERGE_NONE);
	struct map *map;
	struct map_instance *instance;

	spec.initial = "constant";
	spec.n_initial = 8;
	map = map_make(&spec);
	assert_int_equal(map_instance_get(map, 1, 101, 0, 1, &instance), 0);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_null(map->totals);
	assert_int_equal(map_bytes(map), 8 + 2 * 8); /* the initial bytes, room for two elements */
	map_free(map);
}

static void test_quota(void **state) {
	struct map_spec spec = spec_make(8, 64 << 10, MAP_MERGE_NONE); /* 512 KiB and a header */
	struct map *map = map_make(&spec), *other;
	struct map_instance *instance;

	assert_int_equal(map_instance_get(map, 1, 101, 0, 1, &instance), 0);
	assert_int_equal(map_instance_get(map, 2, 102, 0, 2, &instance), MAP_E_QUOTA);
	assert_int_equal(map->n_instances, 1);
	assert_int_equal(map_new(&other, 8, 1, OWNER + 1, &spec, accounts), 0);
	assert_int_equal(map_instance_get(other, 2, 102, 0, 3, &instance), 0); /* another user's */
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_instance_get(map, 2, 102, 0, 4, &instance), 0);
	map_free(map);
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
	assert_int_not_equal(map_accounts_used(accounts, OWNER + 1), 0);
	map_free(other);
	assert_int_equal(map_accounts_used(accounts, OWNER + 1), 0);
}

static void test_cursor(void **state) {
	struct map_spec spec = spec_make(8, 100, MAP_MERGE_NONE);
	struct map *map = map_make(&spec);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_cursor cursor;
	struct map_entry entry;
	unsigned int n = 0;

	put64(&a, 8 * 10, 1);
	put64(&b, 8 * 10, 2);
	put64(&b, 8 * 99, 3);

	cursor = cursor_of(false, false, false);
	while (!map_next(map, &cursor, &entry))
		assert_int_equal(entry.index, n++);
	assert_int_equal(n, 100);

	cursor = cursor_of(false, true, false);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.index, 10);
	assert_int_equal(value64(&entry, 0), 3);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.index, 99);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_END);

	cursor = cursor_of(true, true, false);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 101);
	assert_int_equal(value64(&entry, 0), 1);
	assert_int_equal(map_process_gone(map, 1), 0); /* in the middle of a dump */
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 102);
	assert_int_equal(entry.index, 10);
	assert_int_equal(value64(&entry, 0), 2);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 0); /* those that are gone */
	assert_int_equal(entry.index, 10);
	assert_int_equal(value64(&entry, 0), 1);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 102);
	assert_int_equal(entry.index, 99);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_END);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* A dump of much that is zero gives control back now and then. */
static void test_budget(void **state) {
	struct map_spec spec = spec_make(8, 1 << 17, MAP_MERGE_NONE);
	struct map_cursor cursor;
	struct map_entry entry;
	struct map *map = map_make(&spec);
	unsigned int again = 0;
	int r;

	cursor = cursor_of(false, true, false);
	while ((r = map_next(map, &cursor, &entry)) == MAP_E_AGAIN)
		again++;
	assert_int_equal(r, MAP_E_END);
	assert_in_range(again, 0, 10);
	map->n_instances = 20; /* as if there were many to look at */
	cursor = cursor_of(false, true, false);
	for (again = 0; (r = map_next(map, &cursor, &entry)) == MAP_E_AGAIN; again++)
		;
	assert_int_equal(r, MAP_E_END);
	assert_in_range(again, 2, 1000);
	map->n_instances = 0;
	map_free(map);
}

/*
 * A process that dies in the middle of a copy, or lies: it is waited for once, and read all the
 * same.
 */
static void test_torn(void **state) {
	struct map_spec spec = spec_make(8, 4, MAP_MERGE_NONE);
	struct map *map = map_make(&spec);
	struct view a = view_make(map, 1, 0);
	struct map_entry entry;

	put64(&a, 0, 5);
	a.header->sequence = 3;
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_true(entry.torn);
	assert_int_equal(value64(&entry, 0), 5);
	assert_int_equal(a.instance->patience, 0);
	a.header->sequence = 4;
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_false(entry.torn);

	/* nothing in the header moves what is read */
	memset(a.header, 0xff, MAP_DATA_OFFSET);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_int_equal(value64(&entry, 0), 5);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(read64(map, 0), 5);
	view_free(&a);
	map_free(map);
}

static struct map_header *moving;
static unsigned int n_copies;

static void copy_while_it_moves(const struct map_instance *instance, uint64_t at,
				unsigned char *out) {
	n_copies++;
	moving->sequence += 2;
}

/* A process that says all the time that it has just copied: a few copies in vain, then one for each
 * read; and more again once it is quiet. */
static void test_moving(void **state) {
	struct map_spec spec = spec_make(8, 4, MAP_MERGE_NONE);
	struct map *map = map_make(&spec);
	struct view a = view_make(map, 1, 0);
	struct map_entry entry;
	unsigned char out[8];

	moving = a.header;
	n_copies = 0;
	for (int i = 0; i < 1000; i++)
		assert_false(map_instance_read(a.instance, copy_while_it_moves, 0, out));
	assert_in_range(n_copies, 1000, 1300);
	put64(&a, 0, 5);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(map_read(map, 0, &entry), 0);
		assert_false(entry.torn);
		assert_int_equal(value64(&entry, 0), 5);
	}
	n_copies = 0;
	assert_false(map_instance_read(a.instance, copy_while_it_moves, 0, out));
	assert_in_range(n_copies, 5, 20);
	view_free(&a);
	map_free(map);
}

/* What two instances that end with the bytes 0xff and 1 make of values of this size. */
static void assert_last_sum(const struct map_spec *spec, uint32_t expected) {
	struct map *map = map_make(spec);
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_entry entry;
	uint32_t found;

	assert_null(map->spec.lanes);
	assert_int_equal(map->own, 2 * spec->value_size);
	a.data[spec->value_size - 4] = 0xff;
	b.data[spec->value_size - 4] = 1;
	assert_int_equal(map_read(map, 0, &entry), 0);
	memcpy(&found, entry.values + spec->value_size - 4, 4);
	assert_int_equal(found, expected);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Without BTF: lanes of 8, 4 or 1 bytes, which nobody keeps a table of. With BTF that says "no
 * integer": none. */
static void test_lanes(void **state) {
	static const struct map_lane none, even[] = { { 0, 4 }, { 4, 4 }, { 8, 4 } },
					   odd[] = { { 0, 4 }, { 8, 4 } };
	struct map_spec spec = spec_make(12, 1, MAP_MERGE_NONE);
	struct map_entry entry;
	struct view a, b;
	struct map *map;

	assert_last_sum(&spec, 0x100);
	spec.lanes = even;
	spec.n_lanes = 3;
	assert_last_sum(&spec, 0x100);
	spec.lanes = odd;
	spec.n_lanes = 2;
	map = map_make(&spec);
	assert_int_equal(map->spec.n_lanes, 2);
	assert_int_equal(map->own, 2 * 12 + sizeof(odd));
	map_free(map);
	spec = spec_make(9, 1, MAP_MERGE_NONE);
	assert_last_sum(&spec, 0);
	spec = spec_make(1024, 1, MAP_MERGE_SUM64);
	spec.lanes = &none;
	assert_last_sum(&spec, 0x100);
	spec = spec_make(8, 1, MAP_MERGE_NONE);
	spec.lanes = &none;
	map = map_make(&spec);
	assert_non_null(map->spec.lanes);
	assert_int_equal(map->spec.n_lanes, 0);
	a = view_make(map, 1, 0);
	b = view_make(map, 2, 0);
	memcpy(a.data, "first!!", 8);
	memcpy(b.data, "second!", 8);
	a.header->mirrored_ns = 1;
	b.header->mirrored_ns = 2;
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_string_equal((const char *)entry.values, "second!");
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* value + or - other in a lane of this size. */
static void assert_lane(const unsigned char *before, const unsigned char *other,
			const unsigned char *value, const struct map_lane *lane, bool negative) {
	uint64_t a = 0, b = 0, sum;

	memcpy(&a, before + lane->offset, lane->size);
	memcpy(&b, other + lane->offset, lane->size);
	sum = negative ? a - b : a + b;
	assert_memory_equal(value + lane->offset, &sum, lane->size);
}

/* Integers of all sizes, side by side and apart, are added each by itself; what is between them
 * stays. */
static void test_value_add(void **state) {
	unsigned char before[256], other[256], value[256], lane_bytes[256];
	struct map_lane lanes[256];
	struct map_spec spec = {};

	srand(1);
	for (int round = 0; round < 2000; round++) {
		const bool negative = round % 2, even = round % 7 == 0;
		const uint32_t size = even ? 1 + (uint32_t)rand() % sizeof(value) : sizeof(value),
			       lane = size % 8 == 0   ? 8
				      : size % 4 == 0 ? 4
						      : 1;
		size_t n = 0;

		memset(lane_bytes, 0, sizeof(lane_bytes));
		for (uint32_t at = 0; at < size; n++) {
			lanes[n].size = even              ? lane
					: n && rand() % 8 ? lanes[n - 1].size
							  : UINT32_C(1) << rand() % 4;
			lanes[n].offset = at + (even || rand() % 8 ? 0 : (uint32_t)rand() % 5);
			at = lanes[n].offset + lanes[n].size;
			if (at > size)
				break;
			memset(lane_bytes + lanes[n].offset, 1, lanes[n].size);
		}
		for (size_t i = 0; i < sizeof(value); i++) {
			value[i] = before[i] = (unsigned char)(rand() % 3 ? rand() : -(rand() % 2));
			other[i] = (unsigned char)(rand() % 3 ? rand() : -(rand() % 2));
		}
		spec = (struct map_spec){ .value_size = size,
					  .lanes = even ? NULL : lanes,
					  .n_lanes = even ? 0 : n };
		map_value_add(&spec, value, other, negative);
		for (size_t i = 0; i < n; i++)
			assert_lane(before, other, value, &lanes[i], negative);
		for (size_t i = 0; i < sizeof(value); i++)
			assert_true(lane_bytes[i] || value[i] == before[i]);
		map_value_add(&spec, value, NULL, negative);
		map_value_add(&spec, value, other, !negative);
		assert_memory_equal(value, before, sizeof(value));
	}
}

static void test_names(void **state) {
	char buffer[16];

	assert_string_equal(map_type_name(BPF_MAP_TYPE_PERCPU_ARRAY, buffer), "percpu_array");
	assert_string_equal(map_type_name(1503, buffer), "gpu_array");
	assert_string_equal(map_type_name(4000000000u, buffer), "4000000000");
	assert_string_equal(map_merge_name(MAP_MERGE_SUM32), "sum32");
	assert_string_equal(map_merge_name(MAP_MERGE_LATEST), "latest");
	assert_string_equal(map_merge_name(99), "unknown");
	assert_string_equal(map_kind_name(MAP_KIND_RING), "ring");
	assert_string_equal(map_place_name(MAP_PLACE_KERNEL), "kernel");
	assert_string_equal(map_place_name(3), "unknown");
}

int main(void) {
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_instance),  TEST(test_layout_rules), TEST(test_sum64),
		TEST(test_sum32),     TEST(test_percpu),       TEST(test_rest),
		TEST(test_initial),   TEST(test_initial_sum),  TEST(test_untouched),
		TEST(test_quota),     TEST(test_cursor),       TEST(test_budget),
		TEST(test_torn),      TEST(test_moving),       TEST(test_lanes),
		TEST(test_value_add), TEST(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
