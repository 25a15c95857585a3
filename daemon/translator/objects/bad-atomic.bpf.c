// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: an atomic change of what may be NULL. */

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
int cuda__bad_atomic(void *ctx) {
	__u32 key = 3;
	__u64 *most = bpf_map_lookup_elem(&out, &key);

	bpf_atomic_max_u64(most, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
