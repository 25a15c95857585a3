// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: two programs whose functions call other functions. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

static __attribute__((noinline)) __u64 square(__u64 x) {
	return x * x;
}

static __attribute__((noinline)) int put(__u32 key, __u64 x) {
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (!value)
		return -1;
	*value = square(x);
	return 0;
}

SEC("kprobe/first")
int cuda__first(void *ctx) {
	return put(bpf_get_lane_id() & 15, bpf_get_sm_id());
}

SEC("kprobe/second")
int cuda__second(void *ctx) {
	__u64 x = 0, y = 0, z = 0;

	bpf_get_thread_idx(&x, &y, &z);
	return put(x & 15, square(y) + z);
}

char LICENSE[] SEC("license") = "GPL";
