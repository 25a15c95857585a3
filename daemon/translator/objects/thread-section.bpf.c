// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it has a section of the name that .thread gets. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 begin SEC(".thread");
__u64 other SEC(".data.t") = 3;

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	begin += other;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
