// SPDX-License-Identifier: Apache-2.0

/*
 * Test object for tests/e2e: maps that the host writes to (test-map-update.py) control the program.
 * Each thread adds to `results` what it finds.
 */

#include "gpuprobe.bpf.h"

enum mode {
	SLOW = 1,
	FAST = 2
};

struct setting {
	__u32 factor;
	__s32 shift;
	enum mode mode;
	char name[8];
	__u8 low : 3, high : 5;
	__u64 list[2];
};

#define ARRAY(map, map_type, value_type, n) \
	struct {                            \
		__uint(type, map_type);     \
		__uint(max_entries, n);     \
		__type(key, __u32);         \
		__type(value, value_type);  \
	} map SEC(".maps")

ARRAY(settings, BPF_MAP_TYPE_ARRAY, struct setting, 2);
ARRAY(live, BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP, __u64, 2);
ARRAY(threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP, __u64, 1);
ARRAY(sms, BPF_MAP_TYPE_PERCPU_ARRAY, __u64, 1);
ARRAY(last, BPF_MAP_TYPE_ARRAY, __u64, 1);
ARRAY(results, BPF_MAP_TYPE_ARRAY, __u64, 8);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u64);
	__type(value, __u64);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

volatile int threshold = 3;
volatile int other = 4;
const volatile int constant = 1;

static __always_inline void add(__u32 key, __u64 n) {
	__u64 *value = bpf_map_lookup_elem(&results, &key);

	if (value)
		__sync_fetch_and_add(value, n);
}

SEC("kprobe/vectorAdd")
int cuda__inputs(void *ctx) {
	struct setting *setting;
	__u64 *value, key = 7, five = 5;
	__u32 zero = 0;

	setting = bpf_map_lookup_elem(&settings, &zero);
	if (setting)
		add(0, setting->factor + setting->shift);
	value = bpf_map_lookup_elem(&live, &zero);
	if (value)
		add(1, *value);
	value = bpf_map_lookup_elem(&table, &key);
	if (value) {
		add(2, *value);
		__sync_fetch_and_add(value, 1);
	}
	value = bpf_map_lookup_elem(&threads, &zero);
	if (value)
		add(3, *value);
	value = bpf_map_lookup_elem(&sms, &zero);
	if (value)
		add(4, *value);
	add(5, threshold + other);
	add(6, 1);
	bpf_map_update_elem(&last, &zero, &five, BPF_ANY);
	if (constant != 1)
		bpf_ringbuf_output(&ring, &five, sizeof(five), 0);
	return 0;
}

SEC("kprobe/no_such_kernel")
int cuda__ring(void *ctx) {
	__u64 five = 5;

	bpf_ringbuf_output(&ring, &five, sizeof(five), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
