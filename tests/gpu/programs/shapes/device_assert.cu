// SPDX-License-Identifier: Apache-2.0
// A kernel whose assert fails: the context is lost, and every call says so.
#undef NDEBUG
#include <cassert>
#include "../result.h"

__global__ void fine(int *values)
{
	values[threadIdx.x] = threadIdx.x * threadIdx.x;
}

__global__ void broken(const int *values)
{
	assert(values[threadIdx.x] != 49);
}

int main()
{
	int *values = allocate<int>(32);

	fine<<<1, 32>>>(values);
	print_result("fine", values, 32);
	fflush(stdout);
	broken<<<1, 32>>>(values);
	printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
	printf("copy: %s\n", cudaGetErrorName(cudaMemset(values, 0, 4)));
	return 0;
}
