// SPDX-License-Identifier: Apache-2.0
// corpus: clang flags= -lineinfo
// CUB's algorithms of warps and blocks.
#include <cub/cub.cuh>

__global__ __launch_bounds__(128) void sorts(unsigned int *keys, double *values, int valid)
{
	using load = cub::BlockLoad<unsigned int, 128, 7, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
	using sort = cub::BlockRadixSort<unsigned int, 128, 7, double>;
	using store = cub::BlockStore<unsigned int, 128, 7, cub::BLOCK_STORE_TRANSPOSE>;
	using merge = cub::WarpMergeSort<unsigned int, 7, 32>;
	__shared__ union {
		typename load::TempStorage load;
		typename sort::TempStorage sort;
		typename store::TempStorage store;
		typename merge::TempStorage merge[4];
	} shared;
	unsigned int mine[7];
	double with[7];

	load(shared.load).Load(keys + blockIdx.x * 896, mine, valid, ~0u);
	cub::LoadDirectStriped<128>(threadIdx.x, values, with);
	__syncthreads();
	sort(shared.sort).SortDescending(mine, with, 3, 29);
	__syncthreads();
	merge(shared.merge[threadIdx.x / 32]).Sort(mine, [](unsigned int a, unsigned int b) { return (a ^ 5) < b; });
	__syncthreads();
	store(shared.store).Store(keys + blockIdx.x * 896, mine, valid);
	cub::StoreDirectStriped<128>(threadIdx.x, values, with);
}

__global__ __launch_bounds__(256) void sums(long long *in, float *floats, short *flags)
{
	using scan = cub::BlockScan<long long, 256, cub::BLOCK_SCAN_RAKING_MEMOIZE>;
	using reduce = cub::BlockReduce<float, 256, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
	using warp_scan = cub::WarpScan<short>;
	using warp_reduce = cub::WarpReduce<float, 8>;
	using discontinuity = cub::BlockDiscontinuity<long long, 256>;
	using exchange = cub::BlockExchange<long long, 256, 3, true>;
	__shared__ typename scan::TempStorage scanning;
	__shared__ typename reduce::TempStorage reducing;
	__shared__ typename warp_scan::TempStorage warps[8];
	__shared__ typename warp_reduce::TempStorage eighths[32];
	__shared__ typename discontinuity::TempStorage edges;
	__shared__ typename exchange::TempStorage exchanging;
	long long items[3], total;
	int heads[3];
	short flag;

	cub::LoadDirectBlocked(threadIdx.x, in, items);
	scan(scanning).ExclusiveSum(items, items, total);
	discontinuity(edges).FlagHeads(heads, items, [](long long a, long long b) { return a != b; });
	exchange(exchanging).BlockedToStriped(items);
	warp_scan(warps[threadIdx.x / 32]).InclusiveSum(flags[threadIdx.x], flag);
	float part = warp_reduce(eighths[threadIdx.x / 8]).HeadSegmentedSum(floats[threadIdx.x], heads[0]);
	float all = reduce(reducing).Reduce(part + total, [](float a, float b) { return a > b ? a : b; }, 200);
	if (threadIdx.x == 0)
		floats[blockIdx.x] = all;
	flags[threadIdx.x] = flag + heads[1] + heads[2];
	cub::StoreDirectBlockedVectorized(threadIdx.x, in, items);
}

__global__ __launch_bounds__(64) void histogram(const unsigned char *in, unsigned int *out)
{
	using histograms = cub::BlockHistogram<unsigned char, 64, 4, 256, cub::BLOCK_HISTO_SORT>;
	__shared__ typename histograms::TempStorage shared;
	__shared__ unsigned int bins[256];
	unsigned char items[4];

	cub::LoadDirectBlockedVectorized(threadIdx.x, const_cast<unsigned char *>(in), items);
	histograms(shared).Histogram(items, bins);
	for (int i = threadIdx.x; i < 256; i += 64)
		atomicAdd(out + i, bins[i]);
}
