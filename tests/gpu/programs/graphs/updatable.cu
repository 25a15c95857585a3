// SPDX-License-Identifier: Apache-2.0
// Kernel nodes that a kernel of the same graph changes: a parameter, the grid, and whether the node
// runs.
#include "graph.h"

struct nodes {
	cudaGraphDeviceNode_t add, wide, sometimes;
};

__global__ void change(const nodes *made, int *state)
{
	int round = state[0]++, by = 100 * round;

	cudaGraphKernelNodeSetParam(made->add, 12,
				    by); // where `by` is among the parameters of count()
	cudaGraphKernelNodeSetGridDim(made->wide, dim3(1 + round % 4));
	cudaGraphKernelNodeSetEnabled(made->sometimes, round % 2 == 0);
}

__global__ void count(int *state, int where, int by)
{
	if (threadIdx.x == 0)
		atomicAdd(&state[where], by);
}

static cudaGraphDeviceNode_t capture_count(cudaStream_t stream, int *state, int where, int by)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	attribute.id = cudaLaunchAttributeDeviceUpdatableKernelNode;
	attribute.val.deviceUpdatableKernelNode.deviceUpdatable = 1;
	config.gridDim = dim3(1);
	config.blockDim = dim3(32);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	CHECK(cudaLaunchKernelEx(&config, count, state, where, by));
	return attribute.val.deviceUpdatableKernelNode.devNode;
}

int main()
{
	int *state = allocate<int>(4);
	nodes *device = allocate<nodes>(1), made;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraph_t graph;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	change<<<1, 1, 0, stream>>>(device, state);
	made.add = capture_count(stream, state, 1, 7);
	made.wide = capture_count(stream, state, 2, 1);
	made.sometimes = capture_count(stream, state, 3, 1);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaMemcpy(device, &made, sizeof(made), cudaMemcpyHostToDevice));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphUpload(exec, stream));
	for (int i = 0; i < 6; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		print_numbers("updated", state, 4);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
