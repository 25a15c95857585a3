// SPDX-License-Identifier: Apache-2.0
// nvJitLink: two pieces of LTO-IR from NVRTC, linked to machine code and to PTX; and two PTX texts
// linked by the driver.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>
#include "../result.h"

#define COUNT 4096

static const char kernel_source[] = R"(
__device__ unsigned mix(unsigned x, unsigned i);
extern "C" __global__ void apply(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = mix(values[i], i) + mix(i, 3);
}
)";
static const char function_source[] = "__device__ unsigned mix(unsigned x, unsigned i) { return (x "
				      "^ i) * 2654435761u + (x >> 5); }";

static std::vector<char> compile(const char *source, bool lto)
{
	const char *options[] = {lto ? "-arch=sm_90" : "-arch=compute_90",
				 "--relocatable-device-code=true", "-dlto"};
	std::vector<char> code;
	nvrtcProgram program;
	size_t size;

	OK(nvrtcCreateProgram(&program, source, "part.cu", 0, nullptr, nullptr));
	OK(nvrtcCompileProgram(program, lto ? 3 : 2, options));
	OK(lto ? nvrtcGetLTOIRSize(program, &size) : nvrtcGetPTXSize(program, &size));
	code.resize(size);
	OK(lto ? nvrtcGetLTOIR(program, code.data()) : nvrtcGetPTX(program, code.data()));
	return code;
}

static void launch(const char *name, const void *code, unsigned *values)
{
	void *arguments[] = {&values};
	CUfunction function;
	CUmodule module;

	OK(cuModuleLoadData(&module, code));
	OK(cuModuleGetFunction(&function, module, "apply"));
	OK(cuLaunchKernel(function, COUNT / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
	print_result(name, values, COUNT);
	OK(cuModuleUnload(module));
}

static void by_nvjitlink(const char *name, bool ptx, unsigned *values)
{
	const char *options[] = {"-arch=sm_90", "-lto", "-ptx"};
	std::vector<char> kernel = compile(kernel_source, true),
			  function = compile(function_source, true), linked;
	nvJitLinkHandle link;
	size_t size;

	OK(nvJitLinkCreate(&link, ptx ? 3 : 2, options));
	OK(nvJitLinkAddData(link, NVJITLINK_INPUT_LTOIR, kernel.data(), kernel.size(), "kernel"));
	OK(nvJitLinkAddData(link, NVJITLINK_INPUT_LTOIR, function.data(), function.size(),
			    "function"));
	OK(nvJitLinkComplete(link));
	OK(ptx ? nvJitLinkGetLinkedPtxSize(link, &size) : nvJitLinkGetLinkedCubinSize(link, &size));
	linked.resize(size + 1);
	OK(ptx ? nvJitLinkGetLinkedPtx(link, linked.data())
	       : nvJitLinkGetLinkedCubin(link, linked.data()));
	launch(name, linked.data(), values);
	OK(nvJitLinkDestroy(&link));
}

int main()
{
	unsigned *values = numbers(COUNT);
	std::vector<char> kernel = compile(kernel_source, false),
			  function = compile(function_source, false);
	CUlinkState link;
	size_t size;
	void *code;

	CHECK(cudaDeviceSynchronize());
	by_nvjitlink("machine code by nvJitLink", false, values);
	by_nvjitlink("PTX by nvJitLink", true, values);
	OK(cuLinkCreate(0, nullptr, nullptr, &link));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, kernel.data(), kernel.size(), "kernel", 0, nullptr,
			 nullptr));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, function.data(), function.size(), "function", 0,
			 nullptr, nullptr));
	OK(cuLinkComplete(link, &code, &size));
	launch("PTX by the driver", code, values);
	OK(cuLinkDestroy(link));
	return 0;
}
