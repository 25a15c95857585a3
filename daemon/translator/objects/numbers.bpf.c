// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: helpers of lanes, of numbers and of atomic changes. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

static __u64 table[64];

static __always_inline void put(__u32 key, __u64 x) {
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value)
		*value = x;
}

SEC("gpu/lanes")
int lanes(void *ctx) {
	__u64 lane = bpf_get_lane_id();

	put(15, bpf_warp_active() + bpf_warp_is_leader());
	put(16, bpf_warp_ballot(lane & 1));
	put(17, bpf_warp_any(lane == 3) + bpf_warp_all(lane < 9));
	put(18, bpf_warp_match(lane & 3));
	put(19, bpf_warp_shuffle(lane, 5) + bpf_warp_shuffle_up(lane, 1));
	put(20, bpf_warp_shuffle_down(lane, 2) + bpf_warp_shuffle_xor(lane, 4));
	put(21, bpf_warp_sum(lane));
	return 0;
}

SEC("gpu/numbers")
int numbers(void *ctx) {
	__u64 lane = bpf_get_lane_id();
	__u32 key = 22;
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value) {
		bpf_atomic_min_u64(value, lane);
		bpf_atomic_max_u64(value, lane);
		bpf_atomic_min_s64((__s64 *)value, lane);
		bpf_atomic_max_s64((__s64 *)value, lane);
		bpf_atomic_add_f64(value, bpf_float_convert(lane, GPUPROBE_U64, GPUPROBE_F64));
	}
	table[bpf_log2(lane)] = 1; /* 0 to 63, as the verifier knows */
	put(23, bpf_float_compare(lane, lane + 1, GPUPROBE_F32));
	put(24, bpf_float_class(lane, GPUPROBE_BF16));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
