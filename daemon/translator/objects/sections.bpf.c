// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted, also by the verifier: some programs are GPU programs
 * only because of their sections, and one stays on the host.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
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

SEC("memcapture/vectorAdd")
int on_memory(struct gpuprobe_memory_ctx *ctx) {
	return count(ctx->space & 7);
}

SEC("kprobe/__memcapture")
int on_all_memory(void *ctx) {
	return count(0);
}

SEC("kprobe/dev:helper")
int on_function(void *ctx) {
	return count(1);
}

SEC("kretprobe/dev:helper")
int on_function_return(void *ctx) {
	return count(2);
}

SEC("kprobe/vectorAdd@x.cu:12")
int on_line(void *ctx) {
	return count(3);
}

SEC("kprobe/vectorAdd@block:3")
int on_block(void *ctx) {
	return count(4);
}

SEC("kprobe/__directly_run")
int on_run(void *ctx) {
	return count(5);
}

SEC("kprobe/do_unlinkat")
int on_unlink(void *ctx) {
	bpf_printk("unlink");
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
