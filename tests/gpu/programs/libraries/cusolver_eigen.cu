// SPDX-License-Identifier: Apache-2.0
// cuSOLVER: eigenvalues of a symmetric matrix and singular values, with vectors; QR.
#include <cusolverDn.h>
#include "../result.h"

#define N 128

__global__ void symmetric(double *a)
{
	unsigned i = blockIdx.x, j = threadIdx.x;

	a[i * N + j] = (double)((i * j + i + j) % 17) - 8 + (i == j ? 3.0 * i : 0);
}

int main()
{
	double *a = allocate<double>(N * N), *w = allocate<double>(N), *u = allocate<double>(N * N),
	       *v = allocate<double>(N * N), *work;
	cusolverDnHandle_t handle;
	int *info = allocate<int>(1), size;

	OK(cusolverDnCreate(&handle));
	symmetric<<<N, N>>>(a);
	OK(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, N,
				       a, N, w, &size));
	work = allocate<double>(size);
	OK(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, N, a, N, w,
			    work, size, info));
	print_result("syevd values", w, N);
	print_result("syevd vectors", a, N * N);
	symmetric<<<N, N>>>(a);
	OK(cusolverDnDgesvd_bufferSize(handle, N, N, &size));
	work = allocate<double>(size);
	OK(cusolverDnDgesvd(handle, 'A', 'A', N, N, a, N, w, u, N, v, N, work, size, nullptr,
			    info));
	print_result("gesvd values", w, N);
	print_result("gesvd left", u, N * N);
	print_result("gesvd right", v, N * N);
	symmetric<<<N, N>>>(a);
	OK(cusolverDnDgeqrf_bufferSize(handle, N, N, a, N, &size));
	work = allocate<double>(size);
	OK(cusolverDnDgeqrf(handle, N, N, a, N, w, work, size, info));
	print_result("geqrf", a, N * N);
	print_result("info", info, 1);
	OK(cusolverDnDestroy(handle));
	return 0;
}
