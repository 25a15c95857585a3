// SPDX-License-Identifier: Apache-2.0
// A product of matrices in double precision on tensor cores (WMMA, m8n8k4).
#include <mma.h>
#include "../result.h"

#define N 512

using namespace nvcuda;

/* A warp computes four tiles of 8 x 8 in a row; the loop is unrolled far, as in libraries. */
__global__ void multiply(const double *a, const double *b, double *c)
{
	wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum[4];
	wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> left;
	wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> right;
	unsigned row = (blockIdx.x * blockDim.y + threadIdx.y) * 8, column = blockIdx.y * 32;

	for (int t = 0; t < 4; t++)
		wmma::fill_fragment(sum[t], 0.0);
#pragma unroll 32
	for (int k = 0; k < N; k += 4) {
		wmma::load_matrix_sync(left, a + row * N + k, N);
#pragma unroll
		for (int t = 0; t < 4; t++) {
			wmma::load_matrix_sync(right, b + k * N + column + 8 * t, N);
			wmma::mma_sync(sum[t], left, right, sum[t]);
		}
	}
	for (int t = 0; t < 4; t++)
		wmma::store_matrix_sync(c + row * N + column + 8 * t, sum[t], N,
					wmma::mem_row_major);
}

__global__ void thirds(double *values)
{
	values[blockIdx.x * blockDim.x + threadIdx.x] /= 3;
}

int main()
{
	double *a = small_numbers<double>(N * N, 101), *b = small_numbers<double>(N * N, 97),
	       *c = allocate<double>(N * N);

	multiply<<<dim3(N / 32, N / 32), dim3(32, 4)>>>(a, b, c);
	print_result("whole numbers", c, N * N);
	thirds<<<N, N>>>(a);
	multiply<<<dim3(N / 32, N / 32), dim3(32, 4)>>>(a, b, c);
	print_result("thirds", c, N * N);
	return 0;
}
