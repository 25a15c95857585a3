// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, refused: it passes a number to a GPU helper that takes a pointer.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

SEC("kprobe/every")
int cuda__bad_pointer(void *ctx) {
	__u64 x = 0;
	__u64 *bad = (__u64 *)bpf_get_lane_id();

	bpf_get_thread_idx(&x, bad, &x); /* the second is no pointer */
	return x;
}

char LICENSE[] SEC("license") = "GPL";
