// SPDX-License-Identifier: Apache-2.0
/* Counts the threads that enter a kernel. */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__counter(void *ctx) {
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counter, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
