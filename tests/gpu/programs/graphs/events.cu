// SPDX-License-Identifier: Apache-2.0
// Event nodes: one graph waits, inside, for what another one has recorded; and external events in a
// capture.
#include "graph.h"

__global__ void produce(int *values, int rounds)
{
	unsigned x = threadIdx.x + 1;

	for (int i = 0; i < rounds; i++)
		x = x * 1664525u + 1013904223u;
	values[threadIdx.x] = (int)(x >> 8);
}

__global__ void consume(const int *in, int *out)
{
	out[threadIdx.x] += in[31 - threadIdx.x] & 0xffff;
}

int main()
{
	int *values = allocate<int>(32), *out = allocate<int>(32);
	cudaGraphNodeParams record = {cudaGraphNodeTypeEventRecord},
			    wait = {cudaGraphNodeTypeWaitEvent};
	cudaGraph_t producer = make_graph(), consumer = make_graph(), captured;
	cudaGraphExec_t first, second, third;
	cudaStream_t one, two;
	cudaEvent_t event, outside;

	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CHECK(cudaEventCreate(&outside));
	CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
	record.eventRecord.event = event;
	wait.eventWait.event = event;
	add_node(producer, {add_kernel(producer, {}, produce, 1, 32, values, 200000)}, &record);
	add_kernel(consumer, {add_node(consumer, {}, &wait)}, consume, 1, 32, values, out);
	CHECK(cudaGraphInstantiate(&first, producer, 0));
	CHECK(cudaGraphInstantiate(&second, consumer, 0));
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < 3; i++) {
		CHECK(cudaGraphLaunch(first, one));
		CHECK(cudaGraphLaunch(second, two));
		CHECK(cudaStreamSynchronize(two));
	}
	print_numbers("waited", out, 32);

	CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
	consume<<<1, 32, 0, one>>>(values, out);
	CHECK(cudaEventRecordWithFlags(outside, one, cudaEventRecordExternal));
	consume<<<1, 32, 0, one>>>(out, values);
	CHECK(cudaStreamEndCapture(one, &captured));
	CHECK(cudaGraphInstantiate(&third, captured, 0));
	CHECK(cudaGraphLaunch(third, one));
	CHECK(cudaEventSynchronize(outside));
	printf("external event: %s\n", cudaGetErrorName(cudaEventQuery(outside)));
	print_numbers("captured", out, 32);
	print_numbers("and back", values, 32);
	return 0;
}
