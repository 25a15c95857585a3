// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator that calls bpf_cuda_exit: refused unless the daemon allows it. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/every")
int cuda__exit(void *ctx) {
	if (bpf_get_lane_id() == 3)
		bpf_cuda_exit();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
