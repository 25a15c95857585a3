// SPDX-License-Identifier: Apache-2.0
// Globals, constants up to the last word of the bank, local arrays, functions that are called, printf, assert, a long name.
#include <cassert>
#include "checksum.h"

__constant__ unsigned table[16384]; /* 64 KiB: all there is */
__device__ unsigned totals[256];
__device__ volatile unsigned flag;

__global__ void globals(const unsigned *in)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	atomicAdd(totals + (in[i] & 255), table[in[i] & 16383]);
	if (i == 0)
		flag = 1;
}

__device__ __noinline__ unsigned collatz(unsigned n, unsigned depth)
{
	if (n <= 1 || depth > 60)
		return depth;
	return collatz(n & 1 ? 3 * n + 1 : n / 2, depth + 1);
}

struct shape {
	__device__ virtual unsigned area() const = 0;
};
struct square : shape {
	unsigned side;
	__device__ square(unsigned side) : side(side) {}
	__device__ unsigned area() const override { return side * side; }
};
struct box : shape {
	unsigned width, height;
	__device__ box(unsigned width, unsigned height) : width(width), height(height) {}
	__device__ unsigned area() const override { return width * height; }
};

__global__ void functions(const unsigned *in, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned (*step)(unsigned, unsigned) = collatz;
	square square(in[i] & 15);
	box box(in[i] & 7, i & 3);
	const shape *shape = i & 1 ? (const struct shape *)&square : &box;

	out[i] = step(in[i] & 1023, 0) * 1000 + shape->area();
}

__global__ void locals(const unsigned *in, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, counts[64] = {};

	for (unsigned k = 0; k < 200; k++)
		counts[in[(i + k * 7) & 4095] & 63] += k;
	if (i % 5 == 0) {
		out[i] = counts[i & 63];
		return; /* some leave early */
	}
	for (unsigned k = 0; k < 64; k++)
		out[i] = out[i] * 33 + counts[k];
	__threadfence();
	if (i % 7 == 3)
		asm volatile("exit;");
	out[i] ^= 1;
}

__global__ void prints(const unsigned *in)
{
	assert(in[threadIdx.x] || threadIdx.x < 4096);
	if (threadIdx.x == 3)
		printf("from the GPU: %u %s %.2f\n", in[3] & 15, "text", 1.5);
}

template <int... N> struct pack {};
template <class P> __global__ void long_name(unsigned *out)
{
	out[threadIdx.x] = threadIdx.x * 3;
}
#define TEN(N) N##0, N##1, N##2, N##3, N##4, N##5, N##6, N##7, N##8, N##9
typedef pack<TEN(10), TEN(11), TEN(12), TEN(13), TEN(14), TEN(15), TEN(16), TEN(17), TEN(18), TEN(19), TEN(20), TEN(21), TEN(22), TEN(23), TEN(24),
	     TEN(25), TEN(26), TEN(27), TEN(28), TEN(29), TEN(30), TEN(31), TEN(32), TEN(33), TEN(34), TEN(35), TEN(36), TEN(37), TEN(38)> many;

int main()
{
	unsigned *in = numbers(16384), *out = allocate<unsigned>(16384), *address;

	CHECK(cudaMemcpyToSymbol(table, in, sizeof(table), 0, cudaMemcpyDeviceToDevice));
	globals<<<64, 256>>>(in);
	CHECK(cudaGetLastError());
	CHECK(cudaGetSymbolAddress((void **)&address, totals));
	print_checksum("globals", address, 256);
	functions<<<32, 128>>>(in, out);
	CHECK(cudaGetLastError());
	print_checksum("functions", out, 4096);
	locals<<<16, 256>>>(in, out);
	CHECK(cudaGetLastError());
	print_checksum("locals", out, 4096);
	prints<<<1, 64>>>(in);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	long_name<many><<<1, 64>>>(out);
	CHECK(cudaGetLastError());
	print_checksum("long name", out, 64);
	return 0;
}
