// SPDX-License-Identifier: Apache-2.0
// A program of 29 modules: 29 PTX texts, each loaded by the driver when it is needed, and launched.
#include <string>
#include <cuda.h>
#include "../result.h"

static std::string text(int number)
{
	std::string name = "step" + std::to_string(number),
		    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n";

	ptx += ".visible .entry " + name + "(.param .u64 values)\n{\n";
	ptx += ".reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n.reg .pred %p<2>;\n";
	ptx += "ld.param.u64 %rd1, [values];\ncvta.to.global.u64 %rd1, %rd1;\n";
	ptx += "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 "
	       "%r1, %r1, %r2, %r3;\n";
	ptx += "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd1, %rd1, %rd2;\nld.global.u32 %r4, "
	       "[%rd1];\nmov.u32 %r5, 0;\n";
	ptx += "again:\nmad.lo.u32 %r4, %r4, " + std::to_string(2 * number + 3) +
	       ", %r1;\nshr.u32 %r6, %r4, 9;\nxor.b32 %r4, %r4, %r6;\n";
	ptx += "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, " + std::to_string(number + 1) +
	       ";\n@%p1 bra again;\n";
	return ptx + "st.global.u32 [%rd1], %r4;\nret;\n}\n";
}

int main()
{
	unsigned *values = numbers(1 << 14);
	void *arguments[] = {&values};

	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < 29; i++) {
		CUfunction function;
		CUmodule module;

		OK(cuModuleLoadData(&module, text(i).c_str()));
		OK(cuModuleGetFunction(&function, module, ("step" + std::to_string(i)).c_str()));
		OK(cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
		if (i % 7 == 0)
			CHECK(cudaDeviceSynchronize());
	}
	print_result("after 29 modules", values, 1 << 14);
	return 0;
}
