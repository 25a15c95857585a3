// SPDX-License-Identifier: Apache-2.0

/*
 * Test object of the translator, refused: it takes the number of an SM as an index without a check.
 * The number of CPUs of this machine is no bound for it.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

__u64 table[65536];

SEC("kprobe/vectorAdd")
int cuda__unknown_sm(void *ctx) {
	__u32 sm = bpf_get_smp_processor_id();

	table[sm] = 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
