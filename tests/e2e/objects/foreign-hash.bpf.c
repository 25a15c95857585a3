// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: a GPU hash that a host program uses too. This is not possible, and the
 * daemon must say so.
 */

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_HASH_MAP);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

static __always_inline int use(void) {
	__u64 one = 1;
	__u32 key = 0;

	bpf_map_update_elem(&table, &key, &one, 0);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__gpu(void *ctx) {
	return use();
}

SEC("uprobe/libc.so.6:malloc")
int host(struct pt_regs *ctx) {
	return use();
}

char LICENSE[] SEC("license") = "GPL";
