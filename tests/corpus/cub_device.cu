// SPDX-License-Identifier: Apache-2.0
// corpus: clang flags= -lineinfo
// CUB's device-wide algorithms: the kernels with the longest names and the most inlined scopes of the common ones.
#include <cub/cub.cuh>

struct pair_less {
	__host__ __device__ bool operator()(const double2 &a, const double2 &b) const { return a.x < b.x || (a.x == b.x && a.y < b.y); }
};

template <typename Key, typename Value> static void sort(Key *keys, Value *values, int n, void *scratch, size_t bytes)
{
	cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, keys, values, values, n);
	cub::DeviceSegmentedSort::SortKeys(scratch, bytes, keys, keys, n, 1, &n, &n);
}

void all(void *scratch, size_t bytes, int n)
{
	sort((unsigned int *)scratch, (double2 *)scratch, n, scratch, bytes);
	cub::DeviceMergeSort::SortKeys(scratch, bytes, (double2 *)scratch, n, pair_less());
	cub::DeviceScan::InclusiveSum(scratch, bytes, (float *)scratch, (float *)scratch, n);
	cub::DeviceReduce::Sum(scratch, bytes, (long long *)scratch, (long long *)scratch, n);
	cub::DeviceReduce::ReduceByKey(scratch, bytes, (int *)scratch, (int *)scratch, (float *)scratch, (float *)scratch,
				       (int *)scratch, ::cuda::std::plus<>(), n);
	cub::DeviceHistogram::HistogramEven(scratch, bytes, (unsigned char *)scratch, (int *)scratch, 257, 0, 256, n);
	cub::DeviceSelect::Unique(scratch, bytes, (short *)scratch, (short *)scratch, (int *)scratch, n);
}
