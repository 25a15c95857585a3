// SPDX-License-Identifier: Apache-2.0
// corpus: clang flags=--extended-lambda
#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>

float all(thrust::device_vector<float> &values, thrust::device_vector<int> &keys, float scale)
{
	auto first = thrust::make_zip_iterator(thrust::make_tuple(values.begin(), keys.begin()));
	auto last = thrust::make_zip_iterator(thrust::make_tuple(values.end(), keys.end()));

	thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin());
	thrust::for_each(first, last, [scale] __device__(auto pair) { thrust::get<0>(pair) *= scale + thrust::get<1>(pair); });
	thrust::exclusive_scan(values.begin(), values.end(), values.begin());
	return thrust::transform_reduce(values.begin(), values.end(), [] __device__(float x) { return x * x; }, 0.f,
					thrust::maximum<float>());
}
