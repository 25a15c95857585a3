// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of each device function that was not inlined and whose address is not taken, by all
 * threads. The keys are ids of functions: `gpuprobectl kernel list` has their names.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_HASH_MAP);
	__uint(max_entries, 1024);
	__type(key, gpuprobe_kernel_id);
	__type(value, __u64);
} calls SEC(".maps");

SEC("kprobe/dev:*")
int cuda__device_calls(struct gpuprobe_kernel_ctx *ctx) {
	__u64 function = ctx->kernel_id, zero = 0, *count = bpf_map_lookup_elem(&calls, &function);

	if (!count) {
		bpf_map_update_elem(&calls, &function, &zero,
				    BPF_NOEXIST); /* or somebody else does */
		count = bpf_map_lookup_elem(&calls, &function);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
