// SPDX-License-Identifier: Apache-2.0
/*
 * What a counter at a kernel's entry costs: bare, with gpuprobe's probe, and with the same counter written by
 * hand in CUDA, interleaved in one process.
 *
 *   counter [--rounds N]     (run under the shim with a counter attached to `vectorAdd`)
 *
 * All three kernels have the same body and live in one module; only `vectorAdd` matches the attachment.
 * Each sample is one replay of a CUDA graph of many launches; the figure is the median over the rounds, in
 * microseconds a launch. Prints one JSON object; "launches" is how often vectorAdd ran per size, so that the driver can
 * check that the map holds threads x launches.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
	do {                                                                                     \
		cudaError_t error_ = (call);                                                     \
		if (error_ != cudaSuccess) {                                                     \
			fprintf(stderr, "counter: %s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

typedef unsigned long long u64;

/* The hand-written counter: one slot per SM on a line of its own, one atomic per warp. */
#define SLOT_STRIDE 16
__device__ u64 hand_slots[256 * SLOT_STRIDE];

__device__ __forceinline__ void hand_count(void)
{
	unsigned lane, sm, mask = __activemask();

	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
	if (lane == __ffs(mask) - 1)
		atomicAdd(hand_slots + (sm & 255) * SLOT_STRIDE, (u64)__popc(mask));
}

__global__ void vectorAdd(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	c[i] = a[i] + b[i];
}

__global__ void bareAdd(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	c[i] = a[i] + b[i];
}

__global__ void handAdd(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	hand_count();
	c[i] = a[i] + b[i];
}

enum { BARE, OURS, HAND, VARIANTS };

static cudaGraphExec_t build(int variant, int nodes, unsigned grid, unsigned block, const float *a,
			     const float *b, float *c, cudaStream_t stream)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < nodes; i++) {
		if (variant == BARE)
			bareAdd<<<grid, block, 0, stream>>>(a, b, c);
		else if (variant == OURS)
			vectorAdd<<<grid, block, 0, stream>>>(a, b, c);
		else
			handAdd<<<grid, block, 0, stream>>>(a, b, c);
	}
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

static double median(std::vector<float> &values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {32, 1024, 10240, 102400, 1048576, 16777216};
	int rounds = argc > 2 && !strcmp(argv[1], "--rounds") ? atoi(argv[2]) : 31;
	size_t most = sizes[5];
	float *a, *b, *c;
	cudaStream_t stream;
	cudaEvent_t start, stop;

	CHECK(cudaMalloc(&a, most * sizeof(float)));
	CHECK(cudaMalloc(&b, most * sizeof(float)));
	CHECK(cudaMalloc(&c, most * sizeof(float)));
	CHECK(cudaMemset(a, 0, most * sizeof(float)));
	CHECK(cudaMemset(b, 0, most * sizeof(float)));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&stop));

	u64 total_ours = 0, total_hand = 0;
	printf("{\"benchmark\": \"counter\", \"unit\": \"us per launch, median\", \"rounds\": %d, \"sizes\": [", rounds);
	for (int s = 0; s < 6; s++) {
		unsigned block = sizes[s] < 256 ? sizes[s] : 256, grid = sizes[s] / block;
		int nodes = sizes[s] > 1000000 ? (sizes[s] > 10000000 ? 20 : 50) : 200;
		cudaGraphExec_t exec[VARIANTS];
		std::vector<float> times[VARIANTS];

		for (int v = 0; v < VARIANTS; v++)
			exec[v] = build(v, nodes, grid, block, a, b, c, stream);
		for (int r = -3; r < rounds; r++)
			for (int k = 0; k < VARIANTS; k++) {
				int v = (k + r + 3) % VARIANTS; /* each goes first equally often */
				float ms;

				CHECK(cudaEventRecord(start, stream));
				CHECK(cudaGraphLaunch(exec[v], stream));
				CHECK(cudaEventRecord(stop, stream));
				CHECK(cudaEventSynchronize(stop));
				CHECK(cudaEventElapsedTime(&ms, start, stop));
				if (r >= 0)
					times[v].push_back(ms * 1000 / nodes);
			}
		for (int v = 0; v < VARIANTS; v++)
			CHECK(cudaGraphExecDestroy(exec[v]));
		u64 launches = (u64)nodes * (rounds + 3);
		total_ours += launches * sizes[s];
		total_hand += launches * sizes[s];
		double bare = median(times[BARE]), ours = median(times[OURS]), hand = median(times[HAND]);
		printf("%s\n  {\"threads\": %zu, \"ours_to_bare\": %.4f, \"ours_to_hand\": %.4f, \"hand_to_bare\": %.4f, "
		       "\"bare_us\": %.3f, \"ours_us\": %.3f, \"hand_us\": %.3f, \"launches\": %llu}",
		       s ? "," : "", sizes[s], ours / bare, ours / hand, hand / bare, bare, ours, hand, launches);
	}

	std::vector<u64> slot_values(256 * SLOT_STRIDE);
	CHECK(cudaMemcpyFromSymbol(slot_values.data(), hand_slots, slot_values.size() * sizeof(u64)));
	u64 counted = 0;
	for (u64 value : slot_values)
		counted += value;
	printf("],\n \"expected\": %llu, \"hand_counted\": %llu}\n", total_ours, counted);
	return counted == total_hand ? 0 : 1;
}
