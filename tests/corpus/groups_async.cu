// SPDX-License-Identifier: Apache-2.0
// corpus: min=90 nvrtc flags= -lineinfo
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;

extern "C" __global__ __cluster_dims__(2, 2, 1) void clusters(int *data, int bins)
{
	extern __shared__ int shared[];
	cg::cluster_group cluster = cg::this_cluster();
	auto tile = cg::tiled_partition<8>(cg::this_thread_block());

	for (int i = threadIdx.x; i < bins; i += blockDim.x)
		shared[i] = 0;
	cluster.sync();
	int bin = data[cluster.thread_rank()] & 255;
	atomicAdd(cluster.map_shared_rank(shared, bin % cluster.num_blocks()) + bin / cluster.num_blocks(), 1);
	auto token = cluster.barrier_arrive();
	int sum = cg::reduce(tile, bin, cg::bit_xor<int>());
	cluster.barrier_wait(static_cast<decltype(token) &&>(token));
	cg::invoke_one(tile, [=] { atomicMax(data + bin, sum); });
	data[threadIdx.x] = shared[threadIdx.x] + cluster.query_shared_rank(shared);
}

extern "C" __global__ void copies(const int4 *in, int4 *out, int n)
{
	extern __shared__ int4 staged[];
	auto block = cg::this_thread_block();
	auto warp = cg::tiled_partition<32>(block);

	cg::memcpy_async(block, staged, in, sizeof(int4) * n);
	cg::memcpy_async(warp, staged + 256, cuda::aligned_size_t<16>(n), in + 9, cuda::aligned_size_t<16>(n * 16));
	cg::wait_prior<1>(block);
	cg::wait(warp);
	out[threadIdx.x] = staged[threadIdx.x];
	if (threadIdx.x % 3 == 0) {
		auto some = cg::coalesced_threads();
		auto equal = cg::labeled_partition(some, staged[0].x & 3);
		out[0].y = equal.shfl_down(some.ballot(staged[3].y), 2) + equal.match_any(n);
	}
	cg::this_grid().sync();
}
