// SPDX-License-Identifier: Apache-2.0
// Kernels of twins.c.

extern "C" __global__ void work(unsigned *out)
{
	out[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

extern "C" __global__ void spin(unsigned long long nanoseconds, unsigned *out)
{
	unsigned long long begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < nanoseconds);
	out[threadIdx.x] += 1;
}
