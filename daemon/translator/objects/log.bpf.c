// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted, also by the verifier: it writes to the log in all three
 * ways, and asks for its process.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

SEC("kprobe/every")
int cuda__log(void *ctx) {
	char comm[16];
	__u32 key = 1;
	__u64 *value;

	ebpf_puts("a literal is in .rodata.str1.1");
	bpf_printk("lane %d of SM %d", (int)bpf_get_lane_id(), (int)bpf_get_sm_id());
	bpf_printk("%d %d %d %d", 1, 2, 3, (int)GPU_PARAM(ctx, 0));
	bpf_get_current_comm(comm, sizeof(comm));
	value = bpf_map_lookup_elem(&out, &key);
	if (value)
		*value = bpf_get_device_ordinal() + bpf_get_current_pid_tgid() + comm[0];
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
