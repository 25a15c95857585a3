// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, accepted: its accesses are in bounds only because of a constant in
 * .rodata.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

const volatile __u32 bound = 8;
__u64 table_in_data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

SEC("kprobe/*")
int cuda__rodata_bound(void *ctx) {
	__u64 sum = 0;

	for (__u32 i = 0; i < bound; i++) /* in bounds only because .rodata cannot change */
		sum += ((volatile __u64 *)table_in_data)[i];
	return sum;
}

char LICENSE[] SEC("license") = "GPL";
