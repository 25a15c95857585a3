// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, refused: it calls bpf_for_each_map_elem, which GPU programs do not
 * have.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} numbers SEC(".maps");

static long add(void *map, const void *key, void *value, void *sum) {
	*(__u64 *)sum += *(__u64 *)value;
	return 0;
}

SEC("kprobe/every")
int cuda__callback(void *ctx) {
	__u64 sum = 0;

	bpf_for_each_map_elem(&numbers, add, &sum, 0);
	return (int)sum;
}

char LICENSE[] SEC("license") = "GPL";
