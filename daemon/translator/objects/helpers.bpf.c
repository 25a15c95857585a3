// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: it calls every helper of places and times. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

static __always_inline void put(__u32 key, __u64 x) {
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value)
		*value = x;
}

SEC("gpu/every")
int every(void *ctx) {
	__u64 x, y, z;

	put(2, bpf_get_globaltimer());
	bpf_get_block_idx(&x, &y, &z);
	put(3, x + y + z);
	bpf_get_block_dim(&x, &y, &z);
	put(4, x + y + z);
	bpf_get_thread_idx(&x, &y, &z);
	put(5, x + y + z);
	bpf_gpu_membar();
	bpf_get_grid_dim(&x, &y, &z);
	put(8, x + y + z);
	put(9, bpf_get_sm_id());
	put(10, bpf_get_warp_id());
	put(11, bpf_get_lane_id());
	put(12, bpf_ktime_get_ns());
	put(13, bpf_get_smp_processor_id());
	put(14, bpf_get_prandom_u32());
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
