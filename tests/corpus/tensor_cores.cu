// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc clang flags=
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <typename In, typename Out> __global__ void multiply(const In *a, const In *b, Out *c, int n)
{
	__shared__ In tile[16 * 16];
	wmma::fragment<wmma::matrix_a, 16, 16, 16, In, wmma::row_major> left;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, In, wmma::col_major> right;
	wmma::fragment<wmma::accumulator, 16, 16, 16, Out> sum;

	wmma::fill_fragment(sum, Out(0));
	for (int i = 0; i < n; i += 16) {
		tile[threadIdx.x] = a[i + threadIdx.x];
		__syncwarp();
		wmma::load_matrix_sync(left, tile, 16);
		wmma::load_matrix_sync(right, b + i, n);
		wmma::mma_sync(sum, left, right, sum);
	}
	wmma::store_matrix_sync(c, sum, n, wmma::mem_row_major);
}

__global__ void halves(__half2 *a, __half *b)
{
	a[threadIdx.x] = __hfma2(a[threadIdx.x], h2exp(a[0]), __float2half2_rn(0.5f));
	atomicAdd(b, __hadd(b[1], b[2]));
}

template __global__ void multiply<__half, float>(const __half *, const __half *, float *, int);
template __global__ void multiply<__half, __half>(const __half *, const __half *, __half *, int);
template __global__ void multiply<signed char, int>(const signed char *, const signed char *, int *, int);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template __global__ void multiply<__nv_bfloat16, float>(const __nv_bfloat16 *, const __nv_bfloat16 *, float *, int);
#endif
