// SPDX-License-Identifier: Apache-2.0
/* A line for each launch of vectorAdd, from its first thread: the grid, and where the result goes.
 * gpuprobectl log -f prints it. */
#include "gpuprobe.bpf.h"

SEC("kprobe/vectorAdd")
int cuda__print_launch(struct gpuprobe_kernel_ctx *ctx) {
	__u64 bx, by, bz, tx, ty, tz;

	bpf_get_block_idx(&bx, &by, &bz);
	bpf_get_thread_idx(&tx, &ty, &tz);
	if (bx | by | bz | tx | ty | tz)
		return 0;
	bpf_printk("%u blocks of %u threads, c = 0x%llx", (__u32)ctx->grid_dim,
		   (__u32)(ctx->block_dim & 0xffff), GPU_PARAM(ctx, 2));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
