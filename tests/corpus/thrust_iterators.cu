// SPDX-License-Identifier: Apache-2.0
// corpus: clang flags=--extended-lambda
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>

struct big_key {
	int words[3];
	__host__ __device__ bool operator==(const big_key &other) const { return words[0] == other.words[0]; }
	__host__ __device__ bool operator<(const big_key &other) const { return words[1] < other.words[1]; }
};

long all(thrust::device_vector<int> &keys, thrust::device_vector<double> &values, thrust::device_vector<big_key> &big)
{
	auto squares = thrust::make_transform_iterator(values.begin(), [] __device__(double x) { return x * x; });
	auto chosen = thrust::make_permutation_iterator(squares, keys.begin());

	thrust::sequence(keys.begin(), keys.end(), 7, 3);
	thrust::sort(big.begin(), big.end());
	auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), chosen, keys.begin(), values.begin());
	auto last = thrust::unique(big.begin(), big.end());
	thrust::transform(keys.begin(), keys.end(), thrust::make_counting_iterator(0), keys.begin(), thrust::modulus<int>());
	thrust::adjacent_difference(values.begin(), values.end(), values.begin());
	thrust::lower_bound(keys.begin(), keys.end(), keys.begin(), keys.end(), keys.begin());
	thrust::set_union(keys.begin(), keys.begin() + 9, keys.begin() + 9, keys.end(), keys.begin());
	auto middle = thrust::stable_partition(values.begin(), values.end(), [] __device__(double x) { return x > .5; });
	return (last - big.begin()) + (middle - values.begin()) + (ends.first - keys.begin()) +
	       long(thrust::inner_product(values.begin(), values.end(), thrust::make_constant_iterator(2.), 0.));
}
