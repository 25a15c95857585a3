/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of maps other than plain arrays: MAP_MERGE_LATEST, per-thread arrays, memory of the
 * host and of Linux, rings; and what hostile processes write. Hash maps: test-map-hash.c.
 */

#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring.h"
#include "test-map-view.h"

static struct map_accounts *accounts;

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

static uint64_t read64(struct map *map, uint32_t index) {
	struct map_entry entry;

	assert_int_equal(map_read(map, index, &entry), 0);
	return value64(&entry, 0);
}

/* ---- the latest ---- */

static void put_stamped(struct view *view, uint64_t shard, uint32_t index, uint64_t value,
			uint64_t stamp) {
	const struct map_layout *layout = &view->instance->map->spec.layout;

	put64(view, shard * layout->shard_stride + index * 16, value);
	put64(view, shard * layout->shard_stride + index * 16 + 8, stamp);
}

/* The highest stamp counts, over shards, instances and those that are gone. */
static void test_stamped(void **state) {
	struct map *map = map_of(
		&(struct map_shape){ BPF_MAP_TYPE_ARRAY, 4, 8, 3, .merge = MAP_MERGE_LATEST });
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_cursor cursor = cursor_of(true, true, false);
	struct map_entry entry;

	assert_int_equal(map->spec.layout.shards, 256);
	assert_int_equal(read64(map, 1), 0);
	put_stamped(&a, 0, 1, 10, 100);
	put_stamped(&a, 255, 1, 11, 200);
	put_stamped(&a, 7, 1, 12, 150);
	put_stamped(&b, 3, 1, 20, 180);
	put_stamped(&b, 3, 2, 0, 5); /* written: a zero */
	a.header->mirrored_ns = 1;
	b.header->mirrored_ns = 2; /* of no meaning here */
	assert_int_equal(read64(map, 1), 11);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 101);
	assert_int_equal(entry.index, 1);
	assert_int_equal(value64(&entry, 0), 11);
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.pid, 102);
	assert_int_equal(value64(&entry, 0), 20);
	assert_int_equal(map_next(map, &cursor, &entry), MAP_E_END);

	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(read64(map, 1), 11);
	put_stamped(&b, 4, 1, 21, 201);
	assert_int_equal(read64(map, 1), 21);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(read64(map, 1), 21);
	assert_int_equal(read64(map, 0), 0);
	view_free(&a);
	a = view_make(map, 3, 0);
	put_stamped(&a, 0, 1, 30, 199);
	assert_int_equal(map_process_gone(map, 3), 0); /* not the latest, though the last to go */
	assert_int_equal(read64(map, 1), 21);
	assert_int_equal(map_bytes(map), map->own + 3 * 16);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* What a data section starts with shows until something is written. */
static void test_stamped_initial(void **state) {
	struct map_spec spec = spec_of(
		&(struct map_shape){ BPF_MAP_TYPE_ARRAY, 4, 4, 1, .merge = MAP_MERGE_LATEST });
	struct map_entry entry;
	struct map *map;
	struct view a;

	spec.initial = "\x05\0\0";
	spec.n_initial = 3;
	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	a = view_make(map, 1, 0);
	assert_int_equal(*(uint64_t *)(void *)a.data, 0);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, "\x05\0\0\0", 4);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_null(map->totals);
	view_free(&a);
	a = view_make(map, 2, 0);
	put_stamped(&a, 9, 0, 0, 1);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, "\0\0\0\0", 4);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(map_read(map, 0, &entry), 0);
	assert_memory_equal(entry.values, "\0\0\0\0", 4);
	view_free(&a);
	map_free(map);
}

static uint64_t latest64(struct map *map, uint32_t index) {
	struct map_cursor cursor = cursor_of(false, false, true);
	struct map_entry entry;

	cursor.index = index;
	assert_int_equal(map_next(map, &cursor, &entry), 0);
	assert_int_equal(entry.index, index);
	return value64(&entry, 0);
}

/* Asked for the latest, the value is that of the instance mirrored last, also when it is gone. */
static void test_order_latest(void **state) {
	struct map *map = map_of(
		&(struct map_shape){ BPF_MAP_TYPE_ARRAY, 4, 8, 2, .merge = MAP_MERGE_SUM64 });
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);

	put64(&a, 0, 5);
	put64(&a, 128, 6);
	put64(&b, 0, 7);
	put64(&b, 8, 9);
	assert_int_equal(latest64(map, 0), 0); /* nothing was mirrored yet */
	a.header->mirrored_ns = 10;
	assert_int_equal(latest64(map, 0), 11);
	assert_int_equal(latest64(map, 1), 0);
	b.header->mirrored_ns = 20;
	assert_int_equal(latest64(map, 0), 7);
	assert_int_equal(latest64(map, 1), 9);
	assert_int_equal(read64(map, 0), 18);

	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(latest64(map, 1), 9); /* it still is the newest */
	a.header->mirrored_ns = 30;
	assert_int_equal(latest64(map, 0), 11);
	a.header->mirrored_ns = 15;
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(latest64(map, 0), 7);
	assert_int_equal(read64(map, 0), 18);
	view_free(&a);
	a = view_make(map, 3, 0); /* does nothing, but is the newest */
	a.header->mirrored_ns = 40;
	assert_int_equal(latest64(map, 0), 0);
	assert_int_equal(map_process_gone(map, 3), 0);
	assert_int_equal(latest64(map, 0), 0);
	assert_int_equal(read64(map, 0), 18);
	assert_int_equal(map_bytes(map), map->own + 2 * 8);

	view_free(&b);
	b = view_make(map, 4, 0); /* says that it is of the future, until it is gone */
	put64(&b, 0, 1);
	b.header->mirrored_ns = UINT64_MAX;
	view_free(&a);
	a = view_make(map, 5, 0);
	put64(&a, 0, 2);
	a.header->mirrored_ns = UINT64_MAX / 2;
	assert_int_equal(latest64(map, 0), 1);
	assert_int_equal(map_process_gone(map, 4), 0);
	assert_int_equal(latest64(map, 0), 2);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* What a data section starts with is not in the instances of a map that sums. */
static void test_order_latest_initial(void **state) {
	struct map_spec spec = spec_of(
		&(struct map_shape){ BPF_MAP_TYPE_ARRAY, 4, 8, 1, .merge = MAP_MERGE_SUM64 });
	struct map *map;
	struct view a;

	spec.initial = "\x64";
	spec.n_initial = 1;
	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	assert_int_equal(latest64(map, 0), 100);
	a = view_make(map, 1, 0);
	put64(&a, 0, 5);
	a.header->mirrored_ns = 1;
	for (int pass = 0; pass < 2; pass++) {
		assert_int_equal(latest64(map, 0), 105);
		assert_int_equal(read64(map, 0), 105);
		assert_int_equal(map_process_gone(map, 1), 0);
	}
	view_free(&a);
	map_free(map);
}

/* ---- per-thread arrays ---- */

static void put_thread(struct view *view, uint64_t index, uint64_t thread, uint64_t value) {
	put64(view, (index * view->instance->map->spec.layout.threads + thread) * 8, value);
}

static void assert_thread(struct map *map, struct map_cursor *cursor, pid_t pid, uint32_t index,
			  uint32_t thread, uint64_t value) {
	struct map_entry entry;

	assert_int_equal(next_entry(map, cursor, &entry), 0);
	assert_int_equal(entry.pid, pid);
	assert_int_equal(entry.index, index);
	assert_memory_equal(entry.key, &index, sizeof(index));
	assert_int_equal(entry.thread, thread);
	assert_int_equal(entry.n_values, 1);
	assert_int_equal(value64(&entry, 0), value);
}

static void assert_end(struct map *map, struct map_cursor *cursor) {
	struct map_entry entry;

	assert_int_equal(next_entry(map, cursor, &entry), MAP_E_END);
}

static void test_threads(void **state) {
	struct map *map = map_of(&(struct map_shape){ 1502, 4, 8, 3, .threads = 2000 });
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	struct map_cursor cursor;

	put_thread(&a, 0, 5, 1);
	put_thread(&b, 0, 5, 2);
	put_thread(&a, 2, 1999, 7);
	put_thread(&b, 2, 600, UINT64_MAX);
	put_thread(&a, 2, 600, 1); /* the sum is zero */

	cursor = cursor_of(false, true, false);
	assert_thread(map, &cursor, 0, 0, 5, 3);
	assert_thread(map, &cursor, 0, 2, 1999, 7);
	assert_end(map, &cursor);

	cursor = cursor_of(false, false, false); /* up to the last that is not zero */
	for (uint32_t i = 0; i < 5; i++)
		assert_thread(map, &cursor, 0, 0, i, 0);
	assert_thread(map, &cursor, 0, 0, 5, 3);
	for (uint32_t i = 0; i < 1999; i++)
		assert_thread(map, &cursor, 0, 2, i, 0);
	assert_thread(map, &cursor, 0, 2, 1999, 7);
	assert_end(map, &cursor);

	cursor = cursor_of(true, true, false);
	assert_thread(map, &cursor, 101, 0, 5, 1);
	assert_thread(map, &cursor, 102, 0, 5, 2);
	assert_thread(map, &cursor, 101, 2, 600, 1);
	assert_int_equal(map_process_gone(map, 1), 0); /* in the middle of its threads */
	assert_thread(map, &cursor, 102, 2, 600, UINT64_MAX);
	assert_thread(map, &cursor, 0, 2, 600, 1);
	assert_thread(map, &cursor, 0, 2, 1999, 7);
	assert_end(map, &cursor);

	b.header->mirrored_ns = 5;
	cursor = cursor_of(false, true, true);
	assert_thread(map, &cursor, 0, 0, 5, 2);
	assert_thread(map, &cursor, 0, 2, 600, UINT64_MAX);
	assert_end(map, &cursor);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Many threads that are zeros: no step takes long, nothing is missed at the ends of runs. */
static void test_threads_many(void **state) {
	const uint32_t threads = (2 << 20) + 3;
	struct map *map = map_of(&(struct map_shape){ 1502, 4, 8, 1, .threads = threads });
	struct view a = view_make(map, 1, 0);
	struct map_cursor cursor = cursor_of(false, true, false);
	const uint32_t some[] = { 0, 511, 512, 1536, 1 << 20, threads - 4, threads - 1 };
	const size_t n_some = sizeof(some) / sizeof(*some);
	struct map_entry entry;
	unsigned int again = 0;
	int r;

	while ((r = map_next(map, &cursor, &entry)) == MAP_E_AGAIN)
		again++;
	assert_int_equal(r, MAP_E_END);
	assert_in_range(again, 3, 100); /* 32 MiB to look at, that is two instances, by 8 */
	cursor = cursor_of(false, false, false);
	for (again = 0; (r = map_next(map, &cursor, &entry)) == MAP_E_AGAIN; again++)
		;
	assert_int_equal(r, MAP_E_END);
	assert_in_range(again, 3, 100);

	for (size_t i = 0; i < n_some; i++)
		put_thread(&a, 0, some[i], some[i] + 1);
	for (int pass = 0; pass < 2; pass++) {
		cursor = cursor_of(false, true, false);
		for (size_t i = 0; i < n_some; i++)
			assert_thread(map, &cursor, 0, 0, some[i], some[i] + 1);
		assert_end(map, &cursor);
		assert_int_equal(map_process_gone(map, 1), 0); /* the second time from the totals */
	}
	view_free(&a);
	map_free(map);
}

/* ---- memory of the host and of the kernel ---- */

/* The memfd is the data: there is no copy that could be under way. */
static void test_host(void **state) {
	struct map *map = map_of(&(struct map_shape){ 1513, 4, 8, 4 });
	struct view shared = view_make(map, 1, 0);
	struct map_instance *same;
	struct map_entry entry;

	assert_int_equal(map->spec.layout.place, MAP_PLACE_HOST);
	assert_int_equal(map_instance_get(map, 1, 0, 0, 5, &same), 0);
	assert_ptr_equal(same, shared.instance);
	put64(&shared, 8, 3);
	shared.header->sequence = 7;
	assert_int_equal(map_read(map, 1, &entry), 0);
	assert_int_equal(value64(&entry, 0), 3);
	assert_false(entry.torn);
	assert_int_equal(latest64(map, 1), 3);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(read64(map, 1), 3);
	view_free(&shared);
	map_free(map);
}

/* A memfd stands for the kernel's map, which is mapped in the same way. */
static void test_kernel(void **state) {
	struct map_spec spec =
		spec_of(&(struct map_shape){ 1504, 4, 12, 300, .place = MAP_PLACE_KERNEL });
	struct map_instance *again;
	struct map *map = NULL;
	struct view view;

	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), -EBADF);
	assert_int_equal(map_accounts_used(accounts, OWNER), 0);
	spec.kernel_fd = memfd_create("kernel", MFD_CLOEXEC);
	assert_int_equal(ftruncate(spec.kernel_fd, 8192), 0);
	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	close(spec.kernel_fd); /* the map has its own */
	assert_int_equal(map->n_instances, 1);
	assert_int_equal(map_bytes(map), map->own + 8192);

	view = view_make(map, 3, 1);
	assert_int_equal(view.instance->size, 8192);
	assert_int_equal(view.instance->id, 2003);
	assert_int_equal(view.instance->pid, 0);
	assert_int_equal(map_instance_get(map, 4, 104, 0, 9, &again), 0);
	assert_ptr_equal(again, view.instance);
	assert_int_equal(again->id, 2003);
	assert_ptr_equal(again->data, again->bytes); /* no header */
	put64(&view, 299 * 16, 5);
	assert_int_equal(read64(map, 299), 5);
	assert_int_equal(map_process_gone(map, 3), 0);
	assert_int_equal(read64(map, 299), 5);
	assert_int_equal(map->n_instances, 1);
	view_free(&view);
	map_free(map);
}

/* One of the kernel, which host programs write to; skipped where there are none. */
static void test_kernel_array(void **state) {
	struct map_spec spec =
		spec_of(&(struct map_shape){ 1504, 4, 12, 300, .place = MAP_PLACE_KERNEL });
	union bpf_attr create = { .map_type = BPF_MAP_TYPE_ARRAY,
				  .key_size = 4,
				  .value_size = 12,
				  .max_entries = 300,
				  .map_flags = BPF_F_MMAPABLE };
	const uint32_t key = 299;
	union bpf_attr access = { .key = (uintptr_t)&key };
	struct map *map = NULL;
	struct map_entry entry;
	struct view view;
	char value[16];

	spec.kernel_fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &create, sizeof(create));
	if (spec.kernel_fd < 0)
		skip();
	assert_int_equal(map_new(&map, 7, 1, OWNER, &spec, accounts), 0);
	access.map_fd = (uint32_t)spec.kernel_fd;
	access.value = (uintptr_t)"from a host";
	assert_int_equal(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &access, sizeof(access)), 0);
	assert_int_equal(map_read(map, key, &entry), 0);
	assert_memory_equal(entry.values, "from a host", 12);
	view = view_make(map, 3, 1);
	memcpy(view.data + key * 16, "from a GPU!", 12);
	access.value = (uintptr_t)value;
	assert_int_equal(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &access, sizeof(access)), 0);
	assert_memory_equal(value, "from a GPU!", 12);
	close(spec.kernel_fd);
	view_free(&view);
	map_free(map);
}

/* ---- rings ---- */

/* One record of 8 bytes, as a GPU writes it. Returns the position behind it. */
static uint64_t put_record(struct view *view, uint32_t ring, uint64_t position, uint64_t value) {
	const struct map_layout *layout = &view->instance->map->spec.layout;
	struct map_ring *control = (struct map_ring *)(void *)view->data + ring;
	unsigned char *at = (unsigned char *)view->header + map_host_offset(layout) +
			    map_ring_offset(layout, ring) + (position & (layout->ring_size - 1));
	struct map_batch batch = { map_ring_stamp(position, control->cookie), 8, 1, 1, 0, 0 };

	memcpy(at, &batch, sizeof(batch));
	memcpy(at + sizeof(batch), &value, sizeof(value));
	control->head = position + 64;
	control->written++;
	return control->head;
}

static bool take(const struct ring_batch *batch, void *userdata) {
	uint64_t value;

	assert_int_equal(batch->size, 8);
	memcpy(&value, batch->records, sizeof(value));
	*(uint64_t *)userdata += value;
	return true;
}

static uint64_t consume(struct map_instance *instance) {
	static unsigned char scratch[RING_SCRATCH_SIZE];
	uint64_t sum = 0;

	while (ring_consume(instance->consumer, scratch, 1 << 20, take, &sum) != RING_E_EMPTY)
		;
	return sum;
}

static struct map *ring_map(void) {
	return map_of(
		&(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096, .ring_bytes = 64 << 10 });
}

static void test_ring(void **state) {
	struct map *map = ring_map();
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);
	const struct map_ring *rings = (const void *)a.data, *others = (const void *)b.data;
	struct map_cursor cursor = cursor_of(false, false, false);
	struct map_instance *instance = a.instance;

	assert_int_equal(map->spec.layout.rings, 4);
	assert_int_equal(a.size, 8192 + 4096 + (64 << 10));
	assert_int_equal(map_bytes(map), map->own + 2 * a.size);
	assert_int_not_equal(rings[3].cookie, 0);
	assert_int_not_equal(rings[3].cookie, others[3].cookie);
	assert_int_equal(rings[0].head | rings[0].tail | rings[0].base, 0);
	assert_end(map, &cursor);

	assert_int_equal(put_record(&a, 2, put_record(&a, 2, 0, 5), 6), 128);
	((struct map_ring *)(void *)a.data)->lost = 4;
	assert_int_equal(consume(instance), 11);
	assert_int_equal(*(uint64_t *)(void *)(instance->host + 2 * MAP_RING_TAIL_STRIDE), 128);
	assert_int_equal(map_written(map), 2);
	assert_int_equal(map_lost(map), 4);

	put_record(&a, 2, 128, 7);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_true(instance->gone); /* there is something to be read */
	assert_int_equal(map->n_instances, 1);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_ptr_equal(map->instances, instance); /* the other one was empty */
	assert_null(instance->next);
	assert_int_equal(map->n_instances, 0);
	map_reap(map);
	assert_ptr_equal(map->instances, instance);
	assert_int_equal(consume(instance), 7);
	map_reap(map);
	assert_null(map->instances);
	assert_int_equal(map_bytes(map), 0);
	assert_int_equal(map_written(map), 3);
	assert_int_equal(map_lost(map), 4);
	view_free(&a);
	view_free(&b);
	map_free(map);
}

/* Rings that are gone and that nobody reads make room for new ones. */
static void test_ring_quota(void **state) {
	struct map_accounts *all = accounts;
	struct map_instance *instance;
	struct map *map;
	struct view a;

	assert_int_equal(map_accounts_new(&accounts, 160 << 10), 0); /* two of them */
	map = ring_map();
	for (uint64_t process = 1; process <= 2; process++) {
		a = view_make(map, process, 0);
		put_record(&a, 0, put_record(&a, 0, 0, 1), process);
		view_free(&a);
	}
	assert_int_equal(map_instance_get(map, 3, 103, 0, 3, &instance), MAP_E_QUOTA);
	assert_int_equal(map_process_gone(map, 1), 0);
	assert_int_equal(map_process_gone(map, 2), 0);
	assert_int_equal(map_instance_get(map, 3, 103, 0, 3, &instance), 0);
	assert_int_equal(map_lost(map), 2); /* those of the first */
	assert_int_equal(map_written(map), 4);
	assert_int_equal(consume(map->instances), 3);
	assert_int_equal(map->n_instances, 1);
	map_free(map);
	map_accounts_free(accounts);
	accounts = all;
}

/* They do not pile up either: the newest stay. */
static void test_ring_pile(void **state) {
	const uint64_t fit = MAP_GONE_BYTES_MAX / (8 << 20); /* with the headers one less */
	struct map_accounts *all = accounts;
	unsigned int n = 0;
	struct map *map;
	struct view a;

	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 30), 0);
	map = map_of(&(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096 }); /* of 8 MiB */
	for (uint64_t process = 1; process <= fit + 2; process++) {
		a = view_make(map, process, 0);
		put_record(&a, 0, 0, process);
		view_free(&a);
		assert_int_equal(map_process_gone(map, process), 0);
	}
	for (struct map_instance *i = map->instances; i; i = i->next, n++)
		assert_int_equal(consume(i), i->process);
	assert_int_equal(n, fit - 1);
	assert_int_equal(map->instances->process, 4);
	assert_int_equal(map_lost(map), 3);
	map_reap(map);
	assert_null(map->instances);
	map_free(map);
	map_accounts_free(accounts);
	accounts = all;
}

/* ---- hostile processes ---- */

static uint64_t noise(uint64_t *seed) {
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* Whatever a process writes, every dump ends, and so does the process. */
static void test_garbage(void **state) {
	static const struct map_shape shapes[] = {
		{ BPF_MAP_TYPE_ARRAY, 4, 12, 5 },
		{ BPF_MAP_TYPE_ARRAY, 4, 8, 5, .merge = MAP_MERGE_SUM64 },
		{ BPF_MAP_TYPE_ARRAY, 4, 8, 5, .merge = MAP_MERGE_LATEST },
		{ BPF_MAP_TYPE_PERCPU_ARRAY, 4, 4, 3 },
		{ 1502, 4, 8, 2, .threads = 600 },
		{ 1512, 4, 4, 2, .threads = 7 },
		{ BPF_MAP_TYPE_HASH, 16, 8, 100 },
		{ BPF_MAP_TYPE_HASH, 3, 12, 100, .place = MAP_PLACE_HOST },
		{ BPF_MAP_TYPE_PERCPU_HASH, 8, 8, 3 },
		{ BPF_MAP_TYPE_LRU_HASH, 8, 8, 100 },
		{ BPF_MAP_TYPE_LRU_PERCPU_HASH, 3, 8, 3 },
		{ 1527, 4, 16, 1, .ring_bytes = 32 << 10 },
	};
	uint64_t seed = 88172645463325252;
	struct map_entry entry;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		struct map *map = map_of(&shapes[i]);
		struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);

		for (uint64_t at = 0; at + 8 <= a.size; at += 8) {
			uint64_t word = noise(&seed);

			memcpy((unsigned char *)a.header + at, &word, 8);
			word = noise(&seed) % 3 ? 0 : noise(&seed);
			memcpy((unsigned char *)b.header + at, &word, 8);
		}
		for (unsigned int order = 0; order < 16; order++) {
			struct map_cursor cursor = cursor_of(order & 1, order & 2, order & 4);

			while (!next_entry(map, &cursor, &entry))
				assert_in_range(entry.n_values, 1, map->n_values);
			map_cursor_deinit(&cursor);
			assert_in_range(map_written(map), 0, INT64_MAX);
			if (order == 7)
				assert_int_equal(map_process_gone(map, 1), 0);
		}
		assert_int_equal(map_process_gone(map, 2), 0);
		assert_in_range(map_lost(map), 0, INT64_MAX);
		view_free(&a);
		view_free(&b);
		map_free(map);
	}
}

int main(void) {
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_stamped),      TEST(test_stamped_initial),
		TEST(test_order_latest), TEST(test_order_latest_initial),
		TEST(test_threads),      TEST(test_threads_many),
		TEST(test_host),         TEST(test_kernel),
		TEST(test_kernel_array), TEST(test_ring),
		TEST(test_ring_quota),   TEST(test_ring_pile),
		TEST(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
