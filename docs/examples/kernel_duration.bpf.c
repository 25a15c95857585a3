// SPDX-License-Identifier: Apache-2.0
/*
 * How long each launch of each kernel took, as a histogram: for a kernel_id and the logarithm (base
 * 2) of nanoseconds, how many launches. The kernel_report script beside it prints it with names.
 *
 * The first thread of each block does all the work. At the entry the first of them to come notes
 * the time; at the return the last of the grid counts the launch. All launches are counted. A
 * launch is known by its name (ctx->launch), so those that run at the same time do not disturb each
 * other. Where it has none, as on the sanitizer engine, of launches of one kernel and grid that run
 * at the same time (in several streams) the first counts the time since the first began, the others
 * that since the one before them ended.
 */
#include "gpuprobe.bpf.h"

/* A launch. If it has no name (0), those of another kernel or size are told apart. */
struct launch {
	gpuprobe_kernel_id kernel_id;
	__u64 dim, dim_z;
	__u64 id;
};

struct state {
	__u64 begin; /* of the launch that runs; 0: none does */
	__u64 left; /* blocks that have returned; without a name, of all launches */
};

struct bucket {
	gpuprobe_kernel_id kernel_id;
	__u64 log2_ns; /* 10: 1024 to 2047 ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct launch);
	__type(value, struct state);
} running SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct bucket);
	__type(value, __u64);
} launches SEC(".maps");

static __always_inline int is_first_thread(void) {
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	return !(x | y | z);
}

static __always_inline __u64 log2_of(__u64 value) {
	__u64 log = 0;

	for (int shift = 32; shift; shift /= 2)
		if (value >> shift) {
			value >>= shift;
			log += shift;
		}
	return log;
}

SEC("kprobe/*")
int cuda__begin(struct gpuprobe_launch_ctx *ctx) {
	struct launch key = { ctx->kernel_id, ctx->grid_dim, ctx->grid_dim_z, ctx->launch.id };
	struct state none = {}, *state;

	if (!is_first_thread())
		return 0;
	state = bpf_map_lookup_elem(&running, &key);
	if (!state) {
		bpf_map_update_elem(&running, &key, &none, BPF_NOEXIST);
		state = bpf_map_lookup_elem(&running, &key);
	}
	if (state && !state->begin)
		__sync_val_compare_and_swap(&state->begin, 0, bpf_get_globaltimer());
	return 0;
}

SEC("kretprobe/*")
int cuda__end(struct gpuprobe_launch_ctx *ctx) {
	struct launch key = { ctx->kernel_id, ctx->grid_dim, ctx->grid_dim_z, ctx->launch.id };
	__u64 blocks = (key.dim & 0xffffffff) * (key.dim >> 32) * key.dim_z, zero = 0, now, begin,
	      *count;
	struct bucket bucket = { key.kernel_id, 0 };
	struct state *state;

	if (!is_first_thread())
		return 0;
	state = bpf_map_lookup_elem(&running, &key);
	if (!state)
		return 0; /* attached while the kernel ran, or the map is full */
	if ((__sync_fetch_and_add(&state->left, 1) + 1) % blocks)
		return 0;
	now = bpf_get_globaltimer();
	begin = __sync_lock_test_and_set(&state->begin, 0);
	if (key.id) /* nobody comes any more */
		bpf_map_delete_elem(&running, &key);
	bucket.log2_ns = begin && now > begin ? log2_of(now - begin) : 0;
	count = bpf_map_lookup_elem(&launches, &bucket);
	if (!count) {
		bpf_map_update_elem(&launches, &bucket, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&launches, &bucket);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
