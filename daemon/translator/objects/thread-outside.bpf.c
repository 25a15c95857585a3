// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, which the verifier refuses: an index beyond a variable of a
 * thread. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u32 sizes[4] SEC(".thread");

SEC("memcapture/*")
int cuda__access(struct gpuprobe_memory_ctx *ctx) {
	sizes[ctx->kind & 15]++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
