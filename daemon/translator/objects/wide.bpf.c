// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator: a map value with many integers. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct pair {
	__u64 n;
	__u32 low, high;
};

struct pair table[3000]; /* .bss */

SEC("kprobe/vectorAdd")
int cuda__wide(void *ctx) {
	__sync_fetch_and_add(&table[2999].n, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
