// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, accepted: it uses global variables in .rodata, .data and .bss. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

const volatile __u64 step = 3;
const volatile __u32 slot = 2;
__u64 started = 40;
__u64 visits;
char label[16] = "label";

SEC("kprobe/*")
int cuda__globals(void *ctx) {
	__u32 key = slot; /* a constant to the verifier: .rodata is frozen */
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	__sync_fetch_and_add(&visits, 1);
	started += step;
	label[slot] = 'x';
	if (value)
		*value = started;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
