// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launches: a kernel begins before the one that it waits for has ended; in a
// stream, and captured.
#include "graph.h"

__global__ void first(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = values[i];

	cudaTriggerProgrammaticLaunchCompletion();
	for (int k = 0; k < 1000; k++)
		x = x * 1664525u + 1013904223u;
	values[i] = x;
}

__global__ void second(const unsigned *values, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	cudaGridDependencySynchronize();
	out[i] = out[i] * 31 + values[i];
}

static void both(cudaStream_t stream, unsigned *values, unsigned *out)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	first<<<64, 128, 0, stream>>>(values);
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(64);
	config.blockDim = dim3(128);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	CHECK(cudaLaunchKernelEx(&config, second, (const unsigned *)values, out));
}

int main()
{
	unsigned *values = numbers(64 * 128), *out = allocate<unsigned>(64 * 128);
	cudaStream_t stream;
	cudaGraph_t graph;

	CHECK(cudaStreamCreate(&stream));
	for (int i = 0; i < 5; i++)
		both(stream, values, out);
	print_result("stream", out, 64 * 128);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	both(stream, values, out);
	CHECK(cudaStreamEndCapture(stream, &graph));
	launch_graph(graph, 3);
	print_result("graph", out, 64 * 128);
	return 0;
}
