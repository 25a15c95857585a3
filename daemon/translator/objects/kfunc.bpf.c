// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it calls a kfunc that no GPU has. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

extern void bpf_rcu_read_lock(void) __ksym;

SEC("kprobe/every")
int cuda__kfunc(void *ctx) {
	bpf_rcu_read_lock();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
