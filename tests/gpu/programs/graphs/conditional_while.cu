// SPDX-License-Identifier: Apache-2.0
// A WHILE node: Collatz steps until 1, the loop's kernel sets the condition.
#include "graph.h"

__global__ void begin(cudaGraphConditionalHandle handle, unsigned long long *number, int *steps,
		      unsigned long long from)
{
	*number = from;
	*steps = 0;
	cudaGraphSetConditional(handle, from != 1);
}

__global__ void step(cudaGraphConditionalHandle handle, unsigned long long *number, int *steps)
{
	*number = *number % 2 ? 3 * *number + 1 : *number / 2;
	++*steps;
	cudaGraphSetConditional(handle, *number != 1);
}

__global__ void square(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = values[i] * values[i] + i;
}

int main()
{
	unsigned long long *number = allocate<unsigned long long>(1);
	int *steps = allocate<int>(1);
	unsigned *values = numbers(4096);

	for (unsigned long long from : {27ull, 1ull, 97ull, 871ull}) {
		cudaGraph_t graph = make_graph(), *body;
		cudaGraphConditionalHandle handle = condition(graph);
		cudaGraphNode_t first = add_kernel(graph, {}, begin, 1, 1, handle, number, steps,
						   from),
				next;

		body = add_conditional(graph, {first}, handle, cudaGraphCondTypeWhile);
		next = add_kernel(body[0], {}, square, 16, 256, values);
		add_kernel(body[0], {next}, step, 1, 1, handle, number, steps);
		launch_graph(graph, 2);
		print_numbers("steps", steps, 1);
		CHECK(cudaGraphDestroy(graph));
	}
	print_result("squares", values, 4096);
	return 0;
}
