// SPDX-License-Identifier: Apache-2.0
// One cooperative launch: blocks exchange what they have computed, behind a barrier of the grid.
#include <cooperative_groups.h>
#include "../result.h"

#define BLOCKS 64

__global__ void rotate(unsigned *parts, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	parts[i] = i * 2654435761u;
	for (int round = 0; round < 4; round++) {
		cooperative_groups::this_grid().sync();
		out[i] += parts[(i + (round + 1) * blockDim.x) % (BLOCKS * blockDim.x)];
	}
}

int main()
{
	unsigned *parts = allocate<unsigned>(BLOCKS * 128), *out = allocate<unsigned>(BLOCKS * 128);
	void *arguments[] = {&parts, &out};

	CHECK(cudaLaunchCooperativeKernel((void *)rotate, dim3(BLOCKS), dim3(128), arguments, 0,
					  0));
	print_result("rotated", out, BLOCKS * 128);
	return 0;
}
