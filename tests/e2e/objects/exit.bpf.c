// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: every second thread leaves the kernel at once. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/vectorAdd")
int cuda__exit(void *ctx) {
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	if (x & 1)
		bpf_cuda_exit();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
