// SPDX-License-Identifier: Apache-2.0
// Graphs made node by node.
#pragma once
#include <initializer_list>
#include <tuple>
#include "../result.h"

typedef std::initializer_list<cudaGraphNode_t> after;

inline cudaGraphNode_t add_node(cudaGraph_t graph, after nodes, cudaGraphNodeParams *params) {
	cudaGraphNode_t node;

	CHECK(cudaGraphAddNode(&node, graph, nodes.begin(), nullptr, nodes.size(), params));
	return node;
}

template <class... P, class... A>
cudaGraphNode_t add_kernel(cudaGraph_t graph, after nodes, void (*kernel)(P...), unsigned grid,
			   unsigned block, A... arguments) {
	cudaGraphNodeParams params = { cudaGraphNodeTypeKernel };
	std::tuple<P...> values(arguments...);

	return std::apply(
		[&](auto &...value) {
			void *pointers[] = { &value... };

			params.kernel.func = (void *)kernel;
			params.kernel.gridDim = dim3(grid);
			params.kernel.blockDim = dim3(block);
			params.kernel.kernelParams = pointers;
			return add_node(graph, nodes, &params);
		},
		values);
}

inline cudaGraphNode_t add_child(cudaGraph_t graph, after nodes, cudaGraph_t child) {
	cudaGraphNodeParams params = { cudaGraphNodeTypeGraph };

	params.graph.graph = child;
	return add_node(graph, nodes, &params);
}

inline cudaGraphConditionalHandle condition(cudaGraph_t graph, unsigned value = 0) {
	cudaGraphConditionalHandle handle;

	CHECK(cudaGraphConditionalHandleCreate(&handle, graph, value, cudaGraphCondAssignDefault));
	return handle;
}

/* Returns the array of `size` bodies, which the driver owns. */
inline cudaGraph_t *add_conditional(cudaGraph_t graph, after nodes,
				    cudaGraphConditionalHandle handle,
				    cudaGraphConditionalNodeType type, unsigned size = 1,
				    cudaGraphNode_t *made = nullptr) {
	cudaGraphNodeParams params = { cudaGraphNodeTypeConditional };
	cudaGraphNode_t node;

	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	node = add_node(graph, nodes, &params);
	if (made)
		*made = node;
	return params.conditional.phGraph_out;
}

inline cudaGraph_t make_graph() {
	cudaGraph_t graph;

	CHECK(cudaGraphCreate(&graph, 0));
	return graph;
}

inline void launch_graph(cudaGraph_t graph, int launches = 1) {
	cudaGraphExec_t exec;

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < launches; i++)
		CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaGraphExecDestroy(exec));
}

/* Prints integers that the device has written. */
inline void print_numbers(const char *name, const int *device, int count) {
	std::vector<int> values(count);

	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(values.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost));
	printf("%s:", name);
	for (int value : values)
		printf(" %d", value);
	printf("\n");
	first_result();
}
