// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: a device function has no variables of a thread. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 calls SEC(".thread");

SEC("kprobe/dev:helper")
int cuda__call(void *ctx) {
	calls++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
