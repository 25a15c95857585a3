// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: as slow.bpf.c, with so many programs that verifying them all takes
 * minutes.
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

char LICENSE[] SEC("license") = "GPL";

/* clang-format off */
#define SLOW10(n) SLOW(n##0) SLOW(n##1) SLOW(n##2) SLOW(n##3) SLOW(n##4) SLOW(n##5) SLOW(n##6) SLOW(n##7) SLOW(n##8) SLOW(n##9)

SLOW10(1) SLOW10(2) SLOW10(3) SLOW10(4) SLOW10(5) SLOW10(6)
