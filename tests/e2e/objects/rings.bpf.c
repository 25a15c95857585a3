// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: every thread writes records to each type of ring, with each helper. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct record {
	__u64 thread;
	__u32 block;
	__u8 kind;
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct record);
} gpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} standard SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void result(__u32 key) {
	__u64 *value = bpf_map_lookup_elem(&results, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/vectorAdd")
int cuda__rings(void *ctx) {
	struct record record = {}, *reserved;
	__u64 block, size, thread, unused;
	__u64 large[20] = {};

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_block_dim(&size, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	record.thread = thread + block * size;
	record.block = block;
	record.kind = 1;
	if (bpf_perf_event_output(ctx, &gpu, 0, &record, sizeof(record)) == 0)
		result(0);
	record.kind = 2;
	if (bpf_ringbuf_output(&standard, &record, sizeof(record), 0) == 0)
		result(1);
	reserved = bpf_ringbuf_reserve(&standard, sizeof(*reserved), 0);
	if (reserved) {
		*reserved = record;
		reserved->kind = 3;
		if (thread & 1)
			bpf_ringbuf_submit(reserved, 0);
		else
			bpf_ringbuf_discard(reserved, 0);
		result(2);
	}
	large[0] = record.thread;
	large[19] = ~record.thread;
	if (bpf_perf_event_output(ctx, &perf, 0xffffffffull, large,
				  (thread & 1) ? sizeof(large) : 12) == 0)
		result(3);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
