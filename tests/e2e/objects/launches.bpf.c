// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e/test-launch.py: what launches there were, by their ids; 0: all that
 * have no name.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct launch {
	__u64 stream, thread, node;
	__u64 kernel;
	__u64 entered, left; /* threads */
	__u64 begin, end; /* times; begin: of one of the first threads */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct launch);
} launches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} accesses SEC(".maps");

SEC("kprobe/*")
int cuda__enter(struct gpuprobe_launch_ctx *ctx) {
	__u64 key = ctx->launch.id;
	struct launch first = {}, *launch = bpf_map_lookup_elem(&launches, &key);

	if (!launch) {
		first.stream = ctx->launch.stream;
		first.thread = ctx->launch.thread;
		first.node = ctx->launch.node;
		first.kernel = ctx->kernel_id;
		first.begin = bpf_get_globaltimer();
		bpf_map_update_elem(&launches, &key, &first, BPF_NOEXIST);
		launch = bpf_map_lookup_elem(&launches, &key);
	}
	if (launch)
		__sync_fetch_and_add(&launch->entered, 1);
	return 0;
}

SEC("kretprobe/*")
int cuda__leave(struct gpuprobe_launch_ctx *ctx) {
	__u64 key = ctx->launch.id, grid = ctx->grid_dim, block = ctx->block_dim, all;
	struct launch *launch = bpf_map_lookup_elem(&launches, &key);

	all = (grid & 0xffffffff) * (grid >> 32) * ctx->grid_dim_z;
	all *= (block & 0xffff) * (block >> 16 & 0xffff) * (block >> 32);
	if (launch && (__sync_fetch_and_add(&launch->left, 1) + 1) % all == 0)
		launch->end = bpf_get_globaltimer();
	return 0;
}

SEC("memcapture/named")
int cuda__access(struct gpuprobe_memory_ctx *ctx) {
	__u64 key = ctx->launch.id, zero = 0, *count = bpf_map_lookup_elem(&accesses, &key);

	if (!count) {
		bpf_map_update_elem(&accesses, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&accesses, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
