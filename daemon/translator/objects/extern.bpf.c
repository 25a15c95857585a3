// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Not linked: calls a function that nobody defines. */

extern int missing(int x);

SEC("kprobe/vectorAdd")
int cuda__extern(void *ctx) {
	return missing(1);
}

char LICENSE[] SEC("license") = "GPL";
