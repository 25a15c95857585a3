// SPDX-License-Identifier: Apache-2.0
/* c = a + b. The grid has exactly one thread per element. */
__global__ void vectorAdd(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	c[i] = a[i] + b[i];
}
