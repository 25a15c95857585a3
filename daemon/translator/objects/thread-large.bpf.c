// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: more variables of a thread than registers for them. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 histogram[9] SEC(".thread");

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	histogram[8]++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
