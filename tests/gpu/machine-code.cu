// SPDX-License-Identifier: Apache-2.0
// Kernels that machine-code.c runs as they are and with probes in their machine code. Each writes words of `out` that depend on nothing but its
// arguments: (out, in, n), n words each. What is hard about them is said before each.
#include <assert.h>
#include <cuda_fp16.h>
#include <mma.h>

typedef unsigned word;

// one exit behind a predicate, early
extern "C" __global__ void vectorAdd(float *out, const float *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = in[i] + in[n - 1 - i];
}

// several exits behind predicates, in loops, by threads of one warp at different times
extern "C" __global__ void loops(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	word sum = 0;

	if (i >= n)
		return;
	for (int k = 0; k < (i & 31); k++) {
		sum = sum * 31 + in[(i + k) % n];
		if ((sum & 0xff) == 7) {
			out[i] = sum;
			return;
		}
		if (k > 20 && (sum & 3) == 1)
			return;
	}
	out[i] = sum ^ 0x55555555;
}

__device__ __noinline__ word collatz(word x)
{
	word steps = 0;

	while (x > 1 && steps < 200) {
		x = x & 1 ? 3 * x + 1 : x / 2;
		steps++;
	}
	return steps;
}

__device__ __noinline__ word fibonacci(word x)
{
	return x < 2 ? x : fibonacci(x - 1) + fibonacci(x - 2);
}

// functions that are called, one of them recursive: a stack, and convergence barriers that are saved
extern "C" __global__ void calls(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	word value = collatz(in[i] & 0xffff);
	if (value & 1)
		value += fibonacci(value & 7);
	out[i] = value;
}

// shared memory, barriers of the block, exits right behind them
extern "C" __global__ void reduce(word *out, const word *in, int n)
{
	__shared__ word part[1024];
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	part[threadIdx.x] = i < n ? in[i] : 0;
	__syncthreads();
	for (int step = 512; step; step /= 2) {
		if (threadIdx.x < step && threadIdx.x + step < blockDim.x)
			part[threadIdx.x] += part[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x)
		return;
	out[blockIdx.x] = part[0];
}

// a warp that is diverged when some of it leaves, and goes on with votes and shuffles
extern "C" __global__ void diverged(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
	word value = i < n ? in[i] : 0, sum = 0;

	switch (value & 7) {
	case 0:
		out[i] = 1;
		return;
	case 1:
		for (word k = 0; k < (value >> 8 & 15); k++)
			sum += __popc(value >> k);
		break;
	case 2:
		if (lane & 1) {
			out[i] = value * 3;
			return;
		}
		sum = value / 3;
		break;
	default:
		sum = value;
	}
	word active = __activemask();
	word together = __match_any_sync(active, sum & 1);
	if (!(sum & 1) && (lane & 3) == 3) {
		out[i] = sum + 9;
		return;
	}
	out[i] = sum + __popc(together);
}

// half of each warp leaves at once; the other half shuffles among itself
extern "C" __global__ void halves(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	word value = in[i % n];

	if (threadIdx.x & 16)
		return;
	for (int step = 8; step; step /= 2)
		value += __shfl_xor_sync(0xffff, value, step);
	out[i] = value;
}

// double precision with long latencies, predicates that are set late
extern "C" __global__ void doubles(double *out, const double *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	double x = in[i], y = 1;
	for (int k = 0; k < 8; k++) {
		y = y * 0.5 + sqrt(fabs(x)) / (k + 1.0);
		if (y > 40)
			return;
	}
	out[i] = y;
}

// tensor cores: long calculations shortly before the end
extern "C" __global__ void tensor(float *out, const float *in, int n)
{
	__shared__ half a[256], b[256];
	nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> fa;
	nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> fb;
	nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> fc;

	for (int k = threadIdx.x; k < 256; k += blockDim.x) {
		a[k] = __float2half(in[(blockIdx.x + k) % n]);
		b[k] = __float2half(in[(blockIdx.x * 3 + k) % n]);
	}
	__syncthreads();
	nvcuda::wmma::fill_fragment(fc, 0);
	nvcuda::wmma::load_matrix_sync(fa, a, 16);
	nvcuda::wmma::load_matrix_sync(fb, b, 16);
	nvcuda::wmma::mma_sync(fc, fa, fb, fc);
	if (threadIdx.x >= 32)
		return;
	nvcuda::wmma::store_matrix_sync(out + 256 * (blockIdx.x % (n / 256)), fc, 16, nvcuda::wmma::mem_row_major);
}

// a call out of the cubin, into the driver, that never happens
extern "C" __global__ void asserted(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	assert(n > 0);
	if (i < n)
		out[i] = in[i] * 7;
}

// a function that is called through a pointer: a table of addresses
extern "C" __global__ void pointers(word *out, const word *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	word (*functions[2])(word) = { collatz, fibonacci };

	if (i < n)
		out[i] = functions[in[i] & 1](in[i] & 15);
}

__device__ word *place;

extern "C" __global__ void setPlace(word *out, const word *in, int n)
{
	if (!threadIdx.x && !blockIdx.x)
		place = out;
}

// no parameters: the block is the first one
extern "C" __global__ void nothing()
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < 4096 && place)
		place[i] = i * 3;
}
