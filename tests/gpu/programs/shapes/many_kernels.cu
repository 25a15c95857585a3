// SPDX-License-Identifier: Apache-2.0
// One module of 200 small kernels; ten of them are launched.
#include "../result.h"

template <int N> __global__ void small(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = values[i];

	for (int k = 0; k < N % 7 + 1; k++)
		x = x * (2 * N + 1) + (x >> (N % 13 + 1));
	values[i] = x;
}

typedef void (*kernel)(unsigned *);

#define ONE(n) small<n>
#define TEN(n)                                                                                     \
	ONE(n##0), ONE(n##1), ONE(n##2), ONE(n##3), ONE(n##4), ONE(n##5), ONE(n##6), ONE(n##7),    \
		ONE(n##8), ONE(n##9)

int main()
{
	const kernel kernels[] = {TEN(1),  TEN(2),  TEN(3),  TEN(4),  TEN(5),  TEN(6),  TEN(7),
				  TEN(8),  TEN(9),  TEN(10), TEN(11), TEN(12), TEN(13), TEN(14),
				  TEN(15), TEN(16), TEN(17), TEN(18), TEN(19), TEN(20)};
	unsigned *values = numbers(1 << 14);

	for (int i = 0; i < 200; i += 20) {
		kernels[i + i / 20]<<<64, 256>>>(values);
		print_result("values", values, 1 << 14);
	}
	return 0;
}
