// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Refused unless the daemon allows it: bpf_cuda_exit. */

SEC("kprobe/every")
int cuda__exit(void *ctx) {
	if (bpf_get_lane_id() == 3)
		bpf_cuda_exit();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
