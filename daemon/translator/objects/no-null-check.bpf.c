// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it does not check whether the lookup found an element. */

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
int cuda__no_null_check(void *ctx) {
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counter, &key);

	*count += 1; /* may be NULL */
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
