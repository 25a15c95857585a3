// SPDX-License-Identifier: Apache-2.0
// A host function behind each of eight kernels.
#include "../result.h"

__global__ void step(int *value)
{
	*value = *value * 3 + 1;
}

static void count(void *calls)
{
	++*(int *)calls;
}

static void count_callback(cudaStream_t, cudaError_t, void *calls)
{
	++*(int *)calls;
}

int main()
{
	int *value = allocate<int>(1), calls = 0;
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	for (int i = 0; i < 8; i++) {
		step<<<1, 1, 0, stream>>>(value);
		if (i % 2)
			CHECK(cudaLaunchHostFunc(stream, count, &calls));
		else
			CHECK(cudaStreamAddCallback(stream, count_callback, &calls, 0));
	}
	CHECK(cudaStreamSynchronize(stream));
	printf("calls %d\n", calls);
	print_result("value", value, 1);
	return 0;
}
