// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: writes lines to the log from every thread. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/vectorAdd")
int cuda__log(void *ctx) {
	__u64 block, thread, unused;

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	bpf_printk("block %llu thread %3d of 0x%x", block, (int)thread, 255);
	return 0;
}

SEC("kprobe/returns")
int cuda__log_more(void *ctx) {
	char format[] = "stack %d%%";
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	if (x)
		return 0;
	bpf_trace_printk(format, sizeof(format), 50);
	ebpf_puts("put");
	bpf_printk("%d %d %d %d %d", 1, 2, 3, 4, 5);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
