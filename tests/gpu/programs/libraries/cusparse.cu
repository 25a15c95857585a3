// SPDX-License-Identifier: Apache-2.0
// cuSPARSE: products of a sparse matrix (CSR) with a vector, with a matrix, and with itself. Small
// whole numbers: exact in any order.
#include <cusparse.h>
#include "../result.h"

#define N 5000
#define COLUMNS 32
#define IN_ROW 7 // 0 to 6 values a row

static cusparseHandle_t handle;
static const float one = 1, zero = 0;

static void *buffer(size_t size)
{
	return allocate<char>(size ? size : 1);
}

static void spmv(cusparseSpMatDescr_t a, float *x, float *y)
{
	cusparseDnVecDescr_t in, out;
	size_t size;

	OK(cusparseCreateDnVec(&in, N, x, CUDA_R_32F));
	OK(cusparseCreateDnVec(&out, N, y, CUDA_R_32F));
	for (auto algorithm : {CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2}) {
		OK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, in,
					   &zero, out, CUDA_R_32F, algorithm, &size));
		OK(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, in, &zero, out,
				CUDA_R_32F, algorithm, buffer(size)));
		print_result("SpMV", y, N);
	}
}

static void spmm(cusparseSpMatDescr_t a, float *b, float *c)
{
	cusparseDnMatDescr_t in, out;
	size_t size;

	OK(cusparseCreateDnMat(&in, N, COLUMNS, N, b, CUDA_R_32F, CUSPARSE_ORDER_COL));
	OK(cusparseCreateDnMat(&out, N, COLUMNS, N, c, CUDA_R_32F, CUSPARSE_ORDER_COL));
	OK(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE,
				   CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, in, &zero, out,
				   CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, &size));
	OK(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE,
			&one, a, in, &zero, out, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT,
			buffer(size)));
	print_result("SpMM", c, N * COLUMNS);
}

static void spgemm(cusparseSpMatDescr_t a)
{
	const cusparseOperation_t plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
	const cusparseSpGEMMAlg_t algorithm = CUSPARSE_SPGEMM_DEFAULT;
	cusparseSpGEMMDescr_t product;
	int64_t rows, columns, count;
	int *offsets = allocate<int>(N + 1), *indices;
	cusparseSpMatDescr_t c;
	size_t size = 0;
	float *values;
	void *work;

	OK(cusparseCreateCsr(&c, N, N, 0, offsets, nullptr, nullptr, CUSPARSE_INDEX_32I,
			     CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	OK(cusparseSpGEMM_createDescr(&product));
	OK(cusparseSpGEMM_workEstimation(handle, plain, plain, &one, a, a, &zero, c, CUDA_R_32F,
					 algorithm, product, &size, nullptr));
	work = buffer(size);
	OK(cusparseSpGEMM_workEstimation(handle, plain, plain, &one, a, a, &zero, c, CUDA_R_32F,
					 algorithm, product, &size, work));
	OK(cusparseSpGEMM_compute(handle, plain, plain, &one, a, a, &zero, c, CUDA_R_32F, algorithm,
				  product, &size, nullptr));
	work = buffer(size);
	OK(cusparseSpGEMM_compute(handle, plain, plain, &one, a, a, &zero, c, CUDA_R_32F, algorithm,
				  product, &size, work));
	OK(cusparseSpMatGetSize(c, &rows, &columns, &count));
	indices = allocate<int>(count);
	values = allocate<float>(count);
	OK(cusparseCsrSetPointers(c, offsets, indices, values));
	OK(cusparseSpGEMM_copy(handle, plain, plain, &one, a, a, &zero, c, CUDA_R_32F, algorithm,
			       product));
	printf("SpGEMM has %lld values\n", (long long)count);
	print_result("SpGEMM offsets", offsets, N + 1);
	print_result("SpGEMM indices", indices, count);
	print_result("SpGEMM values", values, count);
}

int main()
{
	std::vector<int> offsets(N + 1), indices;
	std::vector<float> values;
	cusparseSpMatDescr_t a;
	int *device_offsets = allocate<int>(N + 1), *device_indices;
	float *device_values;

	for (int row = 0; row < N; row++) {
		for (int k = 0; k < row % IN_ROW; k++) {
			indices.push_back(row % (N / IN_ROW) + k * (N / IN_ROW));
			values.push_back((row * 31 + k * 17) % 9 - 4);
		}
		offsets[row + 1] = indices.size();
	}
	device_indices = allocate<int>(indices.size());
	device_values = allocate<float>(values.size());
	CHECK(cudaMemcpy(device_offsets, offsets.data(), offsets.size() * sizeof(int),
			 cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(device_indices, indices.data(), indices.size() * sizeof(int),
			 cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(device_values, values.data(), values.size() * sizeof(float),
			 cudaMemcpyHostToDevice));
	OK(cusparseCreate(&handle));
	OK(cusparseCreateCsr(&a, N, N, indices.size(), device_offsets, device_indices,
			     device_values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
			     CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	spmv(a, small_numbers<float>(N), allocate<float>(N));
	spmm(a, small_numbers<float>(N * COLUMNS), allocate<float>(N * COLUMNS));
	spgemm(a);
	OK(cusparseDestroy(handle));
	return 0;
}
