// SPDX-License-Identifier: Apache-2.0
// Graphs that are cloned, changed, and destroyed while instances of them go on; instances destroyed
// while they run; launches of several threads.
#include <thread>
#include "graph.h"

__global__ void add(int *values, int by, int rounds)
{
	unsigned x = values[threadIdx.x];

	for (int i = 0; i < rounds; i++)
		x = x * 5 + by;
	values[threadIdx.x] = x;
}

int main()
{
	int *values = allocate<int>(16), *others = allocate<int>(16 * 4), by = 9, rounds = 2;
	void *arguments[] = {&values, &by, &rounds};
	cudaKernelNodeParams params = {};
	cudaGraph_t graph = make_graph(), copy;
	cudaGraphNode_t node = add_kernel(graph, {}, add, 1, 16, values, 1, 3), in_copy;
	cudaGraphExec_t first, second, running;
	std::vector<std::thread> threads;

	CHECK(cudaGraphClone(&copy, graph));
	CHECK(cudaGraphNodeFindInClone(&in_copy, node, copy));
	params.func = (void *)add;
	params.gridDim = dim3(1);
	params.blockDim = dim3(16);
	params.kernelParams = arguments;
	CHECK(cudaGraphKernelNodeSetParams(in_copy, &params));
	CHECK(cudaGraphInstantiate(&first, graph, 0));
	CHECK(cudaGraphInstantiate(&second, copy, 0));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaGraphDestroy(copy));
	for (int i = 0; i < 3; i++) {
		CHECK(cudaGraphLaunch(first, 0));
		CHECK(cudaGraphLaunch(second, 0));
	}
	print_numbers("graph and clone", values, 16);

	graph = make_graph();
	add_kernel(graph, {}, add, 1, 16, values, 3, 3000000);
	CHECK(cudaGraphInstantiate(&running, graph, 0));
	CHECK(cudaGraphLaunch(running, 0));
	CHECK(cudaGraphExecDestroy(running));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaGraphExecDestroy(first));
	CHECK(cudaGraphExecDestroy(second));
	print_numbers("destroyed while it ran", values, 16);

	for (int k = 0; k < 4; k++)
		threads.emplace_back([=] {
			cudaGraph_t mine = make_graph();
			cudaGraphNode_t last =
				add_kernel(mine, {}, add, 1, 16, others + 16 * k, k, 5);

			add_kernel(mine, {last}, add, 1, 16, others + 16 * k, k + 1, 7);
			for (int i = 0; i < 10; i++)
				launch_graph(mine, 3);
			CHECK(cudaGraphDestroy(mine));
		});
	for (auto &thread : threads)
		thread.join();
	print_numbers("of four threads", others, 16 * 4);
	return 0;
}
