// SPDX-License-Identifier: Apache-2.0
// Floating point whose last bits depend on which products and sums become one instruction.
#include "../result.h"

#define SIZE 512

template <class T> __global__ void stencil(const T *in, T *out, T a, T b)
{
	unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
	T left, right;

	if (x == 0 || y == 0 || x >= SIZE - 1 || y >= SIZE - 1)
		return;
	left = in[y * SIZE + x - 1] * a + in[y * SIZE + x + 1] * b;
	right = in[(y - 1) * SIZE + x] * b - in[(y + 1) * SIZE + x] * a;
	out[y * SIZE + x] = (left * right + left * a - right * b + in[y * SIZE + x]) /
			    4; // what is at most 1 stays so
}

template <class T> __global__ void scale(T *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = values[i] / T(1009) + T(1) / T(i + 3);
}

template <class T> static void run(const char *name)
{
	T *one = small_numbers<T>(SIZE * SIZE, 1001), *two = allocate<T>(SIZE * SIZE);

	scale<<<SIZE, SIZE>>>(one);
	for (int i = 0; i < 4; i++) {
		stencil<<<dim3(SIZE / 128, SIZE), 128>>>(one, two, T(0.2345678), T(0.7654321));
		stencil<<<dim3(SIZE / 128, SIZE), 128>>>(two, one, T(0.3456789), T(0.6543211));
	}
	print_floats(name, one, SIZE * SIZE);
}

int main()
{
	run<float>("float");
	run<double>("double");
	return 0;
}
