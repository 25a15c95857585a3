// SPDX-License-Identifier: Apache-2.0
// cuFFT in one dimension: powers of two, batches, products of small primes, large primes
// (Bluestein), and inverses; double precision.
#include <cufft.h>
#include "../result.h"

#define POINTS (1 << 20)

static void complex_to_complex(cufftComplex *in, cufftComplex *out, int size, int batch)
{
	cufftHandle plan;
	char name[64];

	OK(cufftPlan1d(&plan, size, CUFFT_C2C, batch));
	OK(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
	snprintf(name, sizeof(name), "C2C %d x %d", size, batch);
	print_result(name, (float *)out, 2 * (size_t)size * batch);
	OK(cufftExecC2C(plan, out, out, CUFFT_INVERSE));
	print_result("and back", (float *)out, 2 * (size_t)size * batch);
	OK(cufftDestroy(plan));
}

int main()
{
	cufftComplex *in = (cufftComplex *)small_numbers<float>(2 * POINTS, 101),
		     *out = (cufftComplex *)allocate<float>(2 * POINTS);
	cufftDoubleComplex *in64 = (cufftDoubleComplex *)small_numbers<double>(2 * POINTS, 101);
	cufftDoubleComplex *out64 = (cufftDoubleComplex *)allocate<double>(2 * POINTS);
	cufftHandle plan;

	complex_to_complex(in, out, 4096, 1);
	complex_to_complex(in, out, 1 << 20, 1);
	complex_to_complex(in, out, 1024, 512);
	complex_to_complex(in, out, 3 * 5 * 7 * 11 * 13, 8);
	complex_to_complex(in, out, 1021, 3);
	complex_to_complex(in, out, 65537, 2);
	for (int size : {2048, 4093}) {
		OK(cufftPlan1d(&plan, size, CUFFT_Z2Z, 4));
		OK(cufftExecZ2Z(plan, in64, out64, CUFFT_FORWARD));
		print_result(size == 2048 ? "Z2Z 2048 x 4" : "Z2Z 4093 x 4", (double *)out64,
			     2 * 4 * size);
		OK(cufftDestroy(plan));
	}
	return 0;
}
