// SPDX-License-Identifier: Apache-2.0
// cuFFT with a callback that it links into its kernel while the program runs: LTO-IR, made by NVRTC.
#include <cufftXt.h>
#include <nvrtc.h>
#include <string>
#include "../result.h"

static const char source[] = R"(
#include <cufftXt.h>
__device__ cufftComplex scaled(void *data, unsigned long long offset, void *info, void *)
{
	cufftComplex value = ((cufftComplex *)data)[offset];
	float by = *(float *)info;
	return make_float2(value.x * by, value.y * by);
}
)";

int main()
{
	const char *options[] = {"-arch=sm_90", "-dlto", "--relocatable-device-code=true", nullptr};
	std::string include = std::string("-I") + (getenv("CUDA_HOME") ? getenv("CUDA_HOME") : "/usr/local/cuda") + "/include";
	cufftComplex *in = (cufftComplex *)small_numbers<float>(2 * 4096, 101), *out = (cufftComplex *)allocate<float>(2 * 4096);
	float *by = allocate<float>(1), two = 2;
	std::vector<char> code;
	nvrtcProgram program;
	cufftHandle plan;
	size_t size, work;

	options[3] = include.c_str();
	CHECK(cudaMemcpy(by, &two, sizeof(two), cudaMemcpyHostToDevice));
	OK(nvrtcCreateProgram(&program, source, "callback.cu", 0, nullptr, nullptr));
	if (nvrtcCompileProgram(program, 4, options) != NVRTC_SUCCESS)
		skip("headers of cuFFT");
	OK(nvrtcGetLTOIRSize(program, &size));
	code.resize(size);
	OK(nvrtcGetLTOIR(program, code.data()));
	OK(cufftCreate(&plan));
	OK(cufftXtSetJITCallback(plan, "scaled", code.data(), code.size(), CUFFT_CB_LD_COMPLEX, (void **)&by));
	OK(cufftMakePlan1d(plan, 4096, CUFFT_C2C, 1, &work));
	OK(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
	print_result("C2C 4096 with a callback", (float *)out, 2 * 4096);
	OK(cufftDestroy(plan));
	return 0;
}
