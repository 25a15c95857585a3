/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * device-lib-hash.c on a CPU, for tests. Each access to memory calls step() first, a look that is
 * to be repeated look_again(), and what stands for an L1 cache is asked by weak_pair(): the test
 * defines these before it includes this.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;

static void step(void);
static void look_again(void);
static void weak_pair(u64 address, u64 *a, u64 *b);
static u32 shard(void);

static inline u64 host_load(u64 address) {
	step();
	return __atomic_load_n((u64 *)(uintptr_t)address, __ATOMIC_RELAXED);
}

static inline void host_store(u64 address, u64 value) {
	step();
	__atomic_store_n((u64 *)(uintptr_t)address, value, __ATOMIC_RELAXED);
}

static inline u64 host_compare_and_swap(u64 address, u64 expected, u64 value) {
	step();
	__atomic_compare_exchange_n((u64 *)(uintptr_t)address, &expected, value, 0,
				    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

static inline u64 host_add(u64 address, u64 value) {
	step();
	return __atomic_fetch_add((u64 *)(uintptr_t)address, value, __ATOMIC_ACQ_REL);
}

/* Two words that are read at once: CPUs promise that for one only, so the first one is read again.
 */
static inline void host_load_pair(u64 address, _Bool strong, u64 *a, u64 *b) {
	step();
	if (!strong) {
		weak_pair(address, a, b);
		return;
	}
	do {
		*a = __atomic_load_n((u64 *)(uintptr_t)address, __ATOMIC_ACQUIRE);
		*b = __atomic_load_n((u64 *)(uintptr_t)(address + 8), __ATOMIC_ACQUIRE);
	} while (__atomic_load_n((u64 *)(uintptr_t)address, __ATOMIC_RELAXED) != *a);
}

#define load(h, address) ((void)(h), host_load(address))
#define load_pair(h, address, strong, a, b) host_load_pair(address, strong, a, b)
#define store(h, address, value) ((void)(h), host_store(address, value))
#define compare_and_swap(h, address, expected, value) \
	((void)(h), host_compare_and_swap(address, expected, value))
#define add(h, address, value) host_add(address, value)
#define fence_all(h) __atomic_thread_fence(__ATOMIC_SEQ_CST)

#include "proto/map-layout.h"
#ifdef TEST_WINDOW
#undef MAP_HASH_WINDOW
#define MAP_HASH_WINDOW TEST_WINDOW
#endif
#include "device-lib-hash.c"

/* A map of `capacity` slots and no elements: keys of `key_size` bytes, values of 8. Free h->base.
 */
static void hash_init(struct hash *h, u32 capacity, u32 group_bits, u32 max_entries, u32 key_size,
		      _Bool immortal) {
	*h = (struct hash){
		.mask = capacity - 1,
		.group_bits = group_bits,
		.key_words = (key_size + 7) / 8,
		.shards = 1,
		.value_stride = 8,
		.max_entries = max_entries,
		.small = key_size <= 4,
		.immortal = immortal,
	};
	/* room for `used`, which LRU maps have */
	h->stride = (8 + 8 * h->key_words + 8 + 8 + 15) / 16 * 16;
	h->base = (u64)(uintptr_t)aligned_alloc(
		128, (sizeof(struct map_hash) + capacity * h->stride + 127) / 128 * 128);
	if (!h->base)
		abort();
	memset((void *)(uintptr_t)h->base, 0, sizeof(struct map_hash) + capacity * h->stride);
}

/* Slot number i in memory. */
static inline const u64 *slot_at(const struct hash *h, u64 i) {
	return (const u64 *)(uintptr_t)(h->base + sizeof(struct map_hash) + i * h->stride);
}

static inline u64 hash_lookup(const struct hash *h, const u64 *key) {
	struct element element = find(h, key, !h->immortal);

	if (element.found != !!element.value)
		abort();
	return element.value;
}

static inline long hash_update(const struct hash *h, const u64 *key, u64 value, u64 flags) {
	struct hash_value stored = { (const char *)&value, sizeof(value), 1 };

	return update(h, key, &stored, flags);
}

/*
 * What a program does that counts: true if it was counted. False: the map is full. An element that
 * goes away again in between is looked for again.
 */
static inline _Bool hash_count(const struct hash *h, const u64 *key) {
	for (;;) {
		u64 value = hash_lookup(h, key);
		long r;

		if (value) {
			host_add(value, 1);
			return 1;
		}
		r = hash_update(h, key, 1, HASH_NOEXIST);
		if (!r)
			return 1;
		if (r == -HASH_E2BIG)
			return 0;
	}
}

/* Called without steps, while no thread works on the map: NULL, or what is wrong with it. */
static inline const char *hash_check(const struct hash *h) {
	const struct map_hash *header = (const void *)(uintptr_t)h->base;
	u32 live = 0;

	for (u64 i = 0; i <= h->mask; i++) {
		const u64 *slot = slot_at(h, i);
		u64 state = *slot & MAP_SLOT_STATE_MASK;

		if (state != MAP_SLOT_EMPTY && state != MAP_SLOT_DEAD && state != MAP_SLOT_LIVE)
			return "a slot that somebody is at";
		live += state == MAP_SLOT_LIVE;
		for (u64 j = 0; state == MAP_SLOT_LIVE && j < i; j++) {
			const u64 *other = slot_at(h, j);

			if ((*other & MAP_SLOT_STATE_MASK) == MAP_SLOT_LIVE &&
			    !memcmp(slot + 1, other + 1, 8 * h->key_words))
				return "two elements with one key";
		}
	}
	if (live > h->max_entries)
		return "more elements than max_entries";
	if (header->count != live || header->taken != live)
		return "a count that is not that of the elements";
	return NULL;
}
