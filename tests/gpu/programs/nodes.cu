// SPDX-License-Identifier: Apache-2.0
// nodes: makes a graph of one kernel node as each line that it reads says, launches it, and answers whether the runtime tells of the node,
// and of its copy, the kernel that is in it ("own"), and how many threads there were so far. A kernel that the runtime does not know is its error.
//   add        by cudaGraphAddKernelNode
//   capture    by a launch into a stream that is being captured
#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void vectorAdd(int *counts)
{
	atomicAdd(counts, 1);
}

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "nodes: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static cudaGraph_t add(int **counts)
{
	void *arguments[] = {counts};
	cudaKernelNodeParams node = {};
	cudaGraphNode_t made;
	cudaGraph_t graph;

	node.func = reinterpret_cast<void *>(vectorAdd);
	node.gridDim = dim3(1);
	node.blockDim = dim3(32);
	node.kernelParams = arguments;
	check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
	check(cudaGraphAddKernelNode(&made, graph, nullptr, 0, &node), "cudaGraphAddKernelNode");
	return graph;
}

static cudaGraph_t capture(int *counts)
{
	cudaStream_t stream;
	cudaGraph_t graph;

	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
	vectorAdd<<<1, 32, 0, stream>>>(counts);
	check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return graph;
}

static bool is_own(cudaGraph_t graph)
{
	cudaKernelNodeParams told = {};
	cudaGraphNode_t node;
	size_t one = 1;

	check(cudaGraphGetNodes(graph, &node, &one), "cudaGraphGetNodes");
	check(cudaGraphKernelNodeGetParams(node, &told), "cudaGraphKernelNodeGetParams");
	check(cudaGraphKernelNodeSetParams(node, &told), "cudaGraphKernelNodeSetParams");
	return told.func == reinterpret_cast<void *>(vectorAdd);
}

int main()
{
	int *counts, threads;
	char line[64];

	check(cudaMalloc(&counts, sizeof(*counts)), "cudaMalloc");
	check(cudaMemset(counts, 0, sizeof(*counts)), "cudaMemset");
	vectorAdd<<<1, 32>>>(counts);
	check(cudaDeviceSynchronize(), "the first launch");
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		cudaGraph_t graph = strcmp(line, "add\n") ? capture(counts) : add(&counts), copy;
		cudaGraphExec_t exec;
		bool own;

		check(cudaGraphClone(&copy, graph), "cudaGraphClone");
		own = is_own(graph) && is_own(copy);
		check(cudaGraphInstantiate(&exec, copy, 0), "cudaGraphInstantiate");
		check(cudaGraphLaunch(exec, 0), "cudaGraphLaunch");
		check(cudaMemcpy(&threads, counts, sizeof(threads), cudaMemcpyDeviceToHost), "cudaMemcpy");
		check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
		check(cudaGraphDestroy(copy), "cudaGraphDestroy");
		check(cudaGraphDestroy(graph), "cudaGraphDestroy");
		printf("{\"own\": %s, \"threads\": %d}\n", own ? "true" : "false", threads);
		fflush(stdout);
	}
	return 0;
}
