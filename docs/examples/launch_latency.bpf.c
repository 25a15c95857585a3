// SPDX-License-Identifier: Apache-2.0
/*
 * How long a launch takes to reach the GPU: a uprobe on the host and a probe in the kernel share
 * one map. times[0] is when the host last called cuLaunchKernel (CLOCK_MONOTONIC), times[1] when a
 * kernel that was launched since began (the GPU's clock, which is near CLOCK_REALTIME and drifts),
 * both in nanoseconds; times[2] counts launches, times[3] sums the differences.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY_MAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

SEC("uprobe/libcuda.so.1:cuLaunchKernel")
int host_launch(void *ctx) {
	__u32 zero = 0;
	__u64 *launched = bpf_map_lookup_elem(&times, &zero);

	if (launched)
		*launched = bpf_ktime_get_ns();
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__launch(void *ctx) {
	__u32 zero = 0, one = 1, two = 2, three = 3;
	__u64 *launched = bpf_map_lookup_elem(&times, &zero),
	      *began = bpf_map_lookup_elem(&times, &one);
	__u64 *count = bpf_map_lookup_elem(&times, &two),
	      *sum = bpf_map_lookup_elem(&times, &three);
	__u64 x, y, z, now;

	if (!launched || !began || !count || !sum)
		return 0;
	bpf_get_block_idx(&x, &y, &z);
	if (x | y | z)
		return 0;
	bpf_get_thread_idx(&x, &y, &z);
	if (x | y | z)
		return 0;
	now = bpf_get_globaltimer();
	*began = now;
	__sync_fetch_and_add(count, 1);
	__sync_fetch_and_add(sum, now - *launched);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
