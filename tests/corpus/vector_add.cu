// SPDX-License-Identifier: Apache-2.0
// corpus: same-registers nvrtc clang flags=
// A counter at the entry of this kernel must become part of it, at no register's cost.
extern "C" __global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}
