// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted, also by the verifier: it uses a hash of type 1501 and a
 * ring of type 1527.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct event {
	__u64 thread;
	__u64 time;
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_HASH_MAP);
	__uint(max_entries, 128);
	__type(key, __u64);
	__type(value, __u64);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 1000); /* no power of two, no multiple of a page: a GPU does not mind */
	__uint(key_size, 4);
	__uint(value_size, 64);
} events SEC(".maps");

SEC("kretprobe/*")
int cuda__hash_ring(void *ctx) {
	struct event event = { .thread = bpf_get_lane_id(), .time = bpf_get_globaltimer() };
	__u64 one = 1, *value;

	value = bpf_map_lookup_elem(&seen, &event.thread);
	if (value)
		*value += 1;
	else
		bpf_map_update_elem(&seen, &event.thread, &one, BPF_ANY);
	bpf_perf_event_output(ctx, &events, 0, &event, sizeof(event));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
