// SPDX-License-Identifier: Apache-2.0
// cuRAND in kernels of ours: two generators, words and normal numbers.
#include <curand_kernel.h>
#include "../result.h"

#define COUNT 8192

template <class State> __global__ void generate(unsigned *words, float *normal)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;
	State state;

	curand_init(20261127, i, 0, &state);
	words[i] = curand(&state) ^ curand(&state);
	for (int k = 0; k < 4; k++)
		sum += curand_normal(&state);
	normal[i] = sum;
}

template <class State> static void run(const char *name)
{
	unsigned *words = allocate<unsigned>(COUNT);
	float *normal = allocate<float>(COUNT);

	generate<State><<<COUNT / 128, 128>>>(words, normal);
	print_result(name, words, COUNT);
	print_floats(name, normal, COUNT);
}

int main()
{
	run<curandStatePhilox4_32_10_t>("Philox");
	run<curandStateXORWOW_t>("XORWOW");
	return 0;
}
