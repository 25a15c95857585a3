// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: a variable of a thread that begins as an address. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 visits;
__u64 *where SEC(".thread") = &visits;

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	return !where;
}

char LICENSE[] SEC("license") = "GPL";
