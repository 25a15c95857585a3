// SPDX-License-Identifier: Apache-2.0
// A conditional node in the middle of a capture; its body is captured, too.
#include "graph.h"

__global__ void decide(cudaGraphConditionalHandle handle, int *state)
{
	cudaGraphSetConditional(handle, ++state[0] < 6);
}

__global__ void count(int *state, int where, int by)
{
	atomicAdd(&state[where], by);
}

int main()
{
	cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
	cudaStreamCaptureStatus status;
	cudaGraphConditionalHandle handle;
	const cudaGraphNode_t *nodes;
	const cudaGraphEdgeData *edges;
	cudaStream_t stream, inner;
	cudaGraphNode_t made;
	cudaGraph_t graph;
	size_t number;
	int *state = allocate<int>(4);

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamCreate(&inner));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	count<<<1, 32, 0, stream>>>(state, 1, 1);
	CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &nodes, &edges, &number));
	CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault));
	decide<<<1, 1, 0, stream>>>(handle, state);
	CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &nodes, &edges, &number));
	params.conditional.handle = handle;
	params.conditional.type = cudaGraphCondTypeWhile;
	params.conditional.size = 1;
	CHECK(cudaGraphAddNode(&made, graph, nodes, edges, number, &params));
	CHECK(cudaStreamUpdateCaptureDependencies(stream, &made, nullptr, 1,
						  cudaStreamSetCaptureDependencies));
	CHECK(cudaStreamBeginCaptureToGraph(inner, params.conditional.phGraph_out[0], nullptr,
					    nullptr, 0, cudaStreamCaptureModeThreadLocal));
	count<<<2, 64, 0, inner>>>(state, 2, 3);
	decide<<<1, 1, 0, inner>>>(handle, state);
	CHECK(cudaStreamEndCapture(inner, nullptr));
	count<<<1, 32, 0, stream>>>(state, 3, 5);
	CHECK(cudaStreamEndCapture(stream, &graph));
	for (int launches : {1, 2}) {
		launch_graph(graph, launches);
		print_numbers("captured", state, 4);
	}
	return 0;
}
