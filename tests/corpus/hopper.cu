// SPDX-License-Identifier: Apache-2.0
// corpus: only=90a flags= -lineinfo
// What sm_90a adds: tensor memory access, mbarriers, clusters, wgmma, setmaxnreg.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ __cluster_dims__(2, 1, 1) void cluster(int *out)
{
	__shared__ int shared[256];
	auto group = cooperative_groups::this_cluster();

	shared[threadIdx.x] = threadIdx.x;
	group.sync();
	out[blockIdx.x * blockDim.x + threadIdx.x] = *group.map_shared_rank(shared + threadIdx.x, group.block_rank() ^ 1);
	group.sync();
}

__global__ void tensor_memory(const __grid_constant__ CUtensorMap map, int *out)
{
	__shared__ alignas(128) int tile[32 * 32];
#pragma nv_diag_suppress static_var_with_dynamic_init
	__shared__ barrier ready;

	if (threadIdx.x == 0) {
		init(&ready, blockDim.x);
		ptx::fence_proxy_async(ptx::space_shared);
	}
	__syncthreads();
	barrier::arrival_token token;
	if (threadIdx.x == 0) {
		const int where[2] = { 0, 32 };
		ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, where,
					  cuda::device::barrier_native_handle(ready));
		token = cuda::device::barrier_arrive_tx(ready, 1, sizeof(tile));
	} else {
		token = ready.arrive();
	}
	ready.wait(cuda::std::move(token));
	out[threadIdx.x] = tile[threadIdx.x];
	ptx::fence_proxy_async(ptx::space_shared);
	__syncthreads();
	if (threadIdx.x == 0) {
		const int where[2] = { 0, 0 };
		ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, where, tile);
		ptx::cp_async_bulk_commit_group();
		ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
	}
}

// Asynchronous matrix multiply of a warp group, with the register hand-over of a warp-specialised kernel.
__global__ __launch_bounds__(384, 1) void warp_groups(unsigned long long a, unsigned long long b, float *out, int steps)
{
	if (threadIdx.x < 128) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		return;
	}
	asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
	float d[4] = { 0, 0, 0, 0 };
	for (int i = 0; i < steps; i++) {
		asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
		asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
			     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
			     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
			     : "l"(a + i), "l"(b + i), "r"(i));
		asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
		asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
	}
	for (int i = 0; i < 4; i++)
		out[threadIdx.x * 4 + i] = d[i];
}
