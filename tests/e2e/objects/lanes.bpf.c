// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e and tests/gpu: sums of what is the same in all lanes, and what helpers
 * of lanes, numbers and atomic changes give. The results hold however warps are split.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct accesses {
	__u64 bytes;
	__u64 spaces;
	__u64 kinds;
};

struct threads {
	__u64 summed; /* by leaders: of 1 for each lane */
	__u64 leaders;
	__u64 wrong; /* lanes for which helpers contradict one another */
	__u64 block_dims; /* sum of x */
	__u64 highest; /* index of a thread */
	__s64 lowest; /* the same, less 1000 */
	double halves; /* 0.5 for each thread */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct accesses);
} moved SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct threads);
} seen SEC(".maps");

SEC("memcapture/accesses")
int cuda__accesses(struct gpuprobe_memory_ctx *ctx) {
	__u32 key = 0;
	struct accesses *sum = bpf_map_lookup_elem(&moved, &key);

	if (!sum)
		return 0;
	__sync_fetch_and_add(&sum->bytes, ctx->size);
	__sync_fetch_and_add(&sum->spaces, ctx->space);
	__sync_fetch_and_add(&sum->kinds, ctx->kind * 100);
	return 0;
}

static __always_inline int is_consistent(__u64 lane) {
	__u64 active = bpf_warp_active(), first = active & -active;

	if (!(active >> (lane & 31) & 1) || !bpf_warp_any(1) || bpf_warp_any(0))
		return 0;
	if (!bpf_warp_all(1) || bpf_warp_ballot(0))
		return 0;
	return bpf_warp_match(7) == bpf_warp_ballot(1) &&
	       (bpf_warp_shuffle(lane, bpf_log2(first)) <= lane) &&
	       bpf_warp_shuffle_xor(lane, 32) == lane && bpf_warp_shuffle_up(lane, 1) <= lane &&
	       bpf_warp_shuffle_down(lane, 1) >= lane;
}

SEC("kprobe/vectorAdd")
int cuda__threads(void *ctx) {
	__u64 lane = bpf_get_lane_id(), x, y, z, lanes;
	__u32 key = 0;
	struct threads *sum = bpf_map_lookup_elem(&seen, &key);

	if (!sum)
		return 0;
	lanes = bpf_warp_sum(bpf_warp_is_leader() | 1);
	if (bpf_warp_is_leader()) {
		__sync_fetch_and_add(&sum->summed, lanes);
		__sync_fetch_and_add(&sum->leaders, 1);
	}
	if (!is_consistent(lane))
		__sync_fetch_and_add(&sum->wrong, 1);
	bpf_get_block_dim(&x, &y, &z);
	__sync_fetch_and_add(&sum->block_dims, x);
	bpf_get_thread_idx(&x, &y, &z);
	bpf_atomic_max_u64(&sum->highest, x);
	bpf_atomic_min_s64(&sum->lowest, x - 1000);
	bpf_atomic_add_f64(&sum->halves, bpf_float_convert(0x3800, GPUPROBE_F16, GPUPROBE_F64));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
