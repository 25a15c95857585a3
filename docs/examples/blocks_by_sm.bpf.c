// SPDX-License-Identifier: Apache-2.0
/*
 * Which SMs the blocks of a grid run on, as a kernel of its own: gpuprobectl run blocks_by_sm.bpf.o
 * --grid 1000. The value of an SM is the number of its blocks.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

SEC("kprobe/__directly_run")
int cuda__blocks_by_sm(void *ctx) {
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&blocks, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
