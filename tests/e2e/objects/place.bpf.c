// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: what both engines report about a launch: how many threads saw it, by
 * kernel and geometry, and a record and a line of log from the first thread.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct place {
	__u64 kernel_id, device, pid, grid_dim, grid_dim_z, block_dim, shared_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct place);
	__type(value, __u64);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct place);
} events SEC(".maps");

static __always_inline int is_first(void) {
	__u64 x, y, z, bx, by, bz;

	bpf_get_thread_idx(&x, &y, &z);
	bpf_get_block_idx(&bx, &by, &bz);
	return !(x | y | z | bx | by | bz);
}

static __always_inline int see(struct gpuprobe_kernel_ctx *ctx) {
	struct place key = { ctx->kernel_id,  ctx->device,    ctx->pid,         ctx->grid_dim,
			     ctx->grid_dim_z, ctx->block_dim, ctx->shared_bytes };
	__u64 zero = 0, *count = bpf_map_lookup_elem(&places, &key);

	if (!count) {
		bpf_map_update_elem(&places, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&places, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	if (is_first()) {
		bpf_perf_event_output(ctx, &events, 0, &key, sizeof(key));
		bpf_printk("kernel %llx of %d", key.kernel_id, (__u32)key.pid);
	}
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__enter(struct gpuprobe_kernel_ctx *ctx) {
	return see(ctx);
}

SEC("kretprobe/vectorAdd")
int cuda__leave(struct gpuprobe_kernel_ctx *ctx) {
	return see(ctx);
}

char LICENSE[] SEC("license") = "GPL";
