// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc clang flags= -G -lineinfo -rdc=true
// Arguments and results of every size and alignment, by value; new and delete; functions of functions.
template <int N> struct bytes {
	unsigned char at[N];
};
struct __align__(16) aligned {
	float4 a;
	char b;
};
struct mixed {
	char a;
	double b;
	short c[3];
};
struct empty {
};

template <int N> __noinline__ __device__ bytes<N> reversed(bytes<N> in, int by)
{
	bytes<N> out;

	for (int i = 0; i < N; i++)
		out.at[i] = in.at[(N - 1 - i + by) % N];
	return out;
}
__noinline__ __device__ aligned turned(empty, mixed m, bool negative, aligned in, signed char by)
{
	in.a.y = m.b + (negative ? -by : by);
	in.b += m.a + m.c[by & 1];
	return in;
}
__noinline__ __device__ mixed both(bool which, long long a, unsigned short b) { return { char(a), which ? 1. : double(a), { short(b) } }; }
__noinline__ __device__ float apply(float (*function)(float, void *), float x, int depth)
{
	return depth ? function(x, &depth) + apply(function, x * .5f, depth - 1) : x;
}
__noinline__ __device__ float grown(float x, void *depth) { return x * *(int *)depth; }
__noinline__ __device__ int even(unsigned int n);
__noinline__ __device__ int odd(unsigned int n) { return n == 0 ? 0 : even(n - 1) * 3; }
__noinline__ __device__ int even(unsigned int n) { return n == 0 ? 1 : odd(n - 1) + 5; }

struct shape {
	__device__ shape(int n) : sides(new float[n]), n(n) {}
	__device__ virtual ~shape() { delete[] sides; }
	__device__ virtual float area(float scale) const { return scale * n; }
	float *sides;
	int n;
};
struct square : virtual shape {
	__device__ square() : shape(4) {}
	__device__ float area(float scale) const override { return sides[0] * sides[0] * scale + shape::area(1); }
};

extern "C" __global__ void by_value(bytes<1> one, bytes<3> three, bytes<37> many, mixed m, aligned a, empty, int *out)
{
	bytes<37> again = reversed(reversed(many, out[0]), 2);
	aligned b = turned({}, both(m.a, m.c[2], 9), three.at[1] & 1, a, one.at[0]);

	out[1] = again.at[out[2] % 37] + reversed(three, 1).at[2] + b.b;
	*(float4 *)(out + 4) = b.a;
	out[3] = apply(grown, out[1], 5) + odd(out[0]);
}

extern "C" __global__ void objects(float *out, int which)
{
	shape *s = which ? new square : new shape(which + 3);

	out[0] = s->area(out[1]);
	delete s;
}

// 4 KB of parameters to the last byte, and as many as there may be since CUDA 12.1.
extern "C" __global__ __launch_bounds__(96, 3) void full(const __grid_constant__ bytes<4084> in, unsigned char *out, int i)
{
	const unsigned char *p = in.at + i;
	out[i] = p[2] + in.at[4083];
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
extern "C" __global__ __maxnreg__(64) void fuller(const __grid_constant__ bytes<32750> in, unsigned char *out, short i)
{
	out[i] = in.at[i] + in.at[32749];
}
#endif
