// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted: variables of a thread of several sizes, one of them
 * static, between maps of all kinds, whose numbers must not suffer.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_HASH_MAP);
	__uint(max_entries, 4);
	__type(key, __u64);
	__type(value, __u64);
} second SEC(".maps");

const volatile __u64 step = 3;
__u64 visits;
__u64 started = 40;
__u64 begin SEC(".thread");
__u32 count SEC(".thread"), sizes[2] SEC(".thread");
static __u8 entered SEC(".thread");

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	begin = bpf_ktime_get_ns();
	entered = 1;
	started += step;
	return 0;
}

SEC("memcapture/*")
int cuda__access(struct gpuprobe_memory_ctx *ctx) {
	__sync_fetch_and_add(&count, 1);
	if (ctx->kind == GPUPROBE_ACCESS_STORE)
		sizes[1] += ctx->size;
	else
		sizes[0] += ctx->size;
	return 0;
}

SEC("kretprobe/*")
int cuda__leave(void *ctx) {
	__u64 key = entered, duration = bpf_ktime_get_ns() - begin, *value;
	__u32 index = 1;

	visits++;
	bpf_map_update_elem(&second, &key, &duration, BPF_ANY);
	value = bpf_map_lookup_elem(&first, &index);
	if (value)
		__sync_fetch_and_add(value, count + sizes[0] + sizes[1]);
	return 0;
}

/* A kprobe that only its variable makes one of a GPU. */
SEC("kretprobe/vectorAdd")
int only_thread(void *ctx) {
	return count;
}

char LICENSE[] SEC("license") = "GPL";
