// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted: its host programs use types of the running kernel
 * (CO-RE); its GPU program does not.
 */

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct task_struct {
	int tgid;
	struct task_struct *group_leader;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY_MAP);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static void note(__u32 key, __u64 value) {
	__u64 *place = bpf_map_lookup_elem(&seen, &key);

	if (place)
		*place = value;
}

SEC("uprobe/libcuda.so.1:cuLaunchKernel")
int host_launch(void *ctx) {
	struct task_struct *task = (void *)bpf_get_current_task();

	note(0, BPF_CORE_READ(task, group_leader, tgid));
	note(1, bpf_core_field_exists(struct task_struct, group_leader) ? 7 : 8);
	return 0;
}

SEC("kprobe/do_nanosleep")
int host_sleep(void *ctx) {
	return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), tgid);
}

SEC("kprobe/vectorAdd")
int cuda__launch(void *ctx) {
	note(2, 5);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
