// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: about as many maps as an object may have. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

struct counter {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

#define EACH10(what, n)                                                                         \
	what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7) \
		what(n##8) what(n##9)
#define EACH60(what)    \
	EACH10(what, 1) \
	EACH10(what, 2) EACH10(what, 3) EACH10(what, 4) EACH10(what, 5) EACH10(what, 6)
#define MAP(n) struct counter counter##n SEC(".maps");
#define COUNT(n) count(&counter##n);

EACH60(MAP)

static __always_inline void count(void *map) {
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/vectorAdd")
int cuda__many(void *ctx) {
	EACH60(COUNT)
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
