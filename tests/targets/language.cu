// SPDX-License-Identifier: Apache-2.0
/* Kernels with known numbers of everything that a probe can stand at, for language_driver. data: 1024 words of zeros and up. */

struct pair {
	unsigned long long first, second;
};

/* What contexts show: parameters of all sizes. */
extern "C" __global__ void parameters(unsigned long long a, unsigned b, unsigned char c, pair d, short e, unsigned *data)
{
	if (a == 0 && b == 0 && c == 0 && d.first == 0 && e == 0)
		data[0] = 1;
}

/* Leaves in four ways: by a quarter of the threads each. */
extern "C" __global__ void returns(unsigned *data)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i % 4 == 0)
		return;
	for (unsigned k = 0;; k++) {
		if (i % 4 == 1 && k == i % 8)
			return;
		data[(i + k) % 1024] = k;
		if (k > 20)
			break;
	}
	if (i % 4 == 2)
		asm volatile("exit;");
	atomicAdd(data + 1, 1u);
}

/* Each thread: one 4-byte load, one 16-byte store, one 8-byte shared store and load, one atomic with a result, one without. */
extern "C" __global__ void accesses(uint4 *vectors, unsigned *data)
{
	__shared__ unsigned long long shared[256];
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, value, old;

	asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(data + i % 1024) : "memory");
	*(volatile unsigned long long *)&shared[threadIdx.x] = 5;
	__syncthreads();
	value += __popcll(*(volatile unsigned long long *)&shared[threadIdx.x ^ 1]);
	asm volatile("red.global.add.u32 [%0], %1;" ::"l"(data + 512), "r"(3) : "memory");
	asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(data + 513), "r"(1) : "memory");
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(vectors + i), "r"(value + old), "r"(7), "r"(8), "r"(9) : "memory");
}

/* A device function that is called twice by each thread. */
extern "C" __device__ __noinline__ unsigned twice(unsigned value, unsigned long long other)
{
	if (value == 77)
		return (unsigned)other;
	return value * 2;
}

extern "C" __global__ void calls(unsigned *data)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	data[i % 1024] = twice(i, 10) + twice(i + 1, 20);
}

/* With nothing in it, nvcc 13 would leave the call out. */
__device__ __noinline__ void __bpftime_cuda__kernel_trace()
{
	asm volatile("");
}

/* Half of the threads call the stub. */
extern "C" __global__ void stubbed(unsigned *data)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	data[i % 1024] = i;
	if (i & 1)
		__bpftime_cuda__kernel_trace();
	data[i % 1024] += 2;
}

/* A line that a quarter of the threads reach. */
extern "C" __global__ void lines(unsigned *data)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i % 4 == 3)
		atomicAdd(data + 1000, i * 5u); /* this one */
	data[i % 1024] = i;
}

extern "C" __global__ void vectorAdd(unsigned *data)
{
	data[(blockIdx.x * blockDim.x + threadIdx.x) % 1024] += 1;
}

/* Each thread: one shuffle, one barrier of the warp under a mask that is not known before, one of the block. */
extern "C" __global__ void warps(unsigned *data)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, value, mask;

	asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, -1;" : "=r"(value) : "r"(i));
	asm volatile("activemask.b32 %0;" : "=r"(mask));
	asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
	data[i % 1024] = value;
	__syncthreads();
	data[(i ^ 1) % 1024] += 1;
}
