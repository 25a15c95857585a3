// SPDX-License-Identifier: Apache-2.0
/*
 * An array that all threads share: counter[0] grows by one for each thread that leaves vectorAdd.
 * See docs/guides/shared-array.md, also for what the update loses when threads meet.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

SEC("kretprobe/vectorAdd")
int cuda__retprobe(void *ctx) {
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counter, &key), next;

	if (!count)
		return 0;
	next = *count + 1;
	bpf_map_update_elem(&counter, &key, &next, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
