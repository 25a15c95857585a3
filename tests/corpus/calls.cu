// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc flags= -G -lineinfo -rdc=true
// Calls of every kind: printf, assert, malloc, function pointers, virtual functions, recursion, real functions; braces and
// `ret;` in strings.
#ifndef __CUDACC_RTC__
#include <assert.h>
#include <stdio.h>
#endif

extern __shared__ double dynamic[];
__device__ int (*table[4])(int);
__constant__ int constants[1024];
__managed__ int managed;
__device__ const char *const message = "} // ret; \" { /* \\ */ %d\n";

__noinline__ __device__ int twice(int x) { return x * 2 + constants[x & 1023]; }
__noinline__ __device__ int recursive(int x) { return x < 2 ? x : recursive(x - 1) + recursive(x - 2); }
__noinline__ __device__ double4 wide(double4 a, short b) { a.x += b; a.w *= a.y; return a; }
__noinline__ __device__ void empty(void) { asm volatile(""); }

struct base {
	__device__ virtual int run(int x) = 0;
};
struct derived : base {
	__device__ int run(int x) override { return twice(x) + 1; }
};

__global__ void prints(const int *data, int n)
{
	if (threadIdx.x < n)
		printf("value } ret; %d %s\n", data[threadIdx.x], message);
	assert(data[0] >= 0 && "a } ret; in a string");
	dynamic[threadIdx.x] = data[threadIdx.x];
	__syncthreads();
	managed += dynamic[0];
}

__global__ void pointers(int *data)
{
	derived object;
	base *pointer = data[0] ? &object : (base *)malloc(sizeof(derived));

	data[1] = table[data[0] & 3](data[1]) + pointer->run(data[2]) + recursive(data[3]);
	table[0] = twice;
	double4 wide_value = wide(make_double4(1, 2, 3, data[4]), data[5]);
	data[6] = wide_value.x + wide_value.w;
	empty();
	if (data[7] < 0)
		__trap();
}

__global__ __launch_bounds__(256, 2) void switches(int *data)
{
	switch (data[threadIdx.x]) {
	case 0: data[0] = 7; break;
	case 1: data[1] = recursive(4); break;
	case 2: data[2] ^= 9; break;
	case 3: data[3] += 11; /* fall through */
	case 4: data[4] = data[3]; break;
	case 5: data[5] = 1 / data[0]; break;
	case 6: data[6] = data[9] % data[1]; break;
	case 7: return;
	default: data[8]++;
	}
	data[10] = 0;
}

// Begins with its loop: the label is the kernel's first statement.
extern "C" __global__ void spins(void)
{
	for (;;)
		asm volatile("membar.gl;");
}

extern "C" __global__ void nothing(void)
{
}
