// SPDX-License-Identifier: Apache-2.0
// 500 launches over eight streams, with an event behind each that another stream waits for.
#include "../result.h"

#define STREAMS 8

__global__ void step(unsigned *values, unsigned by)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = values[i] * 1664525u + by;
}

int main()
{
	unsigned *values = allocate<unsigned>(1024);
	cudaStream_t streams[STREAMS];
	cudaEvent_t events[STREAMS];

	for (int k = 0; k < STREAMS; k++) {
		CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
		CHECK(cudaEventCreate(&events[k]));
	}
	CHECK(cudaDeviceSynchronize());
	for (unsigned i = 0; i < 500; i++) {
		unsigned now = i * 5 % STREAMS, next = (i + 1) * 5 % STREAMS;

		step<<<8, 128, 0, streams[now]>>>(values, i);
		CHECK(cudaEventRecord(events[now], streams[now]));
		CHECK(cudaStreamWaitEvent(streams[next], events[now], 0));
	}
	print_result("after 500 launches", values, 1024);
	return 0;
}
