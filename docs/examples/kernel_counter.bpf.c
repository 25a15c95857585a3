// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the threads of each kernel that a process launches, by kernel_id; the kernel_report script
 * beside it prints them with names. The first thread of each block counts for all of them: the
 * others return at once.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, gpuprobe_kernel_id);
	__type(value, __u64);
} threads SEC(".maps");

SEC("kprobe/*")
int cuda__kernel_counter(struct gpuprobe_kernel_ctx *ctx) {
	__u64 key = ctx->kernel_id, block = ctx->block_dim, zero = 0, *count, x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	if (x | y | z)
		return 0;
	count = bpf_map_lookup_elem(&threads, &key);
	if (!count) {
		bpf_map_update_elem(&threads, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&threads, &key);
	}
	if (count)
		__sync_fetch_and_add(count, (block & 0xffff) * (block >> 16 & 0xffff) *
						    (block >> 32 & 0xffff));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
