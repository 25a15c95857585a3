/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of device-lib-hash.c: where it looks for a key. A path goes through each slot once.
 * Keys that are consecutive numbers share cache lines and rarely meet; no other regular keys pile
 * up.
 */

#include <stdbool.h>
#include <stdio.h>

#include "test-hash.h"

#define CAPACITY 8192
#define KEYS (CAPACITY / 2)

static unsigned long steps;

static void step(void) {
	steps++;
}

static void look_again(void) {
}

static void weak_pair(u64 address, u64 *a, u64 *b) {
	*a = *(u64 *)(uintptr_t)address;
	*b = *(u64 *)(uintptr_t)(address + 8);
}

static u32 shard(void) {
	return 0;
}

/* Whether the paths of some keys go through each slot of a map once. */
static bool is_complete(u32 capacity, u32 group_bits) {
	struct hash h = {
		.mask = capacity - 1, .group_bits = group_bits, .stride = 1, .key_words = 1
	};
	bool complete = true;

	for (u64 key = 1; complete && key < 1ull << 40; key *= 7) {
		bool *seen = calloc(capacity, sizeof(*seen));
		u64 hash = hash_key(&h, &key);

		for (u64 n = 0; seen && n < capacity; n++) {
			u64 slot = hash_slot(&h, hash, n) - sizeof(struct map_hash);

			complete = complete && slot < capacity && !seen[slot];
			seen[slot % capacity] = true;
		}
		complete = complete && seen;
		free(seen);
	}
	return complete;
}

/* How many slots are looked at for each of the keys 0, stride, 2 * stride, ..., in the mean. */
static double mean_length(u32 group_bits, u64 stride) {
	struct hash h;
	double mean;

	hash_init(&h, CAPACITY, group_bits, KEYS, 8, true);
	for (u64 i = 0; i < KEYS; i++) {
		u64 key[] = { i * stride, 0 };

		if (hash_update(&h, key, 1, HASH_NOEXIST))
			abort();
	}
	steps = 0;
	for (u64 i = 0; i < KEYS; i++) {
		u64 key[] = { i * stride, 0 };

		if (!hash_lookup(&h, key))
			abort();
	}
	mean = (double)steps / KEYS;
	free((void *)(uintptr_t)h.base);
	return mean;
}

/* Cache lines that `n` keys in a row begin at. */
static u32 count_lines(u32 group_bits, u64 first, u32 n) {
	struct hash h = {
		.mask = CAPACITY - 1, .group_bits = group_bits, .stride = 32, .key_words = 1
	};
	bool seen[CAPACITY / 4] = { false };
	u32 lines = 0;

	for (u64 key = first; key < first + n; key++) {
		u64 line = (hash_slot(&h, hash_key(&h, &key), 0) - sizeof(struct map_hash)) / 128;

		lines += !seen[line];
		seen[line] = true;
	}
	return lines;
}

int main(void) {
	int failed = 0;

	for (u32 group_bits = 0; group_bits <= 2; group_bits++) {
		for (u32 capacity = 1u << group_bits; capacity <= 1024; capacity *= 2)
			if (!is_complete(capacity, group_bits))
				failed = printf("%u slots, %u bits: not each once\n", capacity,
						group_bits);
		for (u64 odd = 1; odd < 64; odd += 2)
			for (u32 shift = 0; shift < 48; shift++) {
				double mean = mean_length(group_bits, odd << shift);

				if (mean > (odd << shift == 1 ? 1.5 : 4))
					failed = printf("%llu << %u, %u bits: mean of %.2f\n", odd,
							shift, group_bits, mean);
			}
	}
	if (count_lines(2, 0, 32) != 8 || count_lines(2, 1ull << 40, 4) != 1)
		failed = printf("neighbours in %u lines\n", count_lines(2, 0, 32));
	return failed != 0;
}
