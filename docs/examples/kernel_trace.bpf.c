// SPDX-License-Identifier: Apache-2.0
/* An event from every thread that enters vectorAdd: when, and which. See
 * docs/guides/kernel-trace.md. */
#include "gpuprobe.bpf.h"

struct kernel_trace_event {
	__u64 ts; /* nanoseconds of the GPU's clock */
	__u64 block_x, block_y, block_z;
	__u64 thread_x, thread_y, thread_z;
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct kernel_trace_event);
} events SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__kernel_trace(void *ctx) {
	struct kernel_trace_event event = {};

	event.ts = bpf_get_globaltimer();
	bpf_get_block_idx(&event.block_x, &event.block_y, &event.block_z);
	bpf_get_thread_idx(&event.thread_x, &event.thread_y, &event.thread_z);
	bpf_perf_event_output(ctx, &events, 0, &event, sizeof(event));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
