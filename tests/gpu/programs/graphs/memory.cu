// SPDX-License-Identifier: Apache-2.0
// Memory that a graph allocates and frees: by nodes, and by captured cudaMallocAsync and
// cudaFreeAsync.
#include "graph.h"

#define COUNT (1 << 18)

__global__ void produce(unsigned *out, unsigned seed)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = i * 2654435761u ^ seed;
}

__global__ void consume(const unsigned *in, unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] += in[COUNT - 1 - i];
}

static void by_nodes(unsigned *out)
{
	cudaGraphNodeParams alloc = {cudaGraphNodeTypeMemAlloc},
			    release = {cudaGraphNodeTypeMemFree};
	cudaGraph_t graph = make_graph();
	cudaGraphExec_t exec;
	cudaGraphNode_t node;

	alloc.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
	alloc.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
	alloc.alloc.bytesize = COUNT * sizeof(unsigned);
	node = add_node(graph, {}, &alloc);
	node = add_kernel(graph, {node}, produce, COUNT / 256, 256, (unsigned *)alloc.alloc.dptr,
			  17u);
	node = add_kernel(graph, {node}, consume, COUNT / 256, 256, (unsigned *)alloc.alloc.dptr,
			  out);
	release.free.dptr = alloc.alloc.dptr;
	add_node(graph, {node}, &release);
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		CHECK(cudaGraphLaunch(exec, 0));
	print_result("memory nodes", out, COUNT);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
}

static void by_capture(unsigned *out)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	unsigned *memory;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (unsigned i = 0; i < 2; i++) {
		CHECK(cudaMallocAsync(&memory, COUNT * sizeof(unsigned), stream));
		produce<<<COUNT / 256, 256, 0, stream>>>(memory, i);
		consume<<<COUNT / 256, 256, 0, stream>>>(memory, out);
		CHECK(cudaFreeAsync(memory, stream));
	}
	CHECK(cudaStreamEndCapture(stream, &graph));
	launch_graph(graph, 2);
	print_result("captured allocations", out, COUNT);
	CHECK(cudaGraphDestroy(graph));
}

int main()
{
	unsigned *out = allocate<unsigned>(COUNT);

	by_nodes(out);
	by_capture(out);
	return 0;
}
