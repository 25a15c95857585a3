/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The helpers that a GPU program may call: one row for each. The translator, the shadow that the
 * kernel's verifier sees, the linker, the fuzzers and the conformance suite (bpf.py reads the rows
 * as text) all read this table. `gpuprobe.bpf.h` declares the helpers of our own for authors;
 * test-bpf-header.py compares the two.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a helper takes, does and returns. */
enum helper_kind {
	HELPER_MAP_LOOKUP,
	HELPER_MAP_UPDATE,
	HELPER_MAP_DELETE,
	HELPER_SCALAR, /* no arguments, a number */
	HELPER_TRIPLE, /* writes three u64 through R1, R2, R3; returns 0 */
	HELPER_NUMBER, /* helper_arguments() numbers from R1 on, a number */
	HELPER_ATOMIC, /* changes the 8 bytes of a map's value at R1 by the number R2; returns 0 */
	HELPER_MEMBAR,
	HELPER_PID_TGID, /* of the process slot, as the next two */
	HELPER_DEVICE,
	HELPER_COMM,
	HELPER_PERF_OUTPUT, /* rings */
	HELPER_RING_OUTPUT,
	HELPER_RING_RESERVE,
	HELPER_RING_SUBMIT,
	HELPER_RING_DISCARD,
	HELPER_PRINTK, /* the log */
	HELPER_VPRINTK,
	HELPER_PUTS,
	HELPER_EXIT,
	HELPER_LOOP,
};

/* What the kernel's verifier is shown in a helper's place: daemon/gpuprobed/verify/shadow.c. */
enum helper_stub {
	HELPER_STUB_NONE, /* the kernel's own helper of that number */
	HELPER_STUB_SCALAR, /* returns an unknown number */
	HELPER_STUB_NUMBER1, /* the same; R1 is a number */
	HELPER_STUB_NUMBER2, /* R1 and R2 are */
	HELPER_STUB_NUMBER3, /* R1, R2 and R3 are */
	HELPER_STUB_LANE, /* returns an unknown number of 0..31 */
	HELPER_STUB_BIT, /* returns an unknown number of 0..63; R1 is a number */
	HELPER_STUB_ATOMIC, /* adds the number R2 atomically to 8 bytes at R1 */
	HELPER_STUB_WRITE3, /* three unknown numbers of 32 bits go through R1, R2, R3 */
	HELPER_STUB_PUTS, /* reads bytes through R1 up to a zero byte, at most 255 */
	HELPER_STUB_RING, /* bpf_ringbuf_output in place of bpf_perf_event_output */
	_HELPER_STUB_N,
};

#define HELPER_OWN_FIRST 501 /* helpers of our own, which the kernel lacks, begin here */
#define HELPER_ID_LOOP 181
#define HELPER_ID_BLOCK_DIM 504
#define HELPER_ID_GRID_DIM 508

struct helper {
	uint32_t id;
	const char *name;
	enum helper_kind kind;
	enum helper_stub stub;
	/*
	 * SCALAR, NUMBER, ATOMIC: the function of the device library that does it (ATOMIC: with
	 * _sys behind the name for memory of the host); TRIPLE: the three functions' name without
	 * _x, _y, _z; else NULL.
	 */
	const char *device;
	unsigned sm; /* the least architecture that has it, 90 is sm_90; 0: all that we support */
};

static const struct helper helper_table[] = {
	{ 1, "bpf_map_lookup_elem", HELPER_MAP_LOOKUP, HELPER_STUB_NONE, NULL, 0 },
	{ 2, "bpf_map_update_elem", HELPER_MAP_UPDATE, HELPER_STUB_NONE, NULL, 0 },
	{ 3, "bpf_map_delete_elem", HELPER_MAP_DELETE, HELPER_STUB_NONE, NULL, 0 },
	{ 5, "bpf_ktime_get_ns", HELPER_SCALAR, HELPER_STUB_NONE, "gpuprobe_globaltimer", 0 },
	{ 6, "bpf_trace_printk", HELPER_PRINTK, HELPER_STUB_NONE, NULL, 0 },
	{ 7, "bpf_get_prandom_u32", HELPER_SCALAR, HELPER_STUB_NONE, "gpuprobe_prandom", 0 },
	/* the verifier takes a CPU of this machine for granted; on the GPU it is an SM */
	{ 8, "bpf_get_smp_processor_id", HELPER_SCALAR, HELPER_STUB_SCALAR, "gpuprobe_sm_id", 0 },
	{ 14, "bpf_get_current_pid_tgid", HELPER_PID_TGID, HELPER_STUB_NONE, NULL, 0 },
	{ 16, "bpf_get_current_comm", HELPER_COMM, HELPER_STUB_NONE, NULL, 0 },
	{ 25, "bpf_perf_event_output", HELPER_PERF_OUTPUT, HELPER_STUB_RING, NULL, 0 },
	{ 130, "bpf_ringbuf_output", HELPER_RING_OUTPUT, HELPER_STUB_NONE, NULL, 0 },
	{ 131, "bpf_ringbuf_reserve", HELPER_RING_RESERVE, HELPER_STUB_NONE, NULL, 0 },
	{ 132, "bpf_ringbuf_submit", HELPER_RING_SUBMIT, HELPER_STUB_NONE, NULL, 0 },
	{ 133, "bpf_ringbuf_discard", HELPER_RING_DISCARD, HELPER_STUB_NONE, NULL, 0 },
	{ 177, "bpf_trace_vprintk", HELPER_VPRINTK, HELPER_STUB_NONE, NULL, 0 },
	{ HELPER_ID_LOOP, "bpf_loop", HELPER_LOOP, HELPER_STUB_NONE, NULL, 0 },
	{ 501, "ebpf_puts", HELPER_PUTS, HELPER_STUB_PUTS, NULL, 0 },
	{ 502, "bpf_get_globaltimer", HELPER_SCALAR, HELPER_STUB_SCALAR, "gpuprobe_globaltimer",
	  0 },
	{ 503, "bpf_get_block_idx", HELPER_TRIPLE, HELPER_STUB_WRITE3, "gpuprobe_block_idx", 0 },
	{ 504, "bpf_get_block_dim", HELPER_TRIPLE, HELPER_STUB_WRITE3, "gpuprobe_block_dim", 0 },
	{ 505, "bpf_get_thread_idx", HELPER_TRIPLE, HELPER_STUB_WRITE3, "gpuprobe_thread_idx", 0 },
	{ 506, "bpf_gpu_membar", HELPER_MEMBAR, HELPER_STUB_SCALAR, NULL, 0 },
	{ 507, "bpf_cuda_exit", HELPER_EXIT, HELPER_STUB_SCALAR, NULL, 0 },
	{ 508, "bpf_get_grid_dim", HELPER_TRIPLE, HELPER_STUB_WRITE3, "gpuprobe_grid_dim", 0 },
	{ 509, "bpf_get_sm_id", HELPER_SCALAR, HELPER_STUB_SCALAR, "gpuprobe_sm_id", 0 },
	{ 510, "bpf_get_warp_id", HELPER_SCALAR, HELPER_STUB_SCALAR, "gpuprobe_warp_id", 0 },
	{ 511, "bpf_get_lane_id", HELPER_SCALAR, HELPER_STUB_LANE, "gpuprobe_lane_id", 0 },
	{ 512, "bpf_get_device_ordinal", HELPER_DEVICE, HELPER_STUB_SCALAR, NULL, 0 },
	{ 513, "bpf_get_cluster_id", HELPER_TRIPLE, HELPER_STUB_WRITE3, "gpuprobe_cluster_id", 90 },
	{ 514, "bpf_warp_active", HELPER_NUMBER, HELPER_STUB_SCALAR, "gpuprobe_warp_active", 0 },
	{ 515, "bpf_warp_is_leader", HELPER_NUMBER, HELPER_STUB_SCALAR, "gpuprobe_warp_is_leader",
	  0 },
	{ 516, "bpf_warp_ballot", HELPER_NUMBER, HELPER_STUB_NUMBER1, "gpuprobe_warp_ballot", 0 },
	{ 517, "bpf_warp_any", HELPER_NUMBER, HELPER_STUB_NUMBER1, "gpuprobe_warp_any", 0 },
	{ 518, "bpf_warp_all", HELPER_NUMBER, HELPER_STUB_NUMBER1, "gpuprobe_warp_all", 0 },
	{ 519, "bpf_warp_match", HELPER_NUMBER, HELPER_STUB_NUMBER1, "gpuprobe_warp_match", 70 },
	{ 520, "bpf_warp_shuffle", HELPER_NUMBER, HELPER_STUB_NUMBER2, "gpuprobe_warp_shuffle", 0 },
	{ 521, "bpf_warp_shuffle_up", HELPER_NUMBER, HELPER_STUB_NUMBER2,
	  "gpuprobe_warp_shuffle_up", 0 },
	{ 522, "bpf_warp_shuffle_down", HELPER_NUMBER, HELPER_STUB_NUMBER2,
	  "gpuprobe_warp_shuffle_down", 0 },
	{ 523, "bpf_warp_shuffle_xor", HELPER_NUMBER, HELPER_STUB_NUMBER2,
	  "gpuprobe_warp_shuffle_xor", 0 },
	{ 524, "bpf_warp_sum", HELPER_NUMBER, HELPER_STUB_NUMBER1, "gpuprobe_warp_sum", 0 },
	{ 525, "bpf_atomic_min_u64", HELPER_ATOMIC, HELPER_STUB_ATOMIC, "gpuprobe_atomic_min_u64",
	  0 },
	{ 526, "bpf_atomic_max_u64", HELPER_ATOMIC, HELPER_STUB_ATOMIC, "gpuprobe_atomic_max_u64",
	  0 },
	{ 527, "bpf_atomic_min_s64", HELPER_ATOMIC, HELPER_STUB_ATOMIC, "gpuprobe_atomic_min_s64",
	  0 },
	{ 528, "bpf_atomic_max_s64", HELPER_ATOMIC, HELPER_STUB_ATOMIC, "gpuprobe_atomic_max_s64",
	  0 },
	{ 529, "bpf_atomic_add_f64", HELPER_ATOMIC, HELPER_STUB_ATOMIC, "gpuprobe_atomic_add_f64",
	  60 },
	{ 530, "bpf_log2", HELPER_NUMBER, HELPER_STUB_BIT, "gpuprobe_log2", 0 },
	{ 531, "bpf_float_convert", HELPER_NUMBER, HELPER_STUB_NUMBER3, "gpuprobe_float_convert",
	  0 },
	{ 532, "bpf_float_compare", HELPER_NUMBER, HELPER_STUB_NUMBER3, "gpuprobe_float_compare",
	  0 },
	{ 533, "bpf_float_class", HELPER_NUMBER, HELPER_STUB_NUMBER2, "gpuprobe_float_class", 0 },
};
#define HELPER_COUNT (sizeof(helper_table) / sizeof(helper_table[0]))

/* The helper of a number, which is an instruction's imm; NULL if no GPU has it. */
static inline const struct helper *helper_find(int32_t id) {
	for (size_t i = 0; i < HELPER_COUNT; i++)
		if (helper_table[i].id == (uint32_t)id)
			return &helper_table[i];
	return NULL;
}

/* Whether only a GPU has the helper. */
static inline bool helper_is_gpu(int32_t id) {
	return id >= HELPER_OWN_FIRST && helper_find(id);
}

/* How many numbers a NUMBER takes. */
static inline unsigned helper_arguments(const struct helper *helper) {
	switch (helper->stub) {
	case HELPER_STUB_NUMBER3:
		return 3;
	case HELPER_STUB_NUMBER2:
		return 2;
	case HELPER_STUB_NUMBER1:
	case HELPER_STUB_BIT:
		return 1;
	default:
		return 0;
	}
}

/* Whether a helper writes to the log. */
static inline bool helper_logs(int32_t id) {
	const struct helper *helper = helper_find(id);

	return helper && (helper->kind == HELPER_PRINTK || helper->kind == HELPER_VPRINTK ||
			  helper->kind == HELPER_PUTS);
}
