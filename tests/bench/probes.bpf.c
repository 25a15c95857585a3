// SPDX-License-Identifier: Apache-2.0
/* The probes that tests/bench/probes.cu times: for the case NAME a program at the kernel p_NAME. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define MAP(NAME, TYPE, KEY, VALUE, ENTRIES)  \
	struct {                              \
		__uint(type, TYPE);           \
		__uint(max_entries, ENTRIES); \
		__type(key, KEY);             \
		__type(value, VALUE);         \
	} NAME SEC(".maps")

MAP(entries, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(returns, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(both_entries, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(both_returns, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(ticks, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(table, BPF_MAP_TYPE_GPU_ARRAY_MAP, __u32, __u64, 16);
MAP(table_hits, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(updated, BPF_MAP_TYPE_GPU_ARRAY_MAP, __u32, __u64, 1);
MAP(spread, BPF_MAP_TYPE_GPU_ARRAY_MAP, __u32, __u64, 1 << 16);
MAP(threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP, __u32, __u64, 1);
MAP(hash1, BPF_MAP_TYPE_GPU_HASH_MAP, __u64, __u64, 1);
MAP(hash256, BPF_MAP_TYPE_GPU_HASH_MAP, __u64, __u64, 256);
MAP(hash1m, BPF_MAP_TYPE_GPU_HASH_MAP, __u64, __u64, 1 << 20);
MAP(accesses, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(bytes_moved, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);

struct warp {
	__u64 begin, duration;
};

MAP(sched_warps, BPF_MAP_TYPE_GPU_ARRAY_MAP, __u32, struct warp, 1 << 19);

/* In registers of the thread. */
__u64 begin SEC(".thread");
__u64 bytes SEC(".thread");

struct event {
	__u64 time;
	__u64 block;
	__u64 thread;
	__u64 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF_MAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

static __always_inline void count(void *map) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

/* blockIdx.x * blockDim.x + threadIdx.x */
static __always_inline __u64 thread_number(void) {
	__u64 block, size, thread, unused;

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_block_dim(&size, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	return block * size + thread;
}

static __always_inline void increment(void *map, __u64 key) {
	__u64 *value = bpf_map_lookup_elem(map, &key), one = 1;

	if (!value) {
		if (bpf_map_update_elem(map, &key, &one, BPF_NOEXIST) == 0)
			return;
		value = bpf_map_lookup_elem(map, &key);
		if (!value)
			return;
	}
	__sync_fetch_and_add(value, 1);
}

SEC("kprobe/p_empty")
int cuda__empty(void *ctx) {
	return 0;
}

SEC("kprobe/p_entry")
int cuda__entry(void *ctx) {
	count(&entries);
	return 0;
}

SEC("kretprobe/p_return")
int cuda__return(void *ctx) {
	count(&returns);
	return 0;
}

SEC("kprobe/p_both")
int cuda__both_entry(void *ctx) {
	count(&both_entries);
	return 0;
}

SEC("kretprobe/p_both")
int cuda__both_return(void *ctx) {
	count(&both_returns);
	return 0;
}

/* The timer is read by every thread; now and then one is counted, to see that it was. */
SEC("kprobe/p_globaltimer")
int cuda__globaltimer(void *ctx) {
	if (!(bpf_get_globaltimer() & 0xffe0))
		count(&ticks);
	return 0;
}

/* Counts only once something was put into the table: by p_fill. */
SEC("kprobe/p_lookup")
int cuda__lookup(void *ctx) {
	__u32 key = 3;
	__u64 *value = bpf_map_lookup_elem(&table, &key);

	if (value && *value)
		count(&table_hits);
	return 0;
}

SEC("kprobe/p_fill")
int cuda__lookup_fill(void *ctx) {
	__u32 key = 3;
	__u64 value = 1;

	bpf_map_update_elem(&table, &key, &value, BPF_ANY);
	return 0;
}

SEC("kprobe/p_update")
int cuda__update(void *ctx) {
	__u32 key = 0;
	__u64 value = thread_number() + 1;

	bpf_map_update_elem(&updated, &key, &value, BPF_ANY);
	return 0;
}

SEC("kprobe/p_spread")
int cuda__spread(void *ctx) {
	__u64 value = thread_number();
	__u32 key = value & 0xffff;

	value++;
	bpf_map_update_elem(&spread, &key, &value, BPF_ANY);
	return 0;
}

SEC("kprobe/p_thread")
int cuda__thread(void *ctx) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&threads, &key);

	if (value)
		++*value;
	return 0;
}

SEC("kprobe/p_hash1")
int cuda__hash1(void *ctx) {
	increment(&hash1, 0);
	return 0;
}

SEC("kprobe/p_hash256")
int cuda__hash256(void *ctx) {
	increment(&hash256, thread_number() & 255);
	return 0;
}

SEC("kprobe/p_hash1m")
int cuda__hash1m(void *ctx) {
	increment(&hash1m, thread_number() & 0xfffff);
	return 0;
}

SEC("kprobe/p_ring32")
int cuda__ring32(void *ctx) {
	struct event event = {};
	__u64 unused;

	event.time = bpf_get_globaltimer();
	bpf_get_block_idx(&event.block, &unused, &unused);
	bpf_get_thread_idx(&event.thread, &unused, &unused);
	bpf_perf_event_output(ctx, &events, 0, &event, sizeof(event));
	return 0;
}

SEC("memcapture/p_memory")
int cuda__memory(void *ctx) {
	count(&accesses);
	return 0;
}

/* As docs/examples/block_sched.bpf.c. */
SEC("kprobe/p_sched*")
int cuda__sched_begin(void *ctx) {
	if (bpf_get_lane_id() == 0)
		begin = bpf_get_globaltimer();
	return 0;
}

SEC("kretprobe/p_sched*")
int cuda__sched_end(void *ctx) {
	struct warp *warp;
	__u32 key;

	if (!begin)
		return 0;
	key = thread_number() / 32;
	warp = bpf_map_lookup_elem(&sched_warps, &key);
	if (warp) {
		warp->begin = begin;
		warp->duration = bpf_get_globaltimer() - begin;
	}
	return 0;
}

/* As docs/examples/gmem_bytes.bpf.c. */
SEC("memcapture/p_bytes*")
int cuda__bytes_access(struct gpuprobe_memory_ctx *ctx) {
	if (ctx->space == GPUPROBE_SPACE_GLOBAL)
		bytes += ctx->size;
	return 0;
}

SEC("kretprobe/p_bytes*")
int cuda__bytes_end(void *ctx) {
	__u32 key = 0;
	__u64 *sum = bpf_map_lookup_elem(&bytes_moved, &key);

	if (sum)
		__sync_fetch_and_add(sum, bytes);
	return 0;
}

char _license[] SEC("license") = "GPL";
