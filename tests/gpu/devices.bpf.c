// SPDX-License-Identifier: Apache-2.0

/* A program for tests on GPUs: counts the threads of each device of a process. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} devices SEC(".maps");

SEC("kprobe/*")
int cuda__devices(void *ctx) {
	__u32 device = bpf_get_device_ordinal();
	__u64 *count = bpf_map_lookup_elem(&devices, &device);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
