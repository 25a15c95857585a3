// SPDX-License-Identifier: Apache-2.0
/*
 * Variables of a thread beside the same in memory: how long each thread ran, and what it moved. The
 * first program of each point sees what the second has done at the point before.
 */
#include "gpuprobe.bpf.h"

#define ARRAY(NAME, TYPE)               \
	struct {                        \
		__uint(type, TYPE);     \
		__uint(max_entries, 1); \
		__type(key, __u32);     \
		__type(value, __u64);   \
	} NAME SEC(".maps")

ARRAY(ran, BPF_MAP_TYPE_ARRAY); /* nanoseconds, summed in registers until the end */
ARRAY(ran_by_thread, BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP); /* the same in memory */
ARRAY(moved, BPF_MAP_TYPE_ARRAY); /* bytes */
ARRAY(moved_by_access, BPF_MAP_TYPE_ARRAY);
ARRAY(wrong, BPF_MAP_TYPE_ARRAY); /* threads that did not find what they had to */

__u64 begin SEC(".thread");
__u32 bytes SEC(".thread"), stored SEC(".thread");
__u8 entered SEC(".thread"), flags[4] SEC(".thread");
static __u16 accesses SEC(".thread");

static __always_inline void add(void *map, __u64 value) {
	__u32 key = 0;
	__u64 *sum = bpf_map_lookup_elem(map, &key);

	if (sum)
		__sync_fetch_and_add(sum, value);
}

SEC("kprobe/vectorAdd")
int cuda__begin(void *ctx) {
	__u32 key = 0;
	__u64 *time = bpf_map_lookup_elem(&ran_by_thread, &key), now = bpf_get_globaltimer();

	if (begin || bytes || stored || entered || flags[0] || flags[3] || accesses)
		add(&wrong, 1);
	begin = now;
	entered = 1;
	if (time)
		*time = now;
	return 0;
}

SEC("memcapture/vectorAdd")
int cuda__access(struct gpuprobe_memory_ctx *ctx) {
	if (!entered)
		add(&wrong, 1);
	if (ctx->space != GPUPROBE_SPACE_GLOBAL)
		return 0;
	if (ctx->kind == GPUPROBE_ACCESS_STORE)
		stored += ctx->size;
	else
		bytes += ctx->size;
	flags[ctx->kind & 3]++;
	accesses++;
	add(&moved_by_access, ctx->size);
	return 0;
}

SEC("kretprobe/vectorAdd")
int cuda__end(void *ctx) {
	__u32 key = 0;
	__u64 *time = bpf_map_lookup_elem(&ran_by_thread, &key), now = bpf_get_globaltimer();

	if (accesses != flags[0] + flags[1] + flags[2] + flags[3] || flags[0] || flags[3] ||
	    (accesses && (bytes != 8 || stored != 4 || flags[1] != 2 || flags[2] != 1)))
		add(&wrong, 1);
	add(&moved, bytes + stored);
	add(&ran, now - begin);
	if (time)
		*time = now - *time;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
