// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted, also by the verifier: it reads the first and the last
 * word of its context.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__context(void *ctx) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value)
		*value = GPU_PARAM(ctx, 0) + GPU_PARAM(ctx, 12);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
