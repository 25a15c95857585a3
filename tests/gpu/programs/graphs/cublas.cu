// SPDX-License-Identifier: Apache-2.0
// A library's launches, captured: three products of cuBLAS in one graph.
#include <cublas_v2.h>
#include "graph.h"

#define N 256

int main()
{
	float *a = small_numbers<float>(N * N, 5), *b = small_numbers<float>(N * N, 3),
	      *c = allocate<float>(N * N), *d = allocate<float>(N * N), one = 1, zero = 0;
	void *workspace = allocate<char>(32 << 20);
	cublasHandle_t handle;
	cudaStream_t stream;
	cudaGraph_t graph;

	OK(cublasCreate(&handle));
	CHECK(cudaStreamCreate(&stream));
	OK(cublasSetStream(handle, stream));
	OK(cublasSetWorkspace(handle, workspace, 32 << 20));
	OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, b, N, &zero, c, N));
	print_result("product", c, N * N);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, b, N, &zero, c, N));
	OK(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, N, N, &one, a, N, a, N, &zero, d, N));
	OK(cublasSaxpy(handle, N * N, &one, d, 1, c, 1));
	CHECK(cudaStreamEndCapture(stream, &graph));
	launch_graph(graph, 2);
	print_result("captured products", c, N * N);
	OK(cublasDestroy(handle));
	return 0;
}
