/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of the helpers that a GPU program may call (helper.h): number, name, and the functions
 * of the device library behind them.
 */

#include "helper.h"

#include <stddef.h>

#include "insn.h"

static const struct helper helpers[] = {
	{ 1, "bpf_map_lookup_elem", HELPER_MAP_LOOKUP, { NULL } },
	{ 2, "bpf_map_update_elem", HELPER_MAP_UPDATE, { NULL } },
	{ 3, "bpf_map_delete_elem", HELPER_MAP_DELETE, { NULL } },
	{ 5, "bpf_ktime_get_ns", HELPER_SCALAR, { "gpuprobe_globaltimer" } },
	{ 6, "bpf_trace_printk", HELPER_PRINTK, { NULL } },
	{ 7, "bpf_get_prandom_u32", HELPER_SCALAR, { "gpuprobe_prandom" } },
	{ 8, "bpf_get_smp_processor_id", HELPER_SCALAR, { "gpuprobe_sm_id" } },
	{ 14, "bpf_get_current_pid_tgid", HELPER_PID_TGID, { NULL } },
	{ 16, "bpf_get_current_comm", HELPER_COMM, { NULL } },
	{ 25, "bpf_perf_event_output", HELPER_PERF_OUTPUT, { NULL } },
	{ 130, "bpf_ringbuf_output", HELPER_RING_OUTPUT, { NULL } },
	{ 131, "bpf_ringbuf_reserve", HELPER_RING_RESERVE, { NULL } },
	{ 132, "bpf_ringbuf_submit", HELPER_RING_SUBMIT, { NULL } },
	{ 133, "bpf_ringbuf_discard", HELPER_RING_DISCARD, { NULL } },
	{ 177, "bpf_trace_vprintk", HELPER_VPRINTK, { NULL } },
	{ INSN_HELPER_LOOP, "bpf_loop", HELPER_LOOP, { NULL } },
	{ 501, "ebpf_puts", HELPER_PUTS, { NULL } },
	{ 502, "bpf_get_globaltimer", HELPER_SCALAR, { "gpuprobe_globaltimer" } },
	{ 503,
	  "bpf_get_block_idx",
	  HELPER_TRIPLE,
	  { "gpuprobe_block_idx_x", "gpuprobe_block_idx_y", "gpuprobe_block_idx_z" } },
	{ 504,
	  "bpf_get_block_dim",
	  HELPER_TRIPLE,
	  { "gpuprobe_block_dim_x", "gpuprobe_block_dim_y", "gpuprobe_block_dim_z" } },
	{ 505,
	  "bpf_get_thread_idx",
	  HELPER_TRIPLE,
	  { "gpuprobe_thread_idx_x", "gpuprobe_thread_idx_y", "gpuprobe_thread_idx_z" } },
	{ 506, "bpf_gpu_membar", HELPER_MEMBAR, { NULL } },
	{ 507, "bpf_cuda_exit", HELPER_EXIT, { NULL } },
	{ 508,
	  "bpf_get_grid_dim",
	  HELPER_TRIPLE,
	  { "gpuprobe_grid_dim_x", "gpuprobe_grid_dim_y", "gpuprobe_grid_dim_z" } },
	{ 509, "bpf_get_sm_id", HELPER_SCALAR, { "gpuprobe_sm_id" } },
	{ 510, "bpf_get_warp_id", HELPER_SCALAR, { "gpuprobe_warp_id" } },
	{ 511, "bpf_get_lane_id", HELPER_SCALAR, { "gpuprobe_lane_id" } },
	{ 512, "bpf_get_device_ordinal", HELPER_DEVICE, { NULL } },
};

const struct helper *helper_find(uint32_t id) {
	for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
		if (helpers[i].id == id)
			return helpers + i;
	return NULL;
}
