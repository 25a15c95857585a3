// SPDX-License-Identifier: Apache-2.0
/*
 * Counts what each block of a kernel did, in a hash. The counts are exact: whoever finds no element
 * puts one there with a 1, unless somebody else was faster; then there is one to add to.
 */
#include "gpuprobe.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096); /* further keys are refused, and not counted */
	__type(key, __u64);
	__type(value, __u64);
} counts SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__hash_count(void *ctx) {
	__u64 x, y, z, one = 1, *count;

	bpf_get_block_idx(&x, &y, &z);
	count = bpf_map_lookup_elem(&counts, &x);
	if (!count) {
		if (bpf_map_update_elem(&counts, &x, &one, BPF_NOEXIST) != -17) /* EEXIST */
			return 0;
		count = bpf_map_lookup_elem(&counts, &x);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
