// SPDX-License-Identifier: Apache-2.0
// corpus: clang flags=
// Kernels whose mangled names have hundreds to thousands of characters.
template <int... Numbers> struct numbers {};
template <typename A, typename B> struct a_pair_of_types_with_a_rather_long_name {};

template <int N, typename T> struct nest {
	using type = a_pair_of_types_with_a_rather_long_name<T, typename nest<N - 1, numbers<N, N + 1, N + 2, -N>>::type>;
};
template <typename T> struct nest<0, T> {
	using type = T;
};

template <typename T> __global__ void kernel_with_a_type(T, float *out)
{
	out[threadIdx.x] = sizeof(T);
}

namespace a_namespace { namespace { __global__ void hidden(int *p) { *p = 1; } } }

void launch(float *out)
{
	kernel_with_a_type<<<1, 1>>>(nest<3, int>::type(), out);
	kernel_with_a_type<<<1, 1>>>(nest<12, double>::type(), out);
	kernel_with_a_type<<<1, 1>>>(nest<40, float4>::type(), out);
	a_namespace::hidden<<<1, 1>>>((int *)out);
}
