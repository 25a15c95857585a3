// SPDX-License-Identifier: Apache-2.0
// Conditional nodes within conditional nodes: WHILE around SWITCH around IF.
#include "graph.h"

__global__ void begin(cudaGraphConditionalHandle loop, int *state)
{
	state[0] = 0;
	cudaGraphSetConditional(loop, 1);
}

__global__ void choose(cudaGraphConditionalHandle which, cudaGraphConditionalHandle odd, int *state)
{
	cudaGraphSetConditional(which, state[0] % 3);
	cudaGraphSetConditional(odd, state[0] & 1);
}

__global__ void count(int *state, int where)
{
	atomicAdd(&state[where], 1);
}

__global__ void next(cudaGraphConditionalHandle loop, int *state)
{
	cudaGraphSetConditional(loop, ++state[0] < 20);
}

int main()
{
	cudaGraph_t graph = make_graph(), *loop_body, *bodies, *odd_body;
	int *state = allocate<int>(6);
	cudaGraphConditionalHandle loop = condition(graph), which = condition(graph),
				   odd = condition(graph);
	cudaGraphNode_t first = add_kernel(graph, {}, begin, 1, 1, loop, state), chosen, branched;

	loop_body = add_conditional(graph, {first}, loop, cudaGraphCondTypeWhile);
	chosen = add_kernel(loop_body[0], {}, choose, 1, 1, which, odd, state);
	bodies = add_conditional(loop_body[0], {chosen}, which, cudaGraphCondTypeSwitch, 3,
				 &branched);
	for (int i = 0; i < 2; i++)
		add_kernel(bodies[i], {}, count, 1, 8, state, 1 + i);
	odd_body = add_conditional(bodies[2], {}, odd, cudaGraphCondTypeIf, 2);
	add_kernel(odd_body[0], {}, count, 1, 16, state, 3);
	add_kernel(odd_body[1], {}, count, 1, 32, state, 4);
	add_kernel(loop_body[0], {branched}, next, 1, 1, loop, state);
	for (int launches : {1, 3}) {
		launch_graph(graph, launches);
		print_numbers("nested", state, 6);
	}
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
