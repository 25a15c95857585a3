// SPDX-License-Identifier: Apache-2.0
// Atomics compiled by NVRTC, loaded as PTX, one launch.
#include <cuda.h>
#include <nvrtc.h>
#include "../result.h"

static const char source[] = R"(
extern "C" __global__ void atomics(unsigned *u, unsigned long long *w, float *f)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, old;

	atomicAdd(&u[0], i);
	atomicSub(&u[1], i);
	atomicMax(&u[2], i * 2654435761u);
	atomicMin(&u[3], i * 2654435761u);
	atomicXor(&u[4], i * 2654435761u);
	atomicOr(&u[5], 1u << i % 32);
	atomicInc(&u[6], 1000);
	atomicAdd(&w[0], (unsigned long long)i << 20);
	atomicMax(&w[1], (unsigned long long)i * 0x9e3779b97f4a7c15ull);
	atomicAdd(f, 1.0f);
	do
		old = u[7];
	while (atomicCAS(&u[7], old, old + i % 3) != old);
}
)";

int main()
{
	const char *options[] = {"--gpu-architecture=compute_90"};
	unsigned *u = allocate<unsigned>(8);
	unsigned long long *w = allocate<unsigned long long>(2);
	float *f = allocate<float>(1);
	void *arguments[] = {&u, &w, &f};
	std::vector<char> ptx;
	nvrtcProgram program;
	CUfunction function;
	CUmodule module;
	size_t size;

	OK(nvrtcCreateProgram(&program, source, "atomics.cu", 0, nullptr, nullptr));
	OK(nvrtcCompileProgram(program, 1, options));
	OK(nvrtcGetPTXSize(program, &size));
	ptx.resize(size);
	OK(nvrtcGetPTX(program, ptx.data()));
	OK(cuModuleLoadData(&module, ptx.data()));
	OK(cuModuleGetFunction(&function, module, "atomics"));
	OK(cuLaunchKernel(function, 16, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
	print_result("words", u, 8);
	print_result("long words", w, 2);
	print_result("float", f, 1);
	return 0;
}
