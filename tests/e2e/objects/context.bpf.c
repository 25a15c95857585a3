// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: records what the first thread of the last block finds in its context,
 * word by word. The block before it checks that it finds the same kernel.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 21);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static __always_inline void put(__u32 key, __u64 value) {
	bpf_map_update_elem(&seen, &key, &value, BPF_ANY);
}

SEC("kprobe/parameters")
int cuda__context(struct gpuprobe_kernel_ctx *ctx) {
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	if (x | y | z)
		return 0;
	put(0, ctx->kernel_id);
	put(1, ctx->device);
	put(2, ctx->pid);
	put(3, ctx->grid_dim);
	put(4, ctx->grid_dim_z);
	put(5, ctx->block_dim);
	put(6, ctx->shared_bytes);
	put(7, ctx->param_count);
	put(8, GPU_PARAM(ctx, 0));
	put(9, GPU_PARAM(ctx, 1));
	put(10, GPU_PARAM(ctx, 2));
	put(11, GPU_PARAM(ctx, 3));
	put(12, GPU_PARAM(ctx, 4));
	put(13, GPU_PARAM(ctx, 5));
	put(14, GPU_PARAM(ctx, 6));
	put(20, GPU_PARAM(ctx, 12));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
