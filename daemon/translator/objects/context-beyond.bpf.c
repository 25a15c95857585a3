// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it reads beyond the end of its context. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/vectorAdd")
int cuda__context_beyond(void *ctx) {
	return *(volatile __u64 *)(ctx + 168); /* the first byte after the context */
}

char LICENSE[] SEC("license") = "GPL";
