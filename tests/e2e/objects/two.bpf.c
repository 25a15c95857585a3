// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: one program counts threads. The second is at no point and keeps the
 * map when the first is detached.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

static __always_inline int count(void) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&counter, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

SEC("kprobe/vectorAdd")
int cuda__count(void *ctx) {
	return count();
}

SEC("kprobe/no_kernel_has_this_name")
int cuda__keep(void *ctx) {
	return count();
}

char LICENSE[] SEC("license") = "GPL";
