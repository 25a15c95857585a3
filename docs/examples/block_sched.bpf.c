// SPDX-License-Identifier: Apache-2.0
/*
 * When each warp of vectorAdd began and how long it ran, as its first lane sees it, in nanoseconds
 * of the GPU's clock: 16 bytes a warp, which are stored once, at the end. Between entry and return
 * the beginning lies in a register of the thread. Warps beyond the array are left out.
 */
#include "gpuprobe.bpf.h"

#define WARPS (1 << 20)

struct warp {
	__u64 begin, duration;
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY_MAP);
	__uint(max_entries, WARPS);
	__type(key, __u32);
	__type(value, struct warp);
} warps SEC(".maps");

__u64 begin SEC(".thread");

SEC("kprobe/vectorAdd")
int cuda__begin(void *ctx) {
	if (bpf_get_lane_id() == 0)
		begin = bpf_get_globaltimer();
	return 0;
}

static __always_inline __u64 warp_number(void) {
	__u64 x, y, z, width, height, depth, thread, threads;

	bpf_get_thread_idx(&x, &y, &z);
	bpf_get_block_dim(&width, &height, &depth);
	thread = x + width * (y + height * z);
	threads = width * height * depth;
	bpf_get_block_idx(&x, &y, &z);
	bpf_get_grid_dim(&width, &height, &depth);
	return (x + width * (y + height * z)) * ((threads + 31) / 32) + thread / 32;
}

SEC("kretprobe/vectorAdd")
int cuda__end(void *ctx) {
	struct warp *warp;
	__u32 key;

	if (!begin) /* not the first lane */
		return 0;
	key = warp_number();
	warp = bpf_map_lookup_elem(&warps, &key);
	if (warp) {
		warp->begin = begin;
		warp->duration = bpf_get_globaltimer() - begin;
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
