// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: it uses a percpu array with a struct as its value. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct pair {
	__u64 count;
	__u32 low;
	__u32 high;
	char name[8];
	__u8 small;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct pair);
} pairs SEC(".maps");

SEC("kprobe/*")
int cuda__percpu(void *ctx) {
	__u32 key = 1;
	struct pair *pair = bpf_map_lookup_elem(&pairs, &key);

	if (pair) {
		__sync_fetch_and_add(&pair->count, 1);
		__sync_fetch_and_add(&pair->low, 2);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
