// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: conventions of other projects' loaders. test-objects.py attaches its
 * programs one by one.
 */

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 key) {
	__u64 *value = bpf_map_lookup_elem(&counts, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

SEC("kprobe/cuda__Z9vectorAddPKfS0_Pf")
int cuda__prefixed(struct pt_regs *ctx) {
	return count(0);
}

SEC("kprobe/"
    "_Z121scale_rows_by_vector_with_a_long_but_ordinary_name_of_a_kernel_whose_template_has_many_"
    "arguments_and_more_of_them_still_xPf")
int cuda__long(struct pt_regs *ctx) {
	return count(1);
}

SEC("kprobe/vectorAdd")
int cuda__short(struct pt_regs *ctx) {
	return count(2);
}

SEC("kprobe/vectorAdd")
int cuda__memory(struct gpuprobe_memory_ctx *ctx) {
	return count(ctx->space & 7);
}

SEC("kprobe/vectorAdd")
int pair_gpu(struct pt_regs *ctx) {
	return count(7);
}

SEC("uprobe")
int pair_host(struct pt_regs *ctx) {
	return count(3);
}

SEC("uretprobe")
int pair_return(struct pt_regs *ctx) {
	return count(5);
}

SEC("kprobe/vectorAdd")
int near_gpu(struct pt_regs *ctx) {
	return count(0);
}

SEC("uprobe/./target:main")
int near_host(struct pt_regs *ctx) {
	return count(6);
}

char LICENSE[] SEC("license") = "GPL";
