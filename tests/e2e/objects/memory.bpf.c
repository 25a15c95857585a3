// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: counts the threads that ran memory instructions, by kind of
 * instruction, and adds up what they stored.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct kind {
	__u64 space;
	__u64 kind;
	__u64 size;
};

struct seen {
	__u64 count;
	__u64 values;
	__u64 instruction; /* the id of one */
	__u64 misaligned; /* addresses that are no multiple of 4 */
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_HASH_MAP);
	__uint(max_entries, 64);
	__type(key, struct kind);
	__type(value, struct seen);
} kinds SEC(".maps");

SEC("memcapture/accesses")
int cuda__memory(struct gpuprobe_memory_ctx *ctx) {
	struct kind key = { ctx->space, ctx->kind, ctx->size };
	struct seen first = {}, *seen = bpf_map_lookup_elem(&kinds, &key);

	if (!seen) {
		first.instruction = ctx->instruction_id;
		bpf_map_update_elem(&kinds, &key, &first, BPF_NOEXIST);
		seen = bpf_map_lookup_elem(&kinds, &key);
		if (!seen)
			return 0;
	}
	__sync_fetch_and_add(&seen->count, 1);
	__sync_fetch_and_add(&seen->values, ctx->value);
	if (ctx->address & 3)
		__sync_fetch_and_add(&seen->misaligned, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
