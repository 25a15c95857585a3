// SPDX-License-Identifier: Apache-2.0
// corpus: min=80 nvrtc flags= -G
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

__global__ void grid_wide(float *data, int n)
{
	cg::grid_group grid = cg::this_grid();

	for (int step = 0; step < n; step++) {
		data[grid.thread_rank()] += step;
		grid.sync();
	}
}

__global__ void tiles(int *data)
{
	auto block = cg::this_thread_block();
	auto tile = cg::tiled_partition<16>(block);
	auto active = cg::coalesced_threads();

	int sum = cg::reduce(tile, data[block.thread_rank()], cg::plus<int>());
	int before = cg::inclusive_scan(tile, sum);
	if (active.thread_rank() == 0)
		atomicAdd(data, sum + before);
	auto parts = cg::labeled_partition(active, sum & 3);
	data[parts.thread_rank()] = parts.shfl(sum, 0);
}

__global__ void staged(const int *in, int *out, int n)
{
	extern __shared__ int buffer[];
	__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
	auto block = cg::this_thread_block();
	auto pipeline = cuda::make_pipeline(block, &state);

	for (int i = 0; i < n; i++) {
		pipeline.producer_acquire();
		cuda::memcpy_async(block, buffer + (i & 1) * 256, in + i * 256, sizeof(int) * 256, pipeline);
		pipeline.producer_commit();
		pipeline.consumer_wait();
		out[i * 256 + threadIdx.x] = buffer[(i & 1) * 256 + 255 - threadIdx.x];
		pipeline.consumer_release();
	}
}

__global__ void arrive(int *data)
{
	__shared__ cuda::barrier<cuda::thread_scope_block> barrier;

	if (threadIdx.x == 0)
		init(&barrier, blockDim.x);
	__syncthreads();
	data[threadIdx.x] = 1;
	barrier.arrive_and_wait();
	data[threadIdx.x] += data[threadIdx.x ^ 1];
}
