// SPDX-License-Identifier: Apache-2.0
// NVRTC: the same text as PTX and as machine code, with templates, constants and shared memory;
// each loaded through the driver.
#include <cuda.h>
#include <nvrtc.h>
#include "../result.h"

#define COUNT 4096

static const char source[] = R"(
__constant__ unsigned table[4] = {3, 5, 7, 11};
template <class T> __device__ T mix(T x, unsigned i) { return x * table[i % 4] + (x >> 3); }
extern "C" __global__ void blocks(const unsigned *in, unsigned *out)
{
	__shared__ unsigned shared[256];
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	shared[threadIdx.x] = mix(in[i], i);
	__syncthreads();
	for (int step = 128; step; step /= 2) {
		if (threadIdx.x < step)
			shared[threadIdx.x] ^= shared[threadIdx.x + step] * 31;
		__syncthreads();
	}
	out[i] = (unsigned)mix((unsigned long long)in[i] << 16, i) ^ shared[0];
}
)";

static void run(const char *name, const char *option, bool ptx, const unsigned *in)
{
	unsigned *out = allocate<unsigned>(COUNT);
	void *arguments[] = {&in, &out};
	std::vector<char> code;
	nvrtcProgram program;
	CUfunction function;
	CUmodule module;
	size_t size;

	OK(nvrtcCreateProgram(&program, source, "blocks.cu", 0, nullptr, nullptr));
	OK(nvrtcCompileProgram(program, 1, &option));
	OK(ptx ? nvrtcGetPTXSize(program, &size) : nvrtcGetCUBINSize(program, &size));
	code.resize(size);
	OK(ptx ? nvrtcGetPTX(program, code.data()) : nvrtcGetCUBIN(program, code.data()));
	OK(cuModuleLoadData(&module, code.data()));
	OK(cuModuleGetFunction(&function, module, "blocks"));
	OK(cuLaunchKernel(function, COUNT / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
	print_result(name, out, COUNT);
	OK(cuModuleUnload(module));
	OK(nvrtcDestroyProgram(&program));
}

int main()
{
	unsigned *in = numbers(COUNT);

	CHECK(cudaDeviceSynchronize());
	run("PTX", "-arch=compute_90", true, in);
	run("PTX for an older GPU", "-arch=compute_75", true, in);
	run("machine code", "-arch=sm_90", false, in);
	return 0;
}
