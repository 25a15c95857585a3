/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. What processes write into the instances of a map. The input: a struct of numbers
 * that says what the map is, then bytes that go into two instances, over and over until they are
 * full: all of the first, header included, and the second with the words of the bytes at places
 * that the words before them say. Every dump must end, stay within the map's sizes, and give back
 * what it took.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/map/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct numbers {
	uint16_t type;
	uint8_t place, merge;
	uint16_t key_size, value_size;
	uint8_t max_entries, threads, order, gone;
	uint32_t reserved;
};

static unsigned char *view_of(const struct map_instance *instance) {
	unsigned char *bytes =
		mmap(NULL, instance->size, PROT_READ | PROT_WRITE, MAP_SHARED, instance->fd, 0);

	if (bytes == MAP_FAILED)
		abort();
	return bytes;
}

static void fill(const struct map_instance *instance, const uint8_t *data, size_t size) {
	unsigned char *bytes = view_of(instance);

	for (uint64_t at = 0; size && at < instance->size; at += size)
		memcpy(bytes + at, data, size < instance->size - at ? size : instance->size - at);
	munmap(bytes, instance->size);
}

static void scatter(const struct map_instance *instance, const uint8_t *data, size_t size) {
	unsigned char *bytes = view_of(instance);
	uint64_t place;

	for (; size >= 16; data += 16, size -= 16) {
		memcpy(&place, data, sizeof(place));
		memcpy(bytes + place % (instance->size / 8) * 8, data + 8, 8);
	}
	munmap(bytes, instance->size);
}

static void dump(struct map *map, const struct map_order *order) {
	struct map_cursor cursor;
	struct map_entry entry;
	volatile unsigned char sink;
	int r;

	map_cursor_init(&cursor, order);
	while ((r = map_next(map, &cursor, &entry)) == 0 || r == MAP_E_AGAIN) {
		if (r)
			continue;
		if (!entry.n_values || entry.n_values > map->n_values)
			abort();
		sink = entry.key[map->spec.key_size - 1];
		sink = entry.values[entry.n_values * map->spec.value_size - 1];
	}
	if (r != MAP_E_END)
		abort();
	map_cursor_deinit(&cursor);
	(void)sink;
}

static bool take(const struct ring_batch *batch, void *userdata) {
	volatile unsigned char sink = batch->records[batch->count * batch->size - 1];

	(void)sink;
	return true;
}

static void consume(struct map *map) {
	static unsigned char scratch[RING_SCRATCH_SIZE];

	for (struct map_instance *i = map->instances; i; i = i->next) {
		if (!i->consumer)
			continue;
		ring_consumer_limit(i->consumer, true);
		while (ring_consume(i->consumer, scratch, 4096, take, NULL) != RING_E_EMPTY)
			;
	}
	map_reap(map);
}

static void run(struct map *map, const struct numbers *numbers, const uint8_t *data, size_t size) {
	struct map_instance *first, *second;
	struct map_order order = { numbers->order & 1, numbers->order & 2, numbers->order & 4 };

	if (map_instance_get(map, 1, 101, 0, 1, &first) ||
	    map_instance_get(map, 2, 102, 0, 2, &second))
		abort();
	fill(first, data, size);
	scatter(second, data, size);
	dump(map, &order);
	map_process_gone(map, numbers->gone & 1 ? 1 : 2);
	order.latest = !order.latest;
	dump(map, &order);
	consume(map);
	map_process_gone(map, numbers->gone & 1 ? 2 : 1);
	dump(map, &order);
	consume(map);
	if (map_written(map) > INT64_MAX || map_lost(map) > INT64_MAX || map->n_instances)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct map_accounts *accounts;
	struct numbers numbers;
	struct map_spec spec = { .name = "fuzzed", .kernel_fd = -1 };
	struct map *map = NULL;

	if (size < sizeof(numbers))
		return 0;
	memcpy(&numbers, data, sizeof(numbers));
	spec.type = numbers.type;
	spec.key_size = numbers.key_size;
	spec.value_size = numbers.value_size;
	spec.max_entries = numbers.max_entries;
	if (map_layout_init(&spec.layout,
			    &(struct map_shape){ spec.type, spec.key_size, spec.value_size,
						 spec.max_entries, numbers.place % 2, numbers.merge,
						 numbers.threads, 16 << 10 }) ||
	    spec.layout.data_size > (size % 8 ? 1 << 18 : 1 << 20)) /* a large one takes 16 ms */
		return 0;
	if (map_accounts_new(&accounts, UINT64_C(1) << 30))
		abort();
	if (!map_new(&map, 1, 1, 1000, &spec, accounts)) {
		run(map, &numbers, data + sizeof(numbers), size - sizeof(numbers));
		map_free(map);
	}
	if (map_accounts_used(accounts, 1000))
		abort();
	map_accounts_free(accounts);
	return 0;
}
