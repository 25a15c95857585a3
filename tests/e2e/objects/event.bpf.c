// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: counts, at points that only the sanitizer engine has, how many threads
 * ran an instruction, by kernel and arguments.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct event {
	__u64 kernel_id, pc, args[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct event);
	__type(value, __u64);
} events SEC(".maps");

SEC("kprobe/warps@barrier")
int cuda__event(struct gpuprobe_event_ctx *ctx) {
	struct event key = { ctx->kernel_id,
			     ctx->pc,
			     { ctx->args[0], ctx->args[1], ctx->args[2] } };
	__u64 zero = 0, *count = bpf_map_lookup_elem(&events, &key);

	if (!count) {
		bpf_map_update_elem(&events, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&events, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
