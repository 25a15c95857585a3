// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/*
 * Does to a hash what its memory says, call by call; for test-hash.py, which compiles it for many
 * types and sizes (MAP_TYPE, KEY_SIZE, VALUE_SIZE). Each thread has `n_calls` of them. What a
 * lookup saw is put where the value was. With ON_STACK, keys are on the stack, else in the memory.
 */

#define ROUNDED(size) (((size) + 7) / 8 * 8)

enum kind {
	LOOKUP = 1,
	UPDATE,
	DELETE,
	COUNT
};

struct call {
	__s64 kind;
	__s64 flags;
	__s64 result;
	__u8 key[ROUNDED(KEY_SIZE)];
	__u8 value[ROUNDED(VALUE_SIZE)];
};

struct calls {
	__u64 n_calls;
	struct call calls[];
};

struct {
	__uint(type, MAP_TYPE);
	__uint(max_entries, 16);
	__uint(key_size, KEY_SIZE);
	__uint(value_size, VALUE_SIZE);
} map SEC(".maps");

static long (*const get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static long (*const get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static long (*const get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

static __always_inline void perform(struct call *call, const void *key) {
	__u8 *value;

	switch (call->kind) {
	case LOOKUP:
		value = bpf_map_lookup_elem(&map, key);
		call->result = value != 0;
		for (int i = 0; value && i < VALUE_SIZE; i++)
			call->value[i] = value[i];
		break;
	case UPDATE:
		call->result = bpf_map_update_elem(&map, key, call->value, call->flags);
		break;
	case DELETE:
		call->result = bpf_map_delete_elem(&map, key);
		break;
	case COUNT:
#if VALUE_SIZE == 8
		value = bpf_map_lookup_elem(&map, key);
		if (!value) {
			call->result = bpf_map_update_elem(&map, key, call->value, BPF_NOEXIST);
			if (call->result != -17)
				break;
			value = bpf_map_lookup_elem(&map, key);
		}
		if (value)
			__sync_fetch_and_add((__u64 *)value, 1);
		call->result = value ? 0 : -1;
#endif
		break;
	}
}

SEC("kprobe/hash")
int cuda__hash(struct calls *calls) {
	__u64 block, size, thread, y, z;
	struct call *call;

	get_block_idx(&block, &y, &z);
	get_block_dim(&size, &y, &z);
	get_thread_idx(&thread, &y, &z);
	call = calls->calls + (block * size + thread) * calls->n_calls;
	for (__u64 n = 0; n < calls->n_calls; n++, call++) {
#ifdef ON_STACK
		__u8 key[KEY_SIZE];

		for (int i = 0; i < KEY_SIZE; i++)
			key[i] = call->key[i];
		perform(call, key);
#else
		perform(call, call->key);
#endif
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
