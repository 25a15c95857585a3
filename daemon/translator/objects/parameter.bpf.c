// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it takes a parameter of the kernel for a pointer. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/every")
int cuda__parameter(struct gpuprobe_kernel_ctx *ctx) {
	return *(__u64 *)ctx->params[0];
}

char LICENSE[] SEC("license") = "GPL";
