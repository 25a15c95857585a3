// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted: the code that no GPU can run is never reached, because a
 * constant in .rodata rules it out. Another constant there sets the size of a record.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} out SEC(".maps");

const volatile struct {
	_Bool host;
	__s8 level;
	__u32 record;
} config = { .level = -3, .record = 24 };

SEC("kprobe/*")
int cuda__configured(void *ctx) {
	__u64 *record = bpf_ringbuf_reserve(&events, config.record, 0), id = 7;
	__u32 key = 0;

	if (config.host || config.level > 0)
		id = bpf_get_current_uid_gid();
	if (record) {
		record[0] = id;
		record[1] = (__u64)config.level;
		record[2] = config.record;
		bpf_ringbuf_submit(record, 0);
	}
	bpf_map_update_elem(&out, &key, &id, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
