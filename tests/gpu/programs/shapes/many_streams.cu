// SPDX-License-Identifier: Apache-2.0
// 32 streams with two kernels each, joined by events: 65 launches, and the end.
#include "../result.h"

#define STREAMS 32
#define COUNT 1024

__global__ void mix(unsigned *values, unsigned by)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = (values[i] + by) * 2654435761u;
}

__global__ void join(const unsigned *values, unsigned *out)
{
	for (int k = 0; k < STREAMS; k++)
		out[threadIdx.x] ^= values[k * COUNT + threadIdx.x] * (k + 1);
}

int main()
{
	unsigned *values = allocate<unsigned>(STREAMS * COUNT), *out = allocate<unsigned>(COUNT);
	cudaStream_t streams[STREAMS], last;
	cudaEvent_t done;

	CHECK(cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking));
	CHECK(cudaDeviceSynchronize());
	for (int k = 0; k < STREAMS; k++) {
		CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
		mix<<<COUNT / 128, 128, 0, streams[k]>>>(values + k * COUNT, k);
		mix<<<COUNT / 128, 128, 0, streams[k]>>>(values + k * COUNT, 2 * k);
		CHECK(cudaEventRecord(done, streams[k]));
		CHECK(cudaStreamWaitEvent(last, done, 0));
	}
	join<<<1, COUNT, 0, last>>>(values, out);
	print_result("joined", out, COUNT);
	return 0;
}
