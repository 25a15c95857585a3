// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: a helper gets the address of a variable of a thread. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

__u64 begin SEC(".thread");
__u32 slot SEC(".thread");

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	begin = 1;
	bpf_map_update_elem(&array, &slot, &begin, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
