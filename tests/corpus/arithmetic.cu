// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc clang flags= -G -lineinfo -use_fast_math
#include <cuda/atomic>
#include <cuda/std/complex>

__global__ void functions(double *d, float *f)
{
	int i = threadIdx.x;

	d[i] = sin(d[i]) * pow(d[i + 1], 1.75) + lgamma(d[i]) - erfcinv(d[i]) + fmod(d[i], 3.0) / sqrt(d[i]);
	f[i] = sinf(f[i]) * powf(f[i + 1], 1.75f) + tgammaf(f[i]) - j0f(f[i]) + remquof(f[i], 3.f, (int *)f);
}

__global__ void atomics(unsigned int *a, unsigned long long *b, float *c, double *e)
{
	__shared__ unsigned int local[32];
	cuda::atomic_ref<unsigned int, cuda::thread_scope_device> device(*a);
	cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> system(*b);

	local[threadIdx.x] = 0;
	atomicAdd(&local[a[0] & 31], 1);
	device.fetch_max(3, cuda::memory_order_acq_rel);
	system.compare_exchange_strong(b[1], b[2], cuda::memory_order_seq_cst);
	atomicAdd(c, 1.f);
	atomicAdd(e, 1.0);
	atomicInc(a + 1, 77);
	atomicCAS(b + 3, 1ull, 2ull);
	cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_block);
	a[2] = __ballot_sync(~0u, a[3]) + __popc(__match_any_sync(~0u, a[4])) + __shfl_down_sync(~0u, local[0], 3);
	a[5] = __dp4a(int(a[6]), int(a[7]), int(a[8])) + __funnelshift_l(a[9], a[10], 7) + __brev(a[11]) + __byte_perm(a[1], a[2], 0x1234);
}

__global__ void integers(long long *a, unsigned long long *b, __int128 *c)
{
	a[0] = a[1] / a[2] + a[3] % a[4];
	b[0] = b[1] / b[2] + __umul64hi(b[3], b[4]) + __clzll(b[5]);
	c[0] = c[1] * c[2] + c[3] / c[4];
}

__global__ void complex_numbers(cuda::std::complex<double> *z)
{
	z[threadIdx.x] = exp(z[0]) / z[1] + sqrt(z[2]);
}

struct big {
	int words[1000];
};

__global__ __launch_bounds__(128) void parameters(__grid_constant__ const big by_value, big copied, int *out)
{
	copied.words[out[0]] = by_value.words[out[1]];
	out[2] = copied.words[out[3]];
}
