// SPDX-License-Identifier: Apache-2.0
// CUB and Thrust.
#include <cub/cub.cuh>
#include <thrust/device_ptr.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>
#include "checksum.h"

#define COUNT 1000003

template <class Call> static void with_storage(Call call)
{
	size_t bytes = 0;
	void *storage = nullptr;

	CHECK(call(storage, bytes));
	CHECK(cudaMalloc(&storage, bytes));
	CHECK(call(storage, bytes));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaFree(storage));
}

struct is_odd {
	__host__ __device__ bool operator()(unsigned value) const { return value & 1; }
};

int main()
{
	unsigned *in = numbers(COUNT), *out = allocate<unsigned>(COUNT), *values = numbers(COUNT), *sorted = allocate<unsigned>(COUNT);
	int *selected = allocate<int>(1), *histogram = allocate<int>(256);

	with_storage([&](void *s, size_t &n) { return cub::DeviceRadixSort::SortPairs(s, n, in, out, values, sorted, COUNT); });
	print_checksum("radix sort keys", out, COUNT);
	print_checksum("radix sort values", sorted, COUNT);
	with_storage([&](void *s, size_t &n) { return cub::DeviceScan::ExclusiveSum(s, n, in, out, COUNT); });
	print_checksum("scan", out, COUNT);
	with_storage([&](void *s, size_t &n) { return cub::DeviceReduce::Sum(s, n, in, out, COUNT); });
	print_checksum("reduce", out, 1);
	with_storage([&](void *s, size_t &n) { return cub::DeviceSelect::If(s, n, in, out, selected, COUNT, is_odd()); });
	print_checksum("select", selected, 1);
	with_storage([&](void *s, size_t &n) { return cub::DeviceHistogram::HistogramEven(s, n, in, histogram, 257, 0u, 4294967040u, COUNT); });
	print_checksum("histogram", histogram, 256);

	thrust::device_ptr<unsigned> first(in);
	thrust::sort(first, first + COUNT, thrust::greater<unsigned>());
	print_checksum("thrust sort", in, COUNT);
	printf("thrust odd %u\n", thrust::transform_reduce(first, first + COUNT, is_odd(), 0u, thrust::plus<unsigned>()));
	printf("thrust unique %zu\n", (size_t)(thrust::unique(first, first + COUNT) - first));
	return 0;
}
