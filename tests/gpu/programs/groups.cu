// SPDX-License-Identifier: Apache-2.0
// corpus: sm_90. Cooperative groups, a grid-wide barrier, clusters with distributed shared memory, asynchronous copies, more than 48 KiB of
// dynamic shared memory.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include "checksum.h"

namespace cg = cooperative_groups;

__global__ void grid_wide(unsigned *data, int steps)
{
	cg::grid_group grid = cg::this_grid();
	unsigned rank = grid.thread_rank(), size = grid.size();

	for (int step = 0; step < steps; step++) {
		unsigned value = data[(rank + 1) % size];
		grid.sync();
		data[rank] = data[rank] * 31 + value;
		grid.sync();
	}
}

__global__ void tiles(unsigned *data)
{
	auto block = cg::this_thread_block();
	auto tile = cg::tiled_partition<16>(block);
	unsigned sum = cg::reduce(tile, data[block.thread_rank()], cg::plus<unsigned>());
	unsigned before = cg::exclusive_scan(tile, sum);

	if (block.thread_rank() % 3) { /* lanes apart */
		auto active = cg::coalesced_threads();

		before += active.shfl(sum, 0) + active.thread_rank();
	}
	data[block.thread_rank()] = before;
}

__global__ void __cluster_dims__(4, 1, 1) cluster(unsigned *out)
{
	__shared__ unsigned shared[256];
	auto group = cg::this_cluster();

	shared[threadIdx.x] = threadIdx.x * 7 + blockIdx.x;
	group.sync();
	out[blockIdx.x * blockDim.x + threadIdx.x] = *group.map_shared_rank(shared + (threadIdx.x ^ 5), group.block_rank() ^ 3);
	group.sync();
}

__global__ void large_shared(const unsigned *in, unsigned *out, unsigned count)
{
	extern __shared__ unsigned buffer[];
	auto block = cg::this_thread_block();

	cg::memcpy_async(block, buffer, in, count * sizeof(unsigned));
	cg::wait(block);
	for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
		out[i] = buffer[(i * 17u) % count] ^ buffer[count - 1 - i];
}

int main()
{
	unsigned *data = numbers(65536), *out = allocate<unsigned>(65536), count = 25000;
	int steps = 9;
	void *arguments[] = {&data, &steps};

	CHECK(cudaLaunchCooperativeKernel((void *)grid_wide, dim3(64), dim3(256), arguments, 0, 0));
	print_checksum("grid", data, 64 * 256);
	tiles<<<1, 512>>>(data);
	CHECK(cudaGetLastError());
	print_checksum("tiles", data, 512);
	cluster<<<32, 256>>>(out);
	CHECK(cudaGetLastError());
	print_checksum("cluster", out, 32 * 256);
	CHECK(cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
	large_shared<<<1, 512, 100000>>>(data, out, count);
	CHECK(cudaGetLastError());
	print_checksum("large shared", out, count);
	return 0;
}
