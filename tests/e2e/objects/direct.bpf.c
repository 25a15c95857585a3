// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: a kernel of its own (gpuprobectl run), which computes squares. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} squares SEC(".maps");

SEC("kprobe/__directly_run")
int cuda__square(void *ctx) {
	__u64 x, y, z, *value;
	__u32 key;

	bpf_get_thread_idx(&x, &y, &z);
	key = x;
	value = bpf_map_lookup_elem(&squares, &key);
	if (value)
		__sync_fetch_and_add(value, x * x);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
