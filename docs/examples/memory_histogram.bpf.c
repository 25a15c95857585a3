// SPDX-License-Identifier: Apache-2.0
/*
 * How often the memory instructions of a kernel run, by what they are and how many bytes they move.
 * gpuprobectl map dump shows the source line, or the PTX, of each.
 */
#include "gpuprobe.bpf.h"

struct access {
	gpuprobe_instruction_id instruction;
	__u32 bytes;
	enum gpuprobe_access kind; /* gpuprobectl prints its name */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct access);
	__type(value, __u64);
} accesses SEC(".maps");

SEC("memcapture/vectorAdd")
int cuda__memory_histogram(struct gpuprobe_memory_ctx *ctx) {
	struct access key = { ctx->instruction_id, ctx->size, ctx->kind };
	__u64 *count = bpf_map_lookup_elem(&accesses, &key), zero = 0;

	if (!count) {
		bpf_map_update_elem(&accesses, &key, &zero,
				    BPF_NOEXIST); /* or somebody else does */
		count = bpf_map_lookup_elem(&accesses, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
