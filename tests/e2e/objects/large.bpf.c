// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: a map with many elements, and one with large values whose types do not
 * say where integers are.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define LARGE(name)                                \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(max_entries, 1);            \
		__uint(key_size, 4);               \
		__uint(value_size, (2 << 20) - 1); \
	} name SEC(".maps")

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 100000);
	__uint(key_size, 4);
	__uint(value_size, 8);
} many SEC(".maps");

LARGE(first);
LARGE(second);

SEC("kprobe/vectorAdd")
int cuda__large(void *ctx) {
	__u32 key = 0;
	char *value = bpf_map_lookup_elem(&first, &key);

	if (value)
		value[0] = 1;
	value = bpf_map_lookup_elem(&second, &key);
	if (value)
		value[0] = 1;
	value = bpf_map_lookup_elem(&many, &key);
	if (value)
		value[0] = 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
