// SPDX-License-Identifier: Apache-2.0
// Products on tensor cores in kernels of ours: half, bfloat16 and 8-bit integers (WMMA, m16n16k16).
#include <cuda_bf16.h>
#include <mma.h>
#include "../result.h"

#define N 256

using namespace nvcuda;

template <class In, class Out> __global__ void multiply(const In *a, const In *b, Out *c)
{
	wmma::fragment<wmma::accumulator, 16, 16, 16, Out> sum;
	wmma::fragment<wmma::matrix_a, 16, 16, 16, In, wmma::row_major> left;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, In, wmma::col_major> right;
	unsigned row = blockIdx.x * 16, column = blockIdx.y * 16;

	wmma::fill_fragment(sum, Out(0));
	for (int k = 0; k < N; k += 16) {
		wmma::load_matrix_sync(left, a + row * N + k, N);
		wmma::load_matrix_sync(right, b + column * N + k, N);
		wmma::mma_sync(sum, left, right, sum);
	}
	wmma::store_matrix_sync(c + row * N + column, sum, N, wmma::mem_row_major);
}

template <class In, class Out> static void run(const char *name)
{
	In *a = small_numbers<In>(N * N), *b = small_numbers<In>(N * N, 5);
	Out *c = allocate<Out>(N * N);

	multiply<In, Out><<<dim3(N / 16, N / 16), 32>>>(a, b, c);
	print_result(name, c, N * N);
}

int main()
{
	run<half, float>("half");
	run<__nv_bfloat16, float>("bfloat16");
	run<signed char, int>("8-bit integers");
	return 0;
}
