// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: a variable of a thread that does not begin as 0. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 begin SEC(".thread");
__u32 limit SEC(".thread") = 7;

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	begin += limit;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
