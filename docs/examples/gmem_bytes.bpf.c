// SPDX-License-Identifier: Apache-2.0
/*
 * How many bytes of global memory the threads of vectorAdd read and write. Each thread adds up its
 * own accesses in a register; what it has at the end is added to the sum of all, once.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} gmem_bytes SEC(".maps");

__u64 bytes SEC(".thread");

SEC("memcapture/vectorAdd")
int cuda__access(struct gpuprobe_memory_ctx *ctx) {
	if (ctx->space == GPUPROBE_SPACE_GLOBAL)
		bytes += ctx->size;
	return 0;
}

SEC("kretprobe/vectorAdd")
int cuda__end(void *ctx) {
	__u32 key = 0;
	__u64 *sum = bpf_map_lookup_elem(&gmem_bytes, &key);

	if (sum)
		__sync_fetch_and_add(sum, bytes);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
