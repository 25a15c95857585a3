// SPDX-License-Identifier: Apache-2.0
/* Kernels of the usual kinds, for kernels_driver. All sums are of small integers, so that no order of rounding matters. */

/* One sum for each block: a tree in shared memory. */
extern "C" __global__ void reduceSum(const float *in, float *out, int n)
{
	__shared__ float partial[256];
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	partial[threadIdx.x] = i < n ? in[i] : 0.0f;
	__syncthreads();
	for (int width = blockDim.x / 2; width > 0; width /= 2) {
		if (threadIdx.x < width)
			partial[threadIdx.x] += partial[threadIdx.x + width];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		out[blockIdx.x] = partial[0];
}

/* Counts of 64 bins: shared atomics, then global ones. */
extern "C" __global__ void histogram(const unsigned char *data, unsigned int *bins, int n)
{
	__shared__ unsigned int local[64];

	for (int i = threadIdx.x; i < 64; i += blockDim.x)
		local[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&local[data[i] & 63], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < 64; i += blockDim.x)
		atomicAdd(&bins[i], local[i]);
}

/* C = A B in tiles of 16 x 16; n is a multiple of 16. */
extern "C" __global__ void matrixMultiply(const float *a, const float *b, float *c, int n)
{
	__shared__ float ta[16][16], tb[16][16];
	int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
	float sum = 0;

	for (int tile = 0; tile < n; tile += 16) {
		ta[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
		tb[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
		__syncthreads();
		for (int k = 0; k < 16; k++)
			sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
		__syncthreads();
	}
	c[row * n + column] = sum;
}

/* Sum of the 7 neighbours, with a halo in dynamic shared memory; outside is 0. */
extern "C" __global__ void stencil(const int *in, int *out, int n)
{
	extern __shared__ int line[];
	int i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x + 3, sum = 0;

	line[at] = i < n ? in[i] : 0;
	if (threadIdx.x < 3) {
		int left = i - 3, right = i + (int)blockDim.x;

		line[at - 3] = left >= 0 ? in[left] : 0;
		line[at + blockDim.x] = right < n ? in[right] : 0;
	}
	__syncthreads();
	for (int k = -3; k <= 3; k++)
		sum += line[at + k];
	if (i < n)
		out[i] = sum;
}

/* Eight results for each thread. */
extern "C" __global__ void warpFunctions(const int *in, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, value = in[i], sum = value, scan = value, all;
	int *mine = out + 8 * i;

	for (int step = 16; step; step /= 2)
		sum += __shfl_xor_sync(~0u, sum, step);
	for (int step = 1; step < 32; step *= 2) {
		int other = __shfl_up_sync(~0u, scan, step);

		if (lane >= step)
			scan += other;
	}
	mine[0] = sum;
	mine[1] = scan;
	mine[2] = __shfl_sync(~0u, value, (lane + 5) & 31, 8);
	mine[3] = __shfl_down_sync(~0u, value, 3);
	mine[4] = (int)__ballot_sync(~0u, value & 1);
	mine[5] = (__any_sync(~0u, value == 77) ? 1 : 0) + (__all_sync(~0u, value >= 0) ? 2 : 0);
	mine[6] = (int)__match_any_sync(~0u, value % 4);
	__match_all_sync(~0u, value / 100000, &all);
	mine[7] = all + 2 * (int)(lane < 16 ? __popc(__ballot_sync(0xffffu, value & 2)) : __popc(__ballot_sync(0xffff0000u, value & 4)));
}

/* 64-bit integers, f64 and conversions. */
extern "C" __global__ void math64(const long long *in, unsigned long long *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned long long *mine = out + 8 * i;
	long long a, b;
	double x, y;

	if (i >= n)
		return;
	a = in[i];
	b = in[n - 1 - i] | 1;
	x = (double)a;
	y = (double)b;
	mine[0] = (unsigned long long)(a / b);
	mine[1] = (unsigned long long)(a % b);
	mine[2] = (unsigned long long)a / (unsigned long long)b + (unsigned long long)__mul64hi(a, b) + __umul64hi(a, b);
	mine[3] = (unsigned long long)(a << (b & 63)) ^ (unsigned long long)(a >> (b & 63)) ^ __brevll(a);
	mine[4] = (unsigned long long)__popcll(a) << 32 | (unsigned long long)__clzll(a) << 8 | (unsigned long long)__ffsll(b);
	mine[5] = (unsigned long long)__double_as_longlong(x / y + sqrt(fabs(x)));
	mine[6] = (unsigned long long)(long long)(x * 0.001) + (unsigned long long)(unsigned int)(float)(a & 0xffff);
	mine[7] = (unsigned long long)__double_as_longlong(fma(x, y, 1.0)) ^ (unsigned long long)(a < b ? 1 : 2);
}

__constant__ int factors[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ unsigned long long calls;
__device__ int table[4] = {10, 20, 30, 40};

static __device__ __noinline__ int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static __device__ __noinline__ int twice(int value)
{
	return 2 * value;
}

static __device__ __noinline__ int square(int value)
{
	return value * value;
}

__device__ int (*const operations[2])(int) = {twice, square};

/* Calls, recursion, function pointers, a switch, local arrays, constant memory, global variables. */
extern "C" __global__ void functions(int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, local[16], sum = 0;

	if (i >= n)
		return;
	for (int k = 0; k < 16; k++)
		local[(k * 7 + i) & 15] = k * i;
	for (int k = 0; k < 16; k++)
		sum += local[k] * factors[(k + i) & 7];
	switch (i % 6) {
	case 0:
		sum += fibonacci(i % 12);
		break;
	case 1:
		sum += operations[i & 1](i);
		break;
	case 2:
		sum += operations[(i >> 1) & 1](i);
		break;
	case 3:
		sum -= table[i & 3];
		break;
	case 4:
		sum ^= 0x55;
		break;
	default:
		sum = -sum;
	}
	out[i] = sum;
	atomicAdd(&calls, 1ull);
}
