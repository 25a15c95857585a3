// SPDX-License-Identifier: Apache-2.0
// IF nodes, with one body and with an else, whose condition a kernel sets; the same graph launched
// several times.
#include "graph.h"

__global__ void decide(cudaGraphConditionalHandle handle, int *state, int modulus)
{
	state[0]++;
	cudaGraphSetConditional(handle, state[0] % modulus == 0);
}

__global__ void count(int *state, int where)
{
	atomicAdd(&state[where], 1);
}

static void run(const char *name, unsigned bodies, int modulus, unsigned value)
{
	cudaGraph_t graph = make_graph(), *body;
	int *state = allocate<int>(4);
	cudaGraphConditionalHandle handle = condition(graph, value);
	cudaGraphNode_t first = add_kernel(graph, {}, decide, 1, 1, handle, state, modulus), node;

	body = add_conditional(graph, {first}, handle, cudaGraphCondTypeIf, bodies, &node);
	add_kernel(body[0], {}, count, 2, 32, state, 1);
	if (bodies == 2)
		add_kernel(body[1], {}, count, 3, 32, state, 2);
	add_kernel(graph, {node}, count, 1, 1, state, 3);
	launch_graph(graph, 10);
	print_numbers(name, state, 4);
	CHECK(cudaGraphDestroy(graph));
}

/* Nothing sets the condition: its default holds. */
static void by_default(unsigned value)
{
	cudaGraph_t graph = make_graph(), *body;
	int *state = allocate<int>(1);

	body = add_conditional(graph, {}, condition(graph, value), cudaGraphCondTypeIf);
	add_kernel(body[0], {}, count, 1, 32, state, 0);
	launch_graph(graph, 3);
	print_numbers(value ? "default true" : "default false", state, 1);
	CHECK(cudaGraphDestroy(graph));
}

int main()
{
	run("if, always", 1, 1, 0);
	run("if, every third", 1, 3, 0);
	run("if, default true", 1, 3, 1);
	run("if and else", 2, 4, 0);
	by_default(0);
	by_default(1);
	return 0;
}
