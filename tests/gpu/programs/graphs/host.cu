// SPDX-License-Identifier: Apache-2.0
// Host functions, memsets and copies as nodes between kernels.
#include "graph.h"

__global__ void add(int *values, int by)
{
	values[threadIdx.x] += by + threadIdx.x;
}

struct work {
	int *values, calls;
};

static void on_host(void *data)
{
	work *what = (work *)data;

	what->calls++;
	for (int i = 0; i < 16; i++)
		what->values[i] = what->values[i] * 3 - what->calls;
}

int main()
{
	cudaGraphNodeParams set = {cudaGraphNodeTypeMemset}, host = {cudaGraphNodeTypeHost};
	int *device = allocate<int>(16);
	cudaGraphNode_t node, down, up;
	cudaGraph_t graph = make_graph();
	work what = {};

	CHECK(cudaMallocHost(&what.values, 16 * sizeof(int)));
	set.memset.dst = device;
	set.memset.value = 7;
	set.memset.elementSize = 4;
	set.memset.width = 16;
	set.memset.height = 1;
	node = add_node(graph, {}, &set);
	node = add_kernel(graph, {node}, add, 1, 16, device, 10);
	CHECK(cudaGraphAddMemcpyNode1D(&down, graph, &node, 1, what.values, device,
				       16 * sizeof(int), cudaMemcpyDeviceToHost));
	host.host.fn = on_host;
	host.host.userData = &what;
	node = add_node(graph, {down}, &host);
	CHECK(cudaGraphAddMemcpyNode1D(&up, graph, &node, 1, device, what.values, 16 * sizeof(int),
				       cudaMemcpyHostToDevice));
	add_kernel(graph, {up}, add, 1, 16, device, 1000);
	launch_graph(graph, 4);
	print_numbers("with a host node", device, 16);
	printf("calls %d\n", what.calls);
	return 0;
}
