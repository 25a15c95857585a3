/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A test on a GPU. All threads of a GPU work on one hash at once, and in the end all that they did
 * is accounted for.
 *
 *     hash-contention count|churn PTX ENTRIES KEYS THREADS ROUNDS
 *
 * PTX: what bpf-run --ptx made of hash.bpf.c with a map of type 1, keys and values of 8 bytes and
 * ENTRIES entries; of the one with DELETES for churn. Runs on whichever libcuda.so.1 there is. Exit
 * code: 0 right, 1 wrong, 77 no CUDA driver or device.
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/map-layout.h"

#define BLOCK 256

struct plan {
	uint64_t keys, rounds;
	uint64_t inserted, deleted, refused, odd;
};

struct test {
	bool churn;
	const char *ptx;
	uint64_t entries, keys, threads, rounds;
	struct map_layout layout;
	struct plan plan;
	uint8_t *map;
};

/* Ends the program unless a call of the driver worked. */
static void must(int result, const char *what) {
	if (result == 0)
		return;
	fprintf(stderr, "hash-contention: %s: error %d\n", what, result);
	exit(1);
}

static char *read_file(const char *path) {
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!file || getdelim(&text, &size, '\0', file) < 0) {
		fprintf(stderr, "hash-contention: cannot read %s\n", path);
		exit(1);
	}
	fclose(file);
	return text;
}

#define CALL(name, types, ...) must(((int(*) types)dlsym(driver, name))(__VA_ARGS__), name)

static uint64_t upload(void *driver, const void *bytes, size_t size) {
	uint64_t address;

	CALL("cuMemAlloc_v2", (uint64_t *, size_t), &address, size);
	CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), address, bytes, size);
	return address;
}

/* Runs the program in all threads; the map and the plan are then what they are. */
static void run(struct test *test, void *driver) {
	uint64_t map = upload(driver, test->map, test->layout.data_size);
	uint64_t plan = upload(driver, &test->plan, sizeof(test->plan));
	uint64_t arguments[] = { plan, sizeof(test->plan) };
	uint64_t argument = upload(driver, arguments, sizeof(arguments));
	uint64_t result = upload(driver, &map, sizeof(map)), slot, slots = 0;
	void *module, *function, *parameters[] = { &argument, &result, &slots };
	char *text = read_file(test->ptx);
	size_t size;

	CALL("cuModuleLoadData", (void **, const void *), &module, text);
	CALL("cuModuleGetGlobal_v2", (uint64_t *, size_t *, void *, const char *), &slot, &size,
	     module, "__gpuprobe_m0");
	CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), slot, &map, sizeof(map));
	CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "bpf_run");
	CALL("cuLaunchKernel",
	     (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
	      void **, void **),
	     function, (unsigned)((test->threads + BLOCK - 1) / BLOCK), 1, 1, BLOCK, 1, 1, 0, NULL,
	     parameters, NULL);
	must(((int (*)(void))dlsym(driver, "cuCtxSynchronize"))(), "cuCtxSynchronize");
	CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), test->map, map, test->layout.data_size);
	CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), &test->plan, plan, sizeof(test->plan));
	free(text);
}

static int wrong(const char *what, uint64_t got, uint64_t want) {
	printf("wrong: %s: %llu, not %llu\n", what, (unsigned long long)got,
	       (unsigned long long)want);
	return 1;
}

/* How often the threads count each key. */
static uint64_t *expected_counts(const struct test *test) {
	uint64_t threads = (test->threads + BLOCK - 1) / BLOCK * BLOCK;
	uint64_t *counts = calloc(test->keys, sizeof(*counts));

	for (uint64_t r = 0; counts && r < test->rounds; r++) {
		uint64_t first = r * 977 % test->keys, rest = threads % test->keys;

		for (uint64_t k = 0; k < test->keys; k++)
			counts[(first + k) % test->keys] += threads / test->keys + (k < rest);
	}
	if (!counts)
		exit(1);
	return counts;
}

/* The elements are different keys of those that there are, with the values that they should have.
 */
static int check_elements(const struct test *test, uint64_t *n, uint64_t *sum) {
	uint64_t *counts = expected_counts(test), word, key, value;
	uint8_t *seen = calloc(test->keys, 1);
	int r = 0;

	for (uint64_t i = 0; !r && seen && i < test->layout.capacity; i++) {
		const uint8_t *slot =
			test->map + sizeof(struct map_hash) + i * test->layout.entry_stride;

		memcpy(&word, slot, 8);
		memcpy(&key, slot + 8, 8);
		memcpy(&value, slot + 16, 8);
		switch (word & MAP_SLOT_STATE_MASK) {
		case MAP_SLOT_EMPTY:
		case MAP_SLOT_DEAD:
			continue;
		case MAP_SLOT_LIVE:
			break;
		default:
			r = wrong("state of a slot that nobody is at", word & 7, MAP_SLOT_DEAD);
			continue;
		}
		if (key >= test->keys || seen[key]++)
			r = wrong("a key that is none, or there twice", key, 0);
		else if (value != (test->churn ? ~key : counts[key]))
			r = wrong("a value", value, test->churn ? ~key : counts[key]);
		(*n)++;
		*sum += value;
	}
	free(counts);
	free(seen);
	return r;
}

static int check(const struct test *test) {
	uint64_t threads = (test->threads + BLOCK - 1) / BLOCK * BLOCK, n = 0, sum = 0;
	const struct plan *plan = &test->plan;
	struct map_hash header;
	int r = check_elements(test, &n, &sum);

	memcpy(&header, test->map, sizeof(header));
	if (r)
		return r;
	if (plan->odd)
		return wrong("results that no call gives", plan->odd, 0);
	if (n > test->entries)
		return wrong("elements", n, test->entries);
	if (header.count != n || header.taken != n)
		return wrong("the map's count", header.count, n);
	if (test->churn) {
		if (plan->inserted - plan->deleted != n)
			return wrong("insertions less deletions", plan->inserted - plan->deleted,
				     n);
		return plan->inserted && plan->deleted ? 0 : wrong("calls that worked", 0, 1);
	}
	if (sum + plan->refused != threads * test->rounds)
		return wrong("all counts", sum + plan->refused, threads * test->rounds);
	if (test->keys <= test->entries && plan->refused)
		return wrong("refused though there is room", plan->refused, 0);
	if (n != (test->keys < test->entries ? test->keys : test->entries))
		return wrong("elements", n, test->entries);
	return 0;
}

int main(int argc, char **argv) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	struct test test = { 0 };
	struct map_shape shape = { .type = 1, .key_size = 8, .value_size = 8 };
	int device, failed;

	if (argc != 7) {
		fprintf(stderr,
			"usage: hash-contention count|churn PTX ENTRIES KEYS THREADS ROUNDS\n");
		return 64;
	}
	if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0)
		return 77;
	test.churn = strcmp(argv[1], "churn") == 0;
	test.ptx = argv[2];
	test.entries = strtoull(argv[3], NULL, 0);
	test.plan.keys = test.keys = strtoull(argv[4], NULL, 0);
	test.threads = strtoull(argv[5], NULL, 0);
	test.plan.rounds = test.rounds = strtoull(argv[6], NULL, 0);
	shape.max_entries = (uint32_t)test.entries;
	if (map_layout_init(&test.layout, &shape) || !test.keys || !test.threads)
		return 64;
	test.map = calloc(1, test.layout.data_size);
	if (!test.map)
		return 1;
	CALL("cuDeviceGet", (int *, int), &device, 0);
	CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
	CALL("cuCtxSetCurrent", (void *), context);
	run(&test, driver);
	failed = check(&test);
	free(test.map);
	if (failed)
		return 1;
	printf("right: %llu refused, %llu inserted, %llu deleted\n",
	       (unsigned long long)test.plan.refused, (unsigned long long)test.plan.inserted,
	       (unsigned long long)test.plan.deleted);
	return 0;
}
