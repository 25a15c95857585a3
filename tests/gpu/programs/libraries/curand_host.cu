// SPDX-License-Identifier: Apache-2.0
// cuRAND from the host: seven generators, uniform, normal, log-normal and Poisson.
#include <curand.h>
#include "../result.h"

#define COUNT 100000

int main()
{
	static const struct {
		const char *name;
		curandRngType_t type;
	} generators[] = {{"XORWOW", CURAND_RNG_PSEUDO_XORWOW},
			  {"MRG32k3a", CURAND_RNG_PSEUDO_MRG32K3A},
			  {"MTGP32", CURAND_RNG_PSEUDO_MTGP32},
			  {"MT19937", CURAND_RNG_PSEUDO_MT19937},
			  {"Philox", CURAND_RNG_PSEUDO_PHILOX4_32_10},
			  {"Sobol32", CURAND_RNG_QUASI_SOBOL32},
			  {"scrambled Sobol32", CURAND_RNG_QUASI_SCRAMBLED_SOBOL32}};
	unsigned *words = numbers(COUNT);
	float *values = allocate<float>(COUNT);
	double *values64 = allocate<double>(COUNT);
	curandGenerator_t generator;

	for (auto &one : generators) {
		printf("%s\n", one.name);
		OK(curandCreateGenerator(&generator, one.type));
		if (one.type < CURAND_RNG_QUASI_DEFAULT)
			OK(curandSetPseudoRandomGeneratorSeed(generator, 20261127));
		TRY(curandGenerate(generator, words, COUNT));
		print_result("words", words, COUNT);
		TRY(curandGenerateUniform(generator, values, COUNT));
		print_result("uniform", values, COUNT);
		TRY(curandGenerateNormal(generator, values, COUNT, 1, 2));
		print_result("normal", values, COUNT);
		TRY(curandGenerateLogNormalDouble(generator, values64, COUNT, 0, 1));
		print_result("log-normal", values64, COUNT);
		TRY(curandGeneratePoisson(generator, words, COUNT, 10));
		print_result("Poisson", words, COUNT);
		OK(curandDestroyGenerator(generator));
	}
	return 0;
}
