// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: a program on the host uses a variable of a thread. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 calls SEC(".thread");

SEC("kprobe/*")
int cuda__enter(void *ctx) {
	calls++;
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_getpid")
int on_host(void *ctx) {
	calls++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
