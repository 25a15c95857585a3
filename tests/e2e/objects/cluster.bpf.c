// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e and tests/gpu: counts the threads of each cluster of thread blocks. The
 * key of a cluster is x + 8 * y + 64 * z, so grids may have 8 clusters at most in each dimension.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u64);
} clusters SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__cluster(void *ctx) {
	__u64 x, y, z, *threads;
	__u32 key;

	bpf_get_cluster_id(&x, &y, &z);
	key = (x & 7) | (y & 7) << 3 | (z & 7) << 6;
	threads = bpf_map_lookup_elem(&clusters, &key);
	if (threads)
		__sync_fetch_and_add(threads, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
