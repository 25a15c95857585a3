// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Refused: a helper that no GPU has. */

SEC("kprobe/every")
int cuda__host_helper(void *ctx) {
	char buffer[8];

	return bpf_probe_read_kernel(buffer, sizeof(buffer), ctx);
}

char LICENSE[] SEC("license") = "GPL";
