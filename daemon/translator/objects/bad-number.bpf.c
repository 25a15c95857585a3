// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it passes an address where a helper takes a number. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__bad_number(void *ctx) {
	__u32 key = 3;
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value)
		*value = bpf_warp_sum((__u64)value);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
