// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator with host programs: one can only run on the host, the other could
 * run on a GPU too.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

SEC("tracepoint/syscalls/sys_enter_openat")
int on_open(void *ctx) {
	return 0;
}

SEC("kprobe/do_unlinkat")
int on_unlink(void *ctx) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&out, &key);

	if (value)
		*value = bpf_get_current_pid_tgid();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
