// SPDX-License-Identifier: Apache-2.0
// Instances of graphs that are changed: from another graph, parameters of single nodes, and nodes
// left out.
#include "graph.h"

__global__ void scale(int *values, int by)
{
	values[threadIdx.x] = values[threadIdx.x] * by + threadIdx.x;
}

__global__ void shift(int *values, int by)
{
	values[threadIdx.x] = (values[threadIdx.x] >> 1) + by;
}

static cudaGraph_t chain(int *values, void (*second)(int *, int), int by,
			 cudaGraphNode_t *node = nullptr, bool longer = false)
{
	cudaGraph_t graph = make_graph();
	cudaGraphNode_t last = add_kernel(graph, {add_kernel(graph, {}, scale, 1, 16, values, by)},
					  second, 1, 16, values, by);

	if (node)
		*node = last;
	if (longer)
		add_kernel(graph, {last}, scale, 1, 16, values, 1);
	return graph;
}

int main()
{
	int *values = allocate<int>(16), by = 1000;
	void *arguments[] = {&values, &by};
	cudaGraphExecUpdateResultInfo info = {};
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;
	cudaGraph_t graph = chain(values, shift, 3, &node), other = chain(values, shift, 5),
		    another = chain(values, scale, 7),
		    longer = chain(values, shift, 3, nullptr, true);
	cudaGraphExec_t exec;

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("as made", values, 16);
	CHECK(cudaGraphExecUpdate(exec, other, &info));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("other parameters", values, 16);
	CHECK(cudaGraphExecUpdate(exec, another, &info));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("another kernel", values, 16);
	printf("longer: %s, result %d\n",
	       cudaGetErrorName(cudaGraphExecUpdate(exec, longer, &info)), (int)info.result);
	cudaGetLastError();
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("after a failed update", values, 16);
	params.func = (void *)shift;
	params.gridDim = dim3(1);
	params.blockDim = dim3(8);
	params.kernelParams = arguments;
	CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("one node's parameters", values, 16);
	CHECK(cudaGraphNodeSetEnabled(exec, node, 0));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("one node left out", values, 16);
	CHECK(cudaGraphNodeSetEnabled(exec, node, 1));
	CHECK(cudaGraphLaunch(exec, 0));
	print_numbers("and back", values, 16);
	CHECK(cudaGraphExecDestroy(exec));
	return 0;
}
