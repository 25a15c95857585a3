// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Refused: bpf_loop. */

static int add(__u32 index, void *sum)
{
	*(__u64 *)sum += index;
	return 0;
}

SEC("kprobe/every")
int cuda__callback(void *ctx)
{
	__u64 sum = 0;

	bpf_loop(8, add, &sum, 0);
	return (int)sum;
}

char LICENSE[] SEC("license") = "GPL";
