// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels: relocatable code, which is linked before it runs.
#include "checksum.h"

__global__ void child(unsigned *out, unsigned base)
{
	out[base + threadIdx.x] = base * threadIdx.x;
}

__global__ void parent(unsigned *out)
{
	child<<<1, 32>>>(out, threadIdx.x * 32);
}

int main()
{
	unsigned *out = allocate<unsigned>(1024);

	parent<<<1, 32>>>(out);
	CHECK(cudaGetLastError());
	print_checksum("children", out, 1024);
	return 0;
}
