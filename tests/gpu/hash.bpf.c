// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/*
 * A program for tests on GPUs. What all threads of a GPU do to one hash at once; see hash.c. With
 * DELETES they insert and delete, else they count.
 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* hash.py says how many */
	__type(key, __u64);
	__type(value, __u64);
} map SEC(".maps");

struct plan {
	__u64 keys, rounds;
	__u64 inserted, deleted, refused, odd; /* what came of it */
};

static long (*const get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static long (*const get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static long (*const get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

#define ADD(field) __sync_fetch_and_add(&plan->field, 1)

#ifdef DELETES
static __always_inline void turn(struct plan *plan, __u64 thread, __u64 round) {
	__u64 random = (thread * 64 + round + 1) * 0x9e3779b97f4a7c15, key, value;
	long r;

	random = (random ^ random >> 29) * 0xd6e8feb86659fd93;
	key = (random >> 8 & 0xffffffff) % plan->keys;
	value = ~key;
	if (random >> 63) {
		r = bpf_map_update_elem(&map, &key, &value, BPF_NOEXIST);
		if (r == 0)
			ADD(inserted);
		else if (r == -7)
			ADD(refused);
		else if (r != -17)
			ADD(odd);
	} else {
		r = bpf_map_delete_elem(&map, &key);
		if (r == 0)
			ADD(deleted);
		else if (r != -2)
			ADD(odd);
	}
}
#else
static __always_inline void turn(struct plan *plan, __u64 thread, __u64 round) {
	__u64 key = (thread + round * 977) % plan->keys, one = 1, *value;
	long r;

	value = bpf_map_lookup_elem(&map, &key);
	if (!value) {
		r = bpf_map_update_elem(&map, &key, &one, BPF_NOEXIST);
		if (r == -7)
			ADD(refused);
		else if (r && r != -17)
			ADD(odd);
		if (r != -17)
			return;
		value = bpf_map_lookup_elem(&map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
	else
		ADD(odd);
}
#endif

SEC("kprobe/hash")
int cuda__hash(struct plan *plan) {
	__u64 block, size, thread, y, z;

	get_block_idx(&block, &y, &z);
	get_block_dim(&size, &y, &z);
	get_thread_idx(&thread, &y, &z);
	for (__u64 round = 0; round < plan->rounds; round++)
		turn(plan, block * size + thread, round);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
