// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: values of 64 KiB, as histograms have; each thread counts at both ends
 * of one.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

#define BUCKETS 8192

struct row {
	__u64 bucket[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} typed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, BUCKETS * 8);
} untyped SEC(".maps");

__u64 histogram[BUCKETS]; /* .bss */

static __always_inline void count(void *map) {
	__u32 key = 0;
	__u64 *bucket = bpf_map_lookup_elem(map, &key);

	if (!bucket)
		return;
	__sync_fetch_and_add(&bucket[1], 1);
	__sync_fetch_and_add(&bucket[BUCKETS - 1], 1);
}

SEC("kprobe/vectorAdd")
int cuda__wide(void *ctx) {
	count(&typed);
	count(&untyped);
	__sync_fetch_and_add(&histogram[1], 1);
	__sync_fetch_and_add(&histogram[BUCKETS - 1], 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
