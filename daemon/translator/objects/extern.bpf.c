// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator that cannot be linked: it calls a function that no file defines. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

extern int missing(int x);

SEC("kprobe/vectorAdd")
int cuda__extern(void *ctx) {
	return missing(1);
}

char LICENSE[] SEC("license") = "GPL";
