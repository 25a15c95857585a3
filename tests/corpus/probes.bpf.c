// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* The programs that judge.py --programs puts into modules: probes.py makes probe-bpf-*.ptx of them.
 */
struct event {
	__u64 instruction;
	__u64 address;
	__u64 value;
	__u32 what;
	__u32 lane;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

SEC("kprobe/*")
int cuda__hash(void *ctx) {
	__u64 x, y, z, one = 1, *count;

	bpf_get_block_idx(&x, &y, &z);
	count = bpf_map_lookup_elem(&counts, &x);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&counts, &x, &one, BPF_NOEXIST);
	return 0;
}

SEC("memcapture/*")
int cuda__ring(struct gpuprobe_memory_ctx *ctx) {
	struct event event = { ctx->instruction_id, ctx->address, ctx->value,
			       ctx->space << 16 | ctx->kind << 8 | ctx->size, bpf_get_lane_id() };

	bpf_perf_event_output(ctx, &events, 0, &event, sizeof(event));
	return 0;
}

SEC("kretprobe/*")
int cuda__context(struct gpuprobe_kernel_ctx *ctx) {
	if (ctx->param_count > 2 && !(ctx->kernel_id & 15))
		bpf_printk("%llx %llx of %llx", GPU_PARAM(ctx, 0), GPU_PARAM(ctx, 2),
			   ctx->grid_dim);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
