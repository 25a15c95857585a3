// SPDX-License-Identifier: Apache-2.0
// cuFFT with a callback that it links into its kernel while the program runs: LTO-IR, made by
// NVRTC.
#include <cufftXt.h>
#include <nvrtc.h>
#include "../result.h"

static const char source[] = R"(
__device__ float2 scaled(void *data, unsigned long long offset, void *info, void *)
{
	float2 value = ((float2 *)data)[offset];
	float by = *(float *)info;
	return make_float2(value.x * by, value.y * by);
}
)";

int main()
{
	const char *options[] = {"-arch=sm_90", "-dlto", "--relocatable-device-code=true"};
	cufftComplex *in = (cufftComplex *)small_numbers<float>(2 * 4096, 101),
		     *out = (cufftComplex *)allocate<float>(2 * 4096);
	float *by = allocate<float>(1), two = 2;
	std::vector<char> code;
	nvrtcProgram program;
	cufftHandle plan;
	size_t size, work;

	CHECK(cudaMemcpy(by, &two, sizeof(two), cudaMemcpyHostToDevice));
	OK(nvrtcCreateProgram(&program, source, "callback.cu", 0, nullptr, nullptr));
	OK(nvrtcCompileProgram(program, 3, options));
	OK(nvrtcGetLTOIRSize(program, &size));
	code.resize(size);
	OK(nvrtcGetLTOIR(program, code.data()));
	OK(cufftCreate(&plan));
	OK(cufftXtSetJITCallback(plan, "scaled", code.data(), code.size(), CUFFT_CB_LD_COMPLEX,
				 (void **)&by));
	OK(cufftMakePlan1d(plan, 4096, CUFFT_C2C, 1, &work));
	OK(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
	print_result("C2C 4096 with a callback", (float *)out, 2 * 4096);
	OK(cufftDestroy(plan));
	return 0;
}
