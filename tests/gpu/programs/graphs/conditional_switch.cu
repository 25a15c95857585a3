// SPDX-License-Identifier: Apache-2.0
// A SWITCH node of five bodies: which one runs, a kernel says; beyond the last, none does.
#include "graph.h"

__global__ void choose(cudaGraphConditionalHandle handle, int *state)
{
	cudaGraphSetConditional(handle, (state[0]++ * 5 + 3) % 7);
}

__global__ void branch(int *state, int which)
{
	if (threadIdx.x == 0)
		state[1 + which]++;
	atomicAdd(&state[6], which * 10);
}

int main()
{
	cudaGraph_t graph = make_graph(), *bodies;
	int *state = allocate<int>(8);
	cudaGraphConditionalHandle handle = condition(graph);
	cudaGraphNode_t first = add_kernel(graph, {}, choose, 1, 1, handle, state);
	cudaGraphExec_t exec;

	bodies = add_conditional(graph, {first}, handle, cudaGraphCondTypeSwitch, 5);
	for (int i = 0; i < 5; i++)
		add_kernel(bodies[i], {}, branch, 1, 32, state, i);
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 21; i++) {
		CHECK(cudaGraphLaunch(exec, 0));
		print_numbers("launched, taken", state, 7);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
