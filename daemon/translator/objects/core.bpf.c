// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator that cannot be linked: its GPU program asks for the layout of a
 * type in the running kernel (CO-RE).
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

SEC("kprobe/vectorAdd")
int cuda__core(struct task_struct *task) {
	return task->pid;
}

char LICENSE[] SEC("license") = "GPL";
