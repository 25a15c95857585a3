// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: programs that keep the kernel's verifier busy for long, because it
 * follows each round of a loop.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sum SEC(".maps");

#define SLOW(n)                                                          \
	SEC("kprobe/slow" #n)                                            \
	int cuda__slow##n(void *ctx) {                                   \
		__u32 key = 0;                                           \
		volatile __u64 *value = bpf_map_lookup_elem(&sum, &key); \
                                                                         \
		for (__u32 i = 0; value && i < 120000; i++)              \
			*value += i;                                     \
		return 0;                                                \
	}

SLOW(0)
SLOW(1)
SLOW(2)

char LICENSE[] SEC("license") = "GPL";
