// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it calls a helper that no GPU has. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/every")
int cuda__host_helper(void *ctx) {
	char buffer[8];

	return bpf_probe_read_kernel(buffer, sizeof(buffer), ctx);
}

char LICENSE[] SEC("license") = "GPL";
