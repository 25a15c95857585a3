// SPDX-License-Identifier: Apache-2.0
// Graphs that kernels launch: fire and forget, as a sibling, behind the launching graph (tail), and
// a graph that launches itself again.
#include "graph.h"

__global__ void count(int *state, int where)
{
	atomicAdd(&state[where], 1);
}

__global__ void launch(cudaGraphExec_t one, cudaGraphExec_t sibling, cudaGraphExec_t tail,
		       int *state)
{
	state[0]++;
	cudaGraphLaunch(one, cudaStreamGraphFireAndForget);
	cudaGraphLaunch(sibling, cudaStreamGraphFireAndForgetAsSibling);
	cudaGraphLaunch(tail, cudaStreamGraphTailLaunch);
}

__global__ void again(int *state, int limit)
{
	if (++state[4] % limit)
		cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

static cudaGraphExec_t for_device(cudaGraph_t graph)
{
	cudaGraphExec_t exec;

	CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch));
	CHECK(cudaGraphUpload(exec, 0));
	return exec;
}

static cudaGraphExec_t counter(int *state, int where, unsigned threads)
{
	cudaGraph_t graph = make_graph();
	cudaGraphExec_t exec;

	add_kernel(graph, {add_kernel(graph, {}, count, 1, threads, state, where)}, count, 1,
		   threads, state, where);
	exec = for_device(graph);
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

int main()
{
	int *state = allocate<int>(5);
	cudaGraphExec_t one = counter(state, 1, 32), sibling = counter(state, 2, 64),
			tail = counter(state, 3, 96), exec;
	cudaGraph_t graph = make_graph();

	CHECK(cudaDeviceSynchronize());
	add_kernel(graph, {}, launch, 1, 1, one, sibling, tail, state);
	launch_graph(graph, 1);
	print_numbers("launched by a kernel", state, 5);
	CHECK(cudaGraphDestroy(graph));

	graph = make_graph();
	add_kernel(graph, {}, again, 1, 1, state, 10);
	exec = for_device(graph);
	for (int i = 0; i < 2; i++) {
		CHECK(cudaGraphLaunch(exec, 0));
		print_numbers("launched by itself", state, 5);
	}
	return 0;
}
