// SPDX-License-Identifier: Apache-2.0

/* Test object for tests/e2e: keys and values with members of each kind that metrics can show. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "gpuprobe.bpf.h"

enum parity {
	EVEN,
	ODD,
};

enum change {
	DOWN = -1,
	UP = 1,
};

/* the same, as far as one looks who has no room for all of it */
enum reason {
	REASON_WHY_THE_FUNCTION_THAT_MAPS_GRAPHICS_RESOURCES_WAS_CALLED_FIRST,
	REASON_WHY_THE_FUNCTION_THAT_MAPS_GRAPHICS_RESOURCES_WAS_CALLED_AGAIN,
};

struct key {
	__u32 block;
	enum parity parity;
	char name[12];
};

struct value {
	__u64 threads;
	__u64 blocks;
};

struct log_key {
	enum parity parity;
	__u32 log2;
};

#define TEN(P) P##0, P##1, P##2, P##3, P##4, P##5, P##6, P##7, P##8, P##9
#define HUNDRED(P)                                                                              \
	TEN(P##0), TEN(P##1), TEN(P##2), TEN(P##3), TEN(P##4), TEN(P##5), TEN(P##6), TEN(P##7), \
		TEN(P##8), TEN(P##9)

enum code {
	HUNDRED(CODE_0),
	HUNDRED(CODE_1),
	HUNDRED(CODE_2),
	HUNDRED(CODE_3),
	HUNDRED(CODE_4),
	HUNDRED(CODE_5),
	HUNDRED(CODE_6),
	HUNDRED(CODE_7),
	HUNDRED(CODE_8),
	HUNDRED(CODE_9),
};

struct codes {
	enum code last[64];
	__u64 behind;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct codes);
} codes SEC(".maps");

struct sized {
	__u64 buckets[4];
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sized);
} sized SEC(".maps");

struct many {
	__u64 buckets[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2500);
	__type(key, __u32);
	__type(value, struct many);
} many SEC(".maps");

struct way {
	enum reason reason;
	enum parity path[2];
	char text[300];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct way);
	__type(value, __u64);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, enum change);
} last SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct key);
	__type(value, struct value);
} by_block SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, struct log_key);
	__type(value, __u64);
} sizes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} wide SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("kprobe/vectorAdd")
int cuda__metrics(void *ctx) {
	struct value zero = {}, *value;
	struct key key = { .name = "a\"b\\c" };
	struct log_key log = {};
	__u64 block, thread, size, unused, none = 0, *count;
	__u32 first = 0, second = 1, event = 1, number;
	enum change change = DOWN;
	struct way way = {};
	struct codes *seen;
	struct sized *in_value;
	struct many *one;

	bpf_get_block_idx(&block, &unused, &unused);
	bpf_get_thread_idx(&thread, &unused, &unused);
	bpf_get_block_dim(&size, &unused, &unused);
	number = block * size + thread;
	one = bpf_map_lookup_elem(&many, &number);
	if (one)
		one->buckets[63] = 1;
	key.block = block & 15;
	key.parity = block & 1;
	value = bpf_map_lookup_elem(&by_block, &key);
	if (!value) {
		bpf_map_update_elem(&by_block, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&by_block, &key);
	}
	if (value) {
		__sync_fetch_and_add(&value->threads, 1);
		if (!thread)
			__sync_fetch_and_add(&value->blocks, 1);
	}
	log.parity = thread & 1;
	log.log2 = thread < 2 ? 0 : thread < 16 ? 3 : 7;
	count = bpf_map_lookup_elem(&sizes, &log);
	if (!count) {
		bpf_map_update_elem(&sizes, &log, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&sizes, &log);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&percpu, &second);
	if (count)
		__sync_fetch_and_add(count, 1);
	if (thread < 16) {
		for (int i = 0; i < 299; i++)
			way.text[i] = 'x';
		way.reason = thread & 1;
		way.path[0] = thread >> 1 & 1;
		way.path[1] = thread >> 2 & 1;
		way.text[298] = thread & 8 ? 'y' : 'z';
		bpf_map_update_elem(&ways, &way, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&ways, &way);
		if (count)
			__sync_fetch_and_add(count, 1 << thread);
	}
	bpf_map_update_elem(&last, &first, &change, BPF_ANY);
	if (!block && !thread) {
		seen = bpf_map_lookup_elem(&codes, &first);
		for (int i = 0; seen && i < 64; i++)
			seen->last[i] = 999 - i;
		if (seen)
			seen->behind = 1;
		in_value = bpf_map_lookup_elem(&sized, &first);
		if (in_value) {
			in_value->buckets[2] = 5;
			in_value->sum = 30;
		}
		bpf_ringbuf_output(&events, &event, sizeof(event), 0);
		count = bpf_map_lookup_elem(&wide, &first);
		if (count)
			__sync_fetch_and_add(count, (1ULL << 60) + 1); /* no double holds that */
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
