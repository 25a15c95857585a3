// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: it updates an array of type 1503. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

SEC("kprobe/vectorAdd")
int update(void *ctx) /* a GPU program because of its map */
{
	__u32 key = bpf_get_lane_id();
	__u64 value = 1;

	bpf_map_update_elem(&slots, &key, &value, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
