// SPDX-License-Identifier: Apache-2.0
/* When each launch began and ended on the GPU: twins.py compares its duration with CUPTI's. */
#include "gpuprobe.bpf.h"

struct times {
	__u64 begin, end, stream;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* ctx->launch.id */
	__type(value, struct times);
} launches SEC(".maps");

static __always_inline int is_first(void) {
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	return !(x | y | z);
}

SEC("kprobe/spin*")
int cuda__begin(struct gpuprobe_launch_ctx *ctx) {
	struct times times = { 0, 0, ctx->launch.stream };
	__u64 id = ctx->launch.id;

	times.begin = bpf_get_globaltimer();
	if (is_first())
		bpf_map_update_elem(&launches, &id, &times, BPF_ANY);
	return 0;
}

SEC("kretprobe/spin*")
int cuda__end(struct gpuprobe_launch_ctx *ctx) {
	__u64 id = ctx->launch.id;
	struct times *times;

	if (!is_first())
		return 0;
	times = bpf_map_lookup_elem(&launches, &id);
	if (times)
		times->end = bpf_get_globaltimer();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
