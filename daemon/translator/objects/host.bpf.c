// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

/* Host programs: one that can be nothing else, one that could run on a GPU too. */

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
