// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: a host program writes to a map of a GPU type. Element 0 counts
 * threads; 1 and 2 belong to the host program.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} both SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__count(void *ctx) {
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&both, &zero);

	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

SEC("uprobe/libcuda.so.1:cuLaunchKernel")
int host(void *ctx) {
	__u32 key = 1;
	__u64 seven = 7, *value;

	bpf_map_update_elem(&both, &key, &seven, BPF_ANY);
	key = 2;
	value = bpf_map_lookup_elem(&both, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
