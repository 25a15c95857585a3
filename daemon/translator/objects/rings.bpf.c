// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted, also by the verifier: it writes records to rings of all
 * types, at once and after a reservation.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct event {
	__u64 time;
	__u32 lane, sm;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 1024);
	__uint(key_size, 4);
	__uint(value_size, 64);
} wide SEC(".maps");

static __attribute__((noinline)) int write(void *ctx, __u64 number) {
	__u64 words[5] = { number, 1, 2, 3, 4 };

	return bpf_perf_event_output(ctx, &wide, 0, words, sizeof(words));
}

SEC("kprobe/vectorAdd")
int cuda__rings(void *ctx) {
	struct event event = { .time = bpf_get_globaltimer(), .lane = bpf_get_lane_id() };
	struct event *reserved;
	int r;

	r = bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &event, sizeof(event));
	reserved = bpf_ringbuf_reserve(&events, sizeof(*reserved), 0);
	if (reserved) {
		*reserved = event;
		reserved->sm = bpf_get_sm_id();
		if (event.lane & 1)
			bpf_ringbuf_submit(reserved, 0);
		else
			bpf_ringbuf_discard(reserved, 0);
	}
	r += bpf_ringbuf_output(&events, &event, 12, 0);
	return r + write(ctx, GPU_PARAM(ctx, 1));
}

char LICENSE[] SEC("license") = "GPL";
