// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: counts the threads of a kernel once in each type of map. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define MAP(NAME, TYPE, KEY, ENTRIES)         \
	struct {                              \
		__uint(type, TYPE);           \
		__uint(max_entries, ENTRIES); \
		__type(key, KEY);             \
		__type(value, __u64);         \
	} NAME SEC(".maps")

MAP(array, BPF_MAP_TYPE_ARRAY, __u32, 2);
MAP(gpu_array, BPF_MAP_TYPE_GPU_ARRAY_MAP, __u32, 2);
MAP(host_array, BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP, __u32, 2);
MAP(percpu, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, 2);
MAP(threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP, __u32, 2);
MAP(host_threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST_MAP, __u32, 2);
MAP(hash, BPF_MAP_TYPE_HASH, __u64, 64);
MAP(gpu_hash, BPF_MAP_TYPE_GPU_HASH_MAP, __u32, 64);
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, __u32, 64);
MAP(small, BPF_MAP_TYPE_GPU_HASH_MAP, __u64, 10);
MAP(results, BPF_MAP_TYPE_ARRAY, __u32, 16);

__u64 entered; /* .bss */

static __always_inline void count(void *map, void *key) {
	__u64 *value = bpf_map_lookup_elem(map, key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

static __always_inline void result(__u32 key) {
	count(&results, &key);
}

static __always_inline void count_key(void *map, void *key) {
	__u64 *value = bpf_map_lookup_elem(map, key), one = 1;

	if (!value) {
		if (bpf_map_update_elem(map, key, &one, BPF_NOEXIST) == 0)
			return;
		value = bpf_map_lookup_elem(map, key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
	else
		result(0);
}

SEC("kprobe/vectorAdd")
int cuda__maps(void *ctx) {
	__u64 block, size, thread, unused, wide, *value;
	__u32 one = 1, key, beyond = 2;

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_block_dim(&size, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	thread += block * size;
	__sync_fetch_and_add(&entered, 1);
	count(&array, &one);
	count(&gpu_array, &one);
	count(&host_array, &one);
	count(&percpu, &one);
	value = bpf_map_lookup_elem(&threads, &one);
	if (value)
		*value += thread;
	else
		result(1); /* a thread beyond --threads */
	value = bpf_map_lookup_elem(&host_threads, &one);
	if (value)
		*value += thread;
	if (bpf_map_lookup_elem(&threads, &beyond) || bpf_map_lookup_elem(&gpu_array, &beyond))
		result(2);
	wide = (thread & 63) << 32;
	count_key(&hash, &wide);
	key = thread & 15;
	count_key(&gpu_hash, &key);
	count_key(&percpu_hash, &key);
	/* as many keys as threads, room for ten */
	wide = thread;
	switch (bpf_map_update_elem(&small, &wide, &size, BPF_NOEXIST)) {
	case 0:
		result(3);
		break;
	case -7: /* E2BIG */
		result(4);
		break;
	case -17: /* EEXIST */
		result(5);
		break;
	}
	/* those that got in: out and in again */
	if (bpf_map_delete_elem(&small, &wide) == 0)
		result(6);
	else
		result(7);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
