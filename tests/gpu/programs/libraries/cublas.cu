// SPDX-License-Identifier: Apache-2.0
// cuBLAS: products of several sizes and types, batched, strided, with a vector; a symmetric update, a
// scalar product.
#include <cublas_v2.h>
#include "../result.h"

#define N 300
#define BATCH 16

int main()
{
	float *a = small_numbers<float>(N * N), *b = small_numbers<float>(N * N, 5),
	      *c = allocate<float>(N * N), one = 1, zero = 0, two = 2;
	double *a64 = small_numbers<double>(N * N), *b64 = small_numbers<double>(N * N, 5),
	       *c64 = allocate<double>(N * N), one64 = 1, zero64 = 0;
	float *pointers[3 * BATCH], **device = allocate<float *>(3 * BATCH),
				    *batch = allocate<float>(BATCH * 32 * 32), dot;
	cublasHandle_t handle;

	OK(cublasCreate(&handle));
	OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, b, N, &zero, c, N));
	print_result("sgemm", c, N * N);
	OK(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, 37, 111, 299, &two, a, N, b, N, &one, c,
		       N));
	print_result("sgemm of odd sizes", c, N * N);
	OK(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one64, a64, N, b64, N, &zero64,
		       c64, N));
	print_result("dgemm", c64, N * N);
	OK(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, 32, 32, 32, &one, a, 32,
				     1024, b, 32, 1024, &zero, batch, 32, 1024, BATCH));
	print_result("sgemm, strided", batch, BATCH * 1024);
	for (int i = 0; i < BATCH; i++) {
		pointers[i] = a + 100 * i;
		pointers[BATCH + i] = b + 50 * i;
		pointers[2 * BATCH + i] = batch + 1024 * i;
	}
	CHECK(cudaMemcpy(device, pointers, sizeof(pointers), cudaMemcpyHostToDevice));
	OK(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, 32, 32, 48, &one, device, 64,
			      device + BATCH, 64, &zero, device + 2 * BATCH, 32, BATCH));
	print_result("sgemm, batched", batch, BATCH * 1024);
	OK(cublasSgemv(handle, CUBLAS_OP_N, N, N, &one, a, N, b, 1, &zero, c, 1));
	print_result("sgemv", c, N);
	OK(cublasDsyrk(handle, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, N, N, &one64, a64, N, &zero64,
		       c64, N));
	print_result("dsyrk", c64, N * N);
	OK(cublasSdot(handle, N * N, a, 1, b, 1, &dot));
	printf("sdot %a\n", dot);
	OK(cublasDestroy(handle));
	return 0;
}
