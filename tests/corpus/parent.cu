// SPDX-License-Identifier: Apache-2.0
// corpus: flags=-rdc=true
// Kernels that launch kernels.
__global__ void child(int *data, int depth)
{
	data[threadIdx.x] += depth;
}

__global__ void parent(int *data)
{
	if (threadIdx.x == 0)
		child<<<1, 32, 128, cudaStreamFireAndForget>>>(data, 1);
	child<<<2, 64>>>(data, threadIdx.x);
}
