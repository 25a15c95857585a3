// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Not linked: asks for the layout of a type in the running kernel. */

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

SEC("kprobe/vectorAdd")
int cuda__core(struct task_struct *task) {
	return task->pid;
}

char LICENSE[] SEC("license") = "GPL";
