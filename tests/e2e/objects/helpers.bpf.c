// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: records what the helpers return to one thread, the last of the last
 * block.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct results {
	__u64 pid_tgid, device, lane, sm, cpu, warp, time, timer;
	__u64 block[3], block_dim[3], thread[3], grid[3];
	__u64 randoms_differ, comm_result, membar;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct results);
} results SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__helpers(void *ctx) {
	struct results r = {};
	__u32 key = 0;

	bpf_get_block_idx(&r.block[0], &r.block[1], &r.block[2]);
	bpf_get_block_dim(&r.block_dim[0], &r.block_dim[1], &r.block_dim[2]);
	bpf_get_thread_idx(&r.thread[0], &r.thread[1], &r.thread[2]);
	bpf_get_grid_dim(&r.grid[0], &r.grid[1], &r.grid[2]);
	for (int i = 0; i < 3; i++)
		if (r.block[i] + 1 != r.grid[i] || r.thread[i] + 1 != r.block_dim[i])
			return 0;
	r.pid_tgid = bpf_get_current_pid_tgid();
	r.device = bpf_get_device_ordinal();
	r.lane = bpf_get_lane_id();
	r.sm = bpf_get_sm_id();
	r.cpu = bpf_get_smp_processor_id();
	r.warp = bpf_get_warp_id();
	r.time = bpf_ktime_get_ns();
	r.timer = bpf_get_globaltimer();
	r.randoms_differ = bpf_get_prandom_u32() != bpf_get_prandom_u32();
	r.comm_result = bpf_get_current_comm(r.comm, sizeof(r.comm));
	r.membar = bpf_gpu_membar();
	bpf_map_update_elem(&results, &key, &r, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
