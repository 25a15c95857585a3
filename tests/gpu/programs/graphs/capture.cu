// SPDX-License-Identifier: Apache-2.0
// A capture over five streams that fork and join by events, with copies and memsets between.
#include "graph.h"

#define STREAMS 4
#define COUNT 4096

__global__ void mix(unsigned *values, unsigned by)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = values[i] * 2654435761u + by * i;
}

__global__ void join(const unsigned *parts, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	for (int k = 0; k < STREAMS; k++)
		out[i] ^= parts[k * COUNT + i] + k;
}

int main()
{
	unsigned *parts = numbers(STREAMS * COUNT), *out = allocate<unsigned>(COUNT),
		 *copy = allocate<unsigned>(COUNT);
	cudaStream_t main_stream, streams[STREAMS];
	cudaEvent_t fork, joined[STREAMS];
	cudaGraph_t graph;

	CHECK(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
	for (int k = 0; k < STREAMS; k++) {
		CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&joined[k], cudaEventDisableTiming));
	}
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMemsetAsync(copy, 5, COUNT * sizeof(unsigned), main_stream));
	CHECK(cudaEventRecord(fork, main_stream));
	for (int k = 0; k < STREAMS; k++) {
		CHECK(cudaStreamWaitEvent(streams[k], fork, 0));
		for (int i = 0; i <= k; i++)
			mix<<<COUNT / 128, 128, 0, streams[k]>>>(parts + k * COUNT, i + 1);
		CHECK(cudaEventRecord(joined[k], streams[k]));
		CHECK(cudaStreamWaitEvent(main_stream, joined[k], 0));
	}
	join<<<COUNT / 128, 128, 0, main_stream>>>(parts, out);
	mix<<<COUNT / 128, 128, 0, main_stream>>>(copy, 3);
	CHECK(cudaMemcpyAsync(out, copy, COUNT, cudaMemcpyDeviceToDevice, main_stream));
	CHECK(cudaStreamEndCapture(main_stream, &graph));
	launch_graph(graph, 3);
	print_result("joined", out, COUNT);
	print_result("parts", parts, STREAMS * COUNT);
	return 0;
}
