/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of maps for bpf-run, which runs a translated program on the CPU: prepares instances and
 * reads keys, values and records out of them.
 */

#include "bpf-run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COOKIE UINT64_C(0x0123456789abcdef)

size_t instance_size(const struct map_layout *layout) {
	return layout->data_size + layout->host_size;
}

void instance_init(const struct map_layout *layout, uint8_t *memory, uint64_t address,
		   uint64_t head, uint64_t tail) {
	uint64_t host = address + layout->data_size;

	if (!tail && head >= layout->ring_size)
		tail = head - layout->ring_size;
	for (uint32_t i = 0; i < layout->rings; i++) {
		struct map_ring ring = {
			.base = host + map_ring_offset(layout, i),
			.tail_address = host + i * MAP_RING_TAIL_STRIDE,
			.cookie = COOKIE + i,
			.head = head,
			.tail = tail,
		};

		memcpy(memory + layout->data_size + i * MAP_RING_TAIL_STRIDE, &head, sizeof(head));
		memcpy(memory + i * sizeof(ring), &ring, sizeof(ring));
	}
}

static int append(struct bytes *bytes, const void *data, size_t size) {
	uint8_t *larger = realloc(bytes->data, bytes->size + size + 8);

	if (!larger)
		return -ENOMEM;
	memcpy(larger + bytes->size, data, size);
	bytes->data = larger;
	bytes->size += size;
	return 0;
}

/* Adds lanes of copies, `stride` bytes apart, or takes the copy with the latest stamp. */
static void merge_value(const struct map_layout *layout, const uint8_t *copies, uint64_t stride,
			uint32_t size, uint8_t *value) {
	size_t lane = layout->merge == MAP_MERGE_SUM32 ? 4 : 8;
	uint64_t latest = 0, sum, piece, stamp;

	memset(value, 0, size);
	if (layout->merge == MAP_MERGE_LATEST) {
		for (uint32_t s = 0; s < layout->shards; s++) {
			memcpy(&stamp, copies + s * stride + 8, 8);
			if (stamp > latest) {
				latest = stamp;
				memcpy(value, copies + s * stride, size);
			}
		}
		return;
	}
	for (size_t at = 0; at < size; at += lane) {
		sum = 0;
		for (uint32_t s = 0; s < layout->shards; s++) {
			piece = 0;
			memcpy(&piece, copies + s * stride + at, lane);
			sum += piece;
		}
		memcpy(value + at, &sum, at + lane > size ? size - at : lane);
	}
}

static int read_array(const struct translate_map *map, const struct map_layout *layout,
		      const uint8_t *memory, struct bytes *bytes) {
	uint8_t *value = malloc(map->value_size + 8);
	int r = value ? 0 : -ENOMEM;

	for (uint32_t i = 0; !r && i < map->max_entries; i++) {
		merge_value(layout, memory + i * layout->value_stride, layout->shard_stride,
			    map->value_size, value);
		r = append(bytes, value, map->value_size);
	}
	free(value);
	return r;
}

static int read_threads(const struct translate_map *map, const struct map_layout *layout,
			const uint8_t *memory, struct bytes *bytes) {
	int r = 0;

	for (uint64_t i = 0; !r && i < (uint64_t)map->max_entries * layout->threads; i++)
		r = append(bytes, memory + i * layout->value_stride, map->value_size);
	return r;
}

static size_t sort_key_size; /* qsort() has no argument for it */

static int compare_keys(const void *a, const void *b) {
	return memcmp(a, b, sort_key_size);
}

static int read_hash(const struct translate_map *map, const struct map_layout *layout,
		     const uint8_t *memory, struct bytes *bytes) {
	size_t key = map_round_up(map->key_size, 8), element = map->key_size + map->value_size;
	uint8_t *value = malloc(map->value_size + 8);
	uint64_t word;
	int r = value ? 0 : -ENOMEM;

	for (uint64_t i = 0; !r && i < layout->capacity; i++) {
		const uint8_t *slot = memory + sizeof(struct map_hash) + i * layout->entry_stride;

		memcpy(&word, slot, 8);
		if ((word & MAP_SLOT_STATE_MASK) != MAP_SLOT_LIVE)
			continue;
		merge_value(layout, slot + 8 + key, layout->value_stride, map->value_size, value);
		r = append(bytes, slot + 8, map->key_size);
		if (!r)
			r = append(bytes, value, map->value_size);
	}
	free(value);
	sort_key_size = map->key_size;
	if (!r && bytes->size)
		qsort(bytes->data, bytes->size / element, element, compare_keys);
	return r;
}

/* The batches of all rings, in the order in which they are found. */
struct batches {
	struct bytes *items; /* each: u32 size, u32 count, records */
	size_t n;
	uint64_t records;
};

static int add_batch(struct batches *batches, const struct translate_map *map,
		     const struct map_batch *batch, const uint8_t *records) {
	size_t size = (size_t)batch->size * batch->count;
	struct bytes *larger = realloc(batches->items, (batches->n + 1) * sizeof(*larger)), *item;
	int r;

	if (!larger)
		return -ENOMEM;
	batches->items = larger;
	item = larger + batches->n++;
	*item = (struct bytes){ 0 };
	r = append(item, &batch->size, sizeof(batch->size));
	if (!r)
		r = append(item, &batch->count, sizeof(batch->count));
	if (!r)
		r = append(item, records, size);
	for (uint32_t i = 0; !r && map->log && i < batch->count; i++) /* the time */
		memset(item->data + 8 + (size_t)batch->size * i, 0, 8);
	batches->records += batch->count;
	return r;
}

/* Each record of a batch as a batch of its own. */
static int add_records(struct batches *batches, const struct translate_map *map,
		       const struct map_batch *batch, const uint8_t *records) {
	struct map_batch one = { .size = batch->size, .count = 1 };
	int r = 0;

	for (uint32_t i = 0; !r && i < batch->count; i++)
		r = add_batch(batches, map, &one, records + (size_t)batch->size * i);
	return r;
}

static int compare_batches(const void *a, const void *b) {
	const struct bytes *x = a, *y = b;
	int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);

	return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int read_ring(const struct translate_map *map, const struct map_layout *layout,
		     const struct map_ring *ring, uint32_t number, const uint8_t *memory,
		     uint64_t head, bool records, struct batches *batches) {
	const uint8_t *data = memory + layout->data_size + map_ring_offset(layout, number);
	struct map_batch batch;
	int r = 0;

	for (uint64_t at = head; !r && at < ring->head;) {
		uint64_t left = layout->ring_size - (at & (layout->ring_size - 1)), size;
		const uint8_t *place = data + (at & (layout->ring_size - 1));

		memcpy(&batch, place, sizeof(batch));
		if (batch.stamp != map_ring_stamp(at, ring->cookie) || batch.count > 32)
			return -EINVAL;
		if (!batch.count) {
			if (batch.size)
				return -EINVAL;
			at += left;
			continue;
		}
		size = sizeof(batch) + (uint64_t)batch.size * batch.count;
		if ((unsigned)__builtin_popcountll(batch.lanes) != batch.count || size > left)
			return -EINVAL;
		r = records ? add_records(batches, map, &batch, place + sizeof(batch))
			    : add_batch(batches, map, &batch, place + sizeof(batch));
		at += map_round_up(size, MAP_BATCH_ALIGN);
	}
	return r;
}

static int read_rings(const struct translate_map *map, const struct map_layout *layout,
		      const uint8_t *memory, uint64_t head, bool records, struct bytes *bytes) {
	struct batches batches = { 0 };
	uint32_t sums[2] = { 0, 0 };
	struct map_ring ring;
	int r = 0;

	for (uint32_t i = 0; !r && i < layout->rings; i++) {
		memcpy(&ring, memory + i * sizeof(ring), sizeof(ring));
		sums[0] += (uint32_t)ring.lost;
		sums[1] += (uint32_t)ring.written;
		r = read_ring(map, layout, &ring, i, memory, head, records, &batches);
	}
	if (!r && batches.records != sums[1])
		r = -EINVAL;
	if (!r)
		r = append(bytes, sums, sizeof(sums));
	if (!r && batches.n)
		qsort(batches.items, batches.n, sizeof(*batches.items), compare_batches);
	for (size_t i = 0; i < batches.n; i++) {
		if (!r)
			r = append(bytes, batches.items[i].data, batches.items[i].size);
		free(batches.items[i].data);
	}
	free(batches.items);
	return r;
}

int instance_read(const struct translate_map *map, const struct translate_map_result *result,
		  const uint8_t *memory, uint64_t head, bool records, struct bytes *bytes) {
	const struct map_layout *layout = &result->layout;
	int r = 0;

	*bytes = (struct bytes){ 0 };
	if (!memory && map_kind_of(map->type) == MAP_KIND_ARRAY) {
		bytes->size = (size_t)map->value_size * map->max_entries;
		bytes->data = calloc(bytes->size + 8, 1);
		return bytes->data ? 0 : -ENOMEM;
	}
	if (!memory)
		return 0;
	switch (layout->kind) {
	case MAP_KIND_ARRAY:
		r = read_array(map, layout, memory, bytes);
		break;
	case MAP_KIND_THREADS:
		r = read_threads(map, layout, memory, bytes);
		break;
	case MAP_KIND_HASH:
		r = read_hash(map, layout, memory, bytes);
		break;
	default:
		r = read_rings(map, layout, memory, head, records, bytes);
	}
	if (r) {
		free(bytes->data);
		*bytes = (struct bytes){ 0 };
	}
	return r;
}
