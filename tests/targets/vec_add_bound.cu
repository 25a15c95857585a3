// SPDX-License-Identifier: Apache-2.0
/* c = a + b for n elements; the last block may be larger than what is left. */
__global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}
