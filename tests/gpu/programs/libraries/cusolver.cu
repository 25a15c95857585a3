// SPDX-License-Identifier: Apache-2.0
// cuSOLVER: Cholesky and LU, in double and single precision.
#include <cusolverDn.h>
#include "../result.h"

#define N 384

__global__ void positive(double *a)
{
	unsigned i = blockIdx.x, j = threadIdx.x;

	a[i * N + j] = i == j ? 2 * N : 1.0 / (1 + (i > j ? i - j : j - i));
}

int main()
{
	double *a = allocate<double>(N * N), *b = small_numbers<double>(N), *work;
	float *c = small_numbers<float>(N * N, 1009), *work32;
	int *info = allocate<int>(1), *pivots = allocate<int>(N), size;
	cusolverDnHandle_t handle;

	OK(cusolverDnCreate(&handle));
	positive<<<N, N>>>(a);
	OK(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, &size));
	work = allocate<double>(size);
	OK(cusolverDnDpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, work, size, info));
	print_result("potrf", a, N * N);
	print_result("info", info, 1);
	OK(cusolverDnDpotrs(handle, CUBLAS_FILL_MODE_LOWER, N, 1, a, N, b, N, info));
	print_result("potrs", b, N);
	OK(cusolverDnSgetrf_bufferSize(handle, N, N, c, N, &size));
	work32 = allocate<float>(size);
	OK(cusolverDnSgetrf(handle, N, N, c, N, work32, pivots, info));
	print_result("getrf", c, N * N);
	print_result("pivots", pivots, N);
	print_result("info", info, 1);
	OK(cusolverDnDestroy(handle));
	return 0;
}
