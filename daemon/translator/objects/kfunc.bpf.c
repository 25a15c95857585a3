// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Refused: a function of the kernel that no GPU has. */

extern void bpf_rcu_read_lock(void) __ksym;

SEC("kprobe/every")
int cuda__kfunc(void *ctx) {
	bpf_rcu_read_lock();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
