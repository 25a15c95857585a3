// SPDX-License-Identifier: Apache-2.0
/*
 * How long each thread was in vectorAdd, in nanoseconds of the GPU's clock: two programs share a
 * per-thread array, which needs no atomics. Threads beyond `attach --threads` are left out.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} nanoseconds SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__enter(void *ctx) {
	__u32 key = 0;
	__u64 *time = bpf_map_lookup_elem(&nanoseconds, &key);

	if (time)
		*time = bpf_get_globaltimer();
	return 0;
}

SEC("kretprobe/vectorAdd")
int cuda__leave(void *ctx) {
	__u32 key = 0;
	__u64 *time = bpf_map_lookup_elem(&nanoseconds, &key);

	if (time)
		*time = bpf_get_globaltimer() - *time;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
