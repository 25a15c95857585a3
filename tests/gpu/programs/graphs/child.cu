// SPDX-License-Identifier: Apache-2.0
// Graphs inside graphs: child nodes, children of children, and a child in the body of a conditional
// node.
#include "graph.h"

__global__ void mix(unsigned *values, unsigned by)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = (values[i] ^ by) * 2654435761u + i;
}

__global__ void loop(cudaGraphConditionalHandle handle, int *state, int limit)
{
	cudaGraphSetConditional(handle, ++*state < limit);
}

int main()
{
	unsigned *values = numbers(1 << 16);
	int *state = allocate<int>(1);
	cudaGraph_t inner = make_graph(), middle = make_graph(), outer = make_graph(), *body;
	cudaGraphConditionalHandle handle = condition(outer);
	cudaGraphNode_t node;

	node = add_kernel(inner, {}, mix, 256, 256, values, 1u);
	add_kernel(inner, {node}, mix, 256, 256, values, 2u);
	node = add_child(middle, {}, inner);
	add_child(middle, {node}, inner);
	launch_graph(middle, 2);
	print_result("child", values, 1 << 16);

	node = add_child(outer, {}, middle);
	node = add_kernel(outer, {node}, loop, 1, 1, handle, state, 4);
	body = add_conditional(outer, {node}, handle, cudaGraphCondTypeWhile);
	node = add_child(body[0], {}, inner);
	add_kernel(body[0], {node}, loop, 1, 1, handle, state, 4);
	launch_graph(outer, 1);
	print_numbers("loops", state, 1);
	print_result("child in a conditional", values, 1 << 16);
	CHECK(cudaGraphDestroy(outer));
	CHECK(cudaGraphDestroy(middle));
	CHECK(cudaGraphDestroy(inner));
	return 0;
}
