// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator with a program on the host and one on the GPU, and maps shared in
 * each possible way. It also has host programs that cannot be attached.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define MAP(NAME, TYPE)                 \
	struct {                        \
		__uint(type, TYPE);     \
		__uint(max_entries, 8); \
		__type(key, __u32);     \
		__type(value, __u64);   \
	} NAME SEC(".maps")

MAP(shared, BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY_MAP);
MAP(plain, BPF_MAP_TYPE_ARRAY);
MAP(host_only, BPF_MAP_TYPE_HASH);
MAP(gpu_only, BPF_MAP_TYPE_GPU_ARRAY_MAP);
MAP(hash, BPF_MAP_TYPE_HASH);
MAP(gpu_both, BPF_MAP_TYPE_GPU_ARRAY_MAP);
MAP(gpu_both_in_host, BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP);
MAP(gpu_hash, BPF_MAP_TYPE_GPU_HASH_MAP);

__u64 calls; /* in .bss */

static __always_inline void add(void *map, __u32 key) {
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("uprobe//proc/self/exe:host_target")
int on_host(void *ctx) {
	__u32 key = 7;
	__u64 one = 1;

	add(&shared, 0);
	add(&plain, 1);
	bpf_map_update_elem(&host_only, &key, &one, BPF_ANY);
	__sync_fetch_and_add(&calls, 1);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__on_gpu(void *ctx) {
	add(&shared, 2);
	add(&plain, 3);
	add(&gpu_only, 0);
	__sync_fetch_and_add(&calls, 1);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__gpu_arrays(void *ctx) {
	add(&gpu_both, 2);
	add(&gpu_both_in_host, 2);
	add(&gpu_only, 2);
	return 0;
}

SEC("uprobe//proc/self/exe:host_target")
int on_host_gpu_arrays(void *ctx) {
	add(&gpu_both, 1);
	add(&gpu_both_in_host, 1);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__table(void *ctx) {
	add(&gpu_hash, 0);
	return 0;
}

SEC("uprobe//proc/self/exe:host_target")
int on_host_table(void *ctx) {
	add(&gpu_hash, 0);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__hash(void *ctx) {
	add(&hash, 0);
	return 0;
}

SEC("uprobe//proc/self/exe:host_target")
int on_host_hash(void *ctx) {
	add(&hash, 0);
	return 0;
}

SEC("uprobe//proc/self/exe:no_such_function")
int on_nothing(void *ctx) {
	return 0;
}

SEC("uprobe//proc/self/exe:host_target")
int on_host_bad(void *ctx) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&host_only, &key);

	return *value;
}

char LICENSE[] SEC("license") = "GPL";
