/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of device-lib-hash.c with real threads and real memory: nothing is counted twice,
 * lost, or put where there is no room.
 *
 *     test-hash-threads [ROUNDS]
 */

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#define HASH_POLITE 8
#define HASH_PATIENT (1u << 24) /* a thread that holds room may sleep for long here */

#include "test-hash.h"

#define N_THREADS 6
#define KEY_WORDS 5

struct workload {
	const char *name;
	u32 n_keys, max_entries, capacity, group_bits, key_size;
	u32 calls; /* of a thread */
	bool deletes, evicts;
};

static struct {
	const struct workload *workload;
	struct hash hash;
	pthread_barrier_t start;
	u64 *inserted, *deleted; /* of each key: successful calls */
	u64 refused;
} shared;

static void step(void) {
}

static void look_again(void) {
	sched_yield();
}

static void weak_pair(u64 address, u64 *a, u64 *b) {
	host_load_pair(address, 1, a, b);
}

static u32 shard(void) {
	return 0;
}

static void make_key(u64 i, u64 *key) {
	memset(key, 0, KEY_WORDS * sizeof(*key));
	key[0] = i * 0x10001 & 0xffffffff;
	key[shared.hash.key_words - 1] |= i << 20 & 0xffffffff;
}

/* One call of a workload that deletes: inserts or deletes, and keeps account. */
static void churn(u64 i, const u64 *key, bool insert) {
	long r =
		insert ? hash_update(&shared.hash, key, i, HASH_NOEXIST) : erase(&shared.hash, key);

	if (r == 0)
		__atomic_add_fetch(&(insert ? shared.inserted : shared.deleted)[i], 1,
				   __ATOMIC_RELAXED);
}

/* One call of a workload that evicts: what is found is what was inserted; and inserted if it was
 * not. */
static void replace(u64 i, const u64 *key) {
	u64 value = hash_lookup(&shared.hash, key);
	long r = value ? 0 : hash_update(&shared.hash, key, i, HASH_NOEXIST);

	if (r == -HASH_E2BIG)
		__atomic_add_fetch(&shared.refused, 1, __ATOMIC_RELAXED);
}

static void *thread_main(void *argument) {
	const struct workload *w = shared.workload;
	u64 random = (u64)(uintptr_t)argument;
	u64 key[KEY_WORDS];

	pthread_barrier_wait(&shared.start);
	for (u32 n = 0; n < w->calls; n++) {
		u64 i = n % w->n_keys;

		if (w->deletes || w->evicts) {
			random = map_hash_mix(random, n);
			i = random % w->n_keys;
		}
		make_key(i, key);
		if (w->evicts)
			replace(i, key);
		else if (w->deletes)
			churn(i, key, random >> 40 & 1);
		else if (hash_count(&shared.hash, key))
			__atomic_add_fetch(&shared.inserted[i], 1, __ATOMIC_RELAXED);
		else
			__atomic_add_fetch(&shared.refused, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* What is wrong in the end, or NULL. */
static const char *check(const struct workload *w) {
	const struct map_hash *header = (const void *)(uintptr_t)shared.hash.base;
	u64 key[KEY_WORDS];

	if (w->evicts && shared.refused)
		return "full, though it evicts";
	if (w->evicts)
		return header->count == w->max_entries ? hash_check(&shared.hash)
						       : "not as full as it may be";
	for (u32 i = 0; i < w->n_keys; i++) {
		u64 value;

		make_key(i, key);
		value = hash_lookup(&shared.hash, key);
		if (w->deletes && (value != 0) != shared.inserted[i] - shared.deleted[i])
			return "insertions and deletions do not match";
		if (!w->deletes && (value ? host_load(value) : 0) != shared.inserted[i])
			return "a count is wrong";
	}
	if (!w->deletes &&
	    header->count != (w->n_keys < w->max_entries ? w->n_keys : w->max_entries))
		return "not all elements are there";
	if (!w->deletes && !shared.refused != (w->n_keys <= w->max_entries))
		return "refused though there is room, or the reverse";
	return hash_check(&shared.hash);
}

static int run(const struct workload *w) {
	pthread_t threads[N_THREADS];
	const char *wrong;

	shared.workload = w;
	shared.refused = 0;
	hash_init(&shared.hash, w->capacity, w->group_bits, w->max_entries, w->key_size,
		  !w->deletes && !w->evicts);
	shared.hash.lru = w->evicts;
	shared.inserted = calloc(w->n_keys, sizeof(u64));
	shared.deleted = calloc(w->n_keys, sizeof(u64));
	if (!shared.inserted || !shared.deleted ||
	    pthread_barrier_init(&shared.start, NULL, N_THREADS))
		abort();
	for (uintptr_t t = 0; t < N_THREADS; t++)
		if (pthread_create(&threads[t], NULL, thread_main, (void *)(t + 1)))
			abort();
	for (u32 t = 0; t < N_THREADS; t++)
		pthread_join(threads[t], NULL);
	wrong = check(w);
	pthread_barrier_destroy(&shared.start);
	free(shared.inserted);
	free(shared.deleted);
	free((void *)(uintptr_t)shared.hash.base);
	if (wrong)
		printf("%s: %s\n", w->name, wrong);
	return wrong != NULL;
}

static const struct workload workloads[] = {
	{ "one key at once", 1, 1, 64, 0, 8, 4, false },
	{ "one key", 1, 1, 64, 0, 4, 20000, false },
	{ "64 keys at once", 64, 64, 128, 2, 8, 64, false },
	{ "1000 keys of 40 bytes", 1000, 1000, 2048, 1, 40, 2000, false },
	{ "more keys than room", 96, 64, 128, 2, 4, 960, false },
	{ "few keys come and go", 4, 2, 64, 0, 8, 20000, true },
	{ "keys of 40 bytes come and go", 64, 24, 64, 2, 40, 20000, true },
	{ "one small key comes and goes", 1, 1, 64, 0, 4, 20000, true },
	{ "all are evicted", 96, 16, 64, 0, 8, 20000, false, true },
	{ "few are evicted", 40, 32, 128, 2, 4, 20000, false, true },
};

int main(int argc, char **argv) {
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 20;
	size_t n = sizeof(workloads) / sizeof(workloads[0]);

	for (unsigned long round = 0; round < rounds; round++)
		for (size_t i = 0; i < n; i++)
			if (run(&workloads[i]))
				return 1;
	printf("%zu workloads, %lu rounds\n", n, rounds);
	return 0;
}
