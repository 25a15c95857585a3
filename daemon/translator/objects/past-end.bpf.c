// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it writes past the end of a map value. */

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
int cuda__past_end(void *ctx) {
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counter, &key);

	if (!count)
		return 0;
	count[0] = 1;
	count[1] = 2; /* past the end of the value */
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
