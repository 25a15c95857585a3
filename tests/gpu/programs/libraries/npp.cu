// SPDX-License-Identifier: Apache-2.0
// NPP on signals: exclusive or, sum of two, plus a constant, squares.
#include "library.h"

#define COUNT 100000

struct context { // NppStreamContext
	cudaStream_t stream;
	int device, multiprocessors, threads_of_multiprocessor, threads_of_block;
	size_t shared_memory;
	int major, minor;
	unsigned flags, reserved;
};

typedef int binary(const unsigned *, const unsigned *, unsigned *, size_t, context);
typedef int with_constant(const float *, float, float *, size_t, context);
typedef int unary(const float *, float *, size_t, context);

int main()
{
	unsigned *a = numbers(COUNT), *b = small_numbers<unsigned>(COUNT, 1000),
		 *c = allocate<unsigned>(COUNT);
	float *x = small_numbers<float>(COUNT, 1001), *y = allocate<float>(COUNT);
	cudaDeviceProp properties;
	context how = {};
	void *library;

	open_library("libnppc.so.13"); // libnpps needs it
	library = open_library("libnpps.so.13");
	CHECK(cudaGetDeviceProperties(&properties, 0));
	how.multiprocessors = properties.multiProcessorCount;
	how.threads_of_multiprocessor = properties.maxThreadsPerMultiProcessor;
	how.threads_of_block = properties.maxThreadsPerBlock;
	how.shared_memory = properties.sharedMemPerBlock;
	how.major = properties.major;
	how.minor = properties.minor;
	OK(function_of<binary>(library, "nppsXor_32u_Ctx")(a, b, c, COUNT, how));
	print_result("xor", c, COUNT);
	OK(function_of<binary>(library, "nppsAdd_32u_Ctx")(a, b, c, COUNT, how));
	print_result("add", c, COUNT);
	OK(function_of<with_constant>(library, "nppsAddC_32f_Ctx")(x, 3, y, COUNT, how));
	print_result("add a constant", y, COUNT);
	OK(function_of<unary>(library, "nppsSqr_32f_Ctx")(x, y, COUNT, how));
	print_result("square", y, COUNT);
	return 0;
}
