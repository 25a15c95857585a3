// SPDX-License-Identifier: Apache-2.0

/* Test object of the translator, refused: it compares x with the bound but uses y as the index. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 table[8];

SEC("kprobe/vectorAdd")
int cuda__unknown(void *ctx) {
	__u64 x = 0, y = 0, z = 0;

	bpf_get_thread_idx(&x, &y, &z);
	if (x < 8)
		table[y] = 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
