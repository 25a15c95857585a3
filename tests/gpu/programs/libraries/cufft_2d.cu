// SPDX-License-Identifier: Apache-2.0
// cuFFT in two and three dimensions, real to complex and back, batched with strides; the size of
// the work area is part of the result.
#include <cufft.h>
#include "../result.h"

#define SIZE 2048

int main()
{
	float *real = small_numbers<float>(SIZE * SIZE, 101), *back = allocate<float>(SIZE * SIZE);
	cufftComplex *spectrum = (cufftComplex *)allocate<float>(2 * SIZE * (SIZE / 2 + 1));
	int sizes[] = {512, 500};
	cufftHandle plan;
	size_t work;

	OK(cufftCreate(&plan));
	OK(cufftMakePlan2d(plan, SIZE, SIZE, CUFFT_R2C, &work));
	printf("work area %zu\n", work);
	OK(cufftExecR2C(plan, real, spectrum));
	print_result("R2C 2048 x 2048", (float *)spectrum, 2 * SIZE * (SIZE / 2 + 1));
	OK(cufftDestroy(plan));
	OK(cufftPlan2d(&plan, SIZE, SIZE, CUFFT_C2R));
	OK(cufftExecC2R(plan, spectrum, back));
	print_result("C2R 2048 x 2048", back, SIZE * SIZE);
	OK(cufftDestroy(plan));
	OK(cufftPlan3d(&plan, 64, 50, 66, CUFFT_R2C));
	OK(cufftExecR2C(plan, real, spectrum));
	print_result("R2C 64 x 50 x 66", (float *)spectrum, 2 * 64 * 50 * 34);
	OK(cufftDestroy(plan));
	OK(cufftPlanMany(&plan, 2, sizes, nullptr, 1, 0, nullptr, 1, 0, CUFFT_R2C, 8));
	OK(cufftExecR2C(plan, real, spectrum));
	print_result("R2C 512 x 500, 8 times", (float *)spectrum, 2 * 8 * 512 * 251);
	OK(cufftDestroy(plan));
	return 0;
}
