// SPDX-License-Identifier: Apache-2.0
// cuBLASLt on tensor cores: half, bfloat16, and 8-bit integers, with an epilogue (bias, ReLU).
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "../result.h"

#define N 512

static cublasLtHandle_t handle;
static void *workspace;

template <class In, class Out>
static void matmul(const char *name, cudaDataType in, cudaDataType out, cublasComputeType_t compute,
		   cudaDataType scale, const void *one, const void *zero, bool epilogue)
{
	In *a = small_numbers<In>(N * N), *b = small_numbers<In>(N * N, 5);
	Out *c = allocate<Out>(N * N);
	cublasOperation_t transposed = CUBLAS_OP_T;
	cublasLtEpilogue_t bias_and_relu = CUBLASLT_EPILOGUE_RELU_BIAS;
	cublasLtMatmulHeuristicResult_t found = {};
	cublasLtMatmulPreference_t preference;
	cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
	cublasLtMatmulDesc_t what;
	size_t bytes = 32 << 20;
	int number = 0;

	OK(cublasLtMatmulDescCreate(&what, compute, scale));
	OK(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
					  sizeof(transposed)));
	if (epilogue) {
		Out *bias = small_numbers<Out>(N);

		OK(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_EPILOGUE,
						  &bias_and_relu, sizeof(bias_and_relu)));
		OK(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
						  sizeof(bias)));
	}
	OK(cublasLtMatrixLayoutCreate(&layout_a, in, N, N, N));
	OK(cublasLtMatrixLayoutCreate(&layout_b, in, N, N, N));
	OK(cublasLtMatrixLayoutCreate(&layout_c, out, N, N, N));
	OK(cublasLtMatmulPreferenceCreate(&preference));
	OK(cublasLtMatmulPreferenceSetAttribute(
		preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
	TRY(cublasLtMatmulAlgoGetHeuristic(handle, what, layout_a, layout_b, layout_c, layout_c,
					   preference, 1, &found, &number));
	printf("%s: %d algorithm\n", name, number);
	if (number)
		OK(cublasLtMatmul(handle, what, one, a, layout_a, b, layout_b, zero, c, layout_c, c,
				  layout_c, &found.algo, workspace, bytes, 0));
	print_result(name, c, N * N);
}

int main()
{
	float one = 1, zero = 0;
	int one32 = 1, zero32 = 0;

	workspace = allocate<char>(32 << 20);
	OK(cublasLtCreate(&handle));
	matmul<__half, __half>("half", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F, &one,
			       &zero, false);
	matmul<__half, __half>("half, bias and ReLU", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F,
			       CUDA_R_32F, &one, &zero, true);
	matmul<__nv_bfloat16, float>("bfloat16", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F,
				     CUDA_R_32F, &one, &zero, false);
	matmul<float, float>("TF32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
			     CUDA_R_32F, &one, &zero, false);
	matmul<signed char, int>("8-bit integers", CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I,
				 CUDA_R_32I, &one32, &zero32, false);
	OK(cublasLtDestroy(handle));
	return 0;
}
