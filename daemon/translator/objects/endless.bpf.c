// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it has a loop without an end. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__endless(void *ctx) {
	volatile __u64 stop = 0;
	__u64 n = 0;

	while (!stop)
		n++;
	return n;
}

char LICENSE[] SEC("license") = "GPL";
