// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: each thread inserts keys of its own into maps that have room for few.
 * Element 0 of `counts` counts insertions, 1 those that failed.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define MAP(name, TYPE)                  \
	struct {                         \
		__uint(type, TYPE);      \
		__uint(max_entries, 16); \
		__type(key, __u64);      \
		__type(value, __u64);    \
	} name SEC(".maps")

MAP(lru, BPF_MAP_TYPE_LRU_HASH);
MAP(lru_percpu, BPF_MAP_TYPE_LRU_PERCPU_HASH);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void insert(void *map, __u64 key) {
	__u32 index = bpf_map_update_elem(map, &key, &key, BPF_ANY) != 0;
	__u64 *count = bpf_map_lookup_elem(&counts, &index);

	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("kprobe/vectorAdd")
int cuda__lru(void *ctx) {
	__u64 block, thread, unused;

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	thread += 1000 * (block + 1);
	insert(&lru, thread);
	insert(&lru, thread + 500);
	insert(&lru_percpu, thread);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
