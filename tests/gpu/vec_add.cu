// SPDX-License-Identifier: Apache-2.0
/*
 * The program that the GPU suite probes: c = a + b through the runtime API, compiled by plain nvcc.
 *
 *   vec_add [--threads N] [--block N] [--launches N] [--how launch|graph|capture|threads] [--sleep-ms N] [--dump FILE]
 *
 * Prints "threads=N launches=M first_us=T sum=S PASS" and exits 0; the grid has exactly N threads (N must be a
 * multiple of the block, or the last block is cut by making N = grid * block), so a counter of thread entries reads N * M.
 * --sleep-ms waits between launches, for readers that look while it runs. first_us is the wall time of the first launch
 * and its completion: lazy loading of the module is in it.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <thread>
#include <vector>
#include <unistd.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
	do {                                                                                     \
		cudaError_t error_ = (call);                                                     \
		if (error_ != cudaSuccess) {                                                     \
			fprintf(stderr, "vec_add: %s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

__global__ void vectorAdd(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	c[i] = a[i] + b[i];
}

static void launches(int count, unsigned grid, unsigned block, int sleep_ms, const float *a,
		     const float *b, float *c, cudaStream_t stream)
{
	for (int i = 0; i < count; i++) {
		vectorAdd<<<grid, block, 0, stream>>>(a, b, c);
		CHECK(cudaGetLastError());
		if (sleep_ms) {
			CHECK(cudaStreamSynchronize(stream));
			usleep(sleep_ms * 1000);
		}
	}
}

/* A graph of `count` kernel nodes, built by hand or captured from a stream, launched once. */
static void graph_launches(bool capture, int count, unsigned grid, unsigned block, const float *a,
			   const float *b, float *c, cudaStream_t stream)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	if (capture) {
		CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
		launches(count, grid, block, 0, a, b, c, stream);
		CHECK(cudaStreamEndCapture(stream, &graph));
	} else {
		cudaGraphNode_t last;

		CHECK(cudaGraphCreate(&graph, 0));
		for (int i = 0; i < count; i++) {
			void *args[] = {&a, &b, &c};
			cudaKernelNodeParams params = {};
			cudaGraphNode_t node;

			params.func = (void *)vectorAdd;
			params.gridDim = dim3(grid);
			params.blockDim = dim3(block);
			params.kernelParams = args;
			CHECK(cudaGraphAddKernelNode(&node, graph, i ? &last : NULL, i ? 1 : 0, &params));
			last = node;
		}
	}
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
}

int main(int argc, char **argv)
{
	size_t threads = 1 << 24;
	unsigned block = 256;
	int count = 1, sleep_ms = 0;
	const char *how = "launch", *dump = NULL;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--threads"))
			threads = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--block"))
			block = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--launches"))
			count = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--how"))
			how = argv[i + 1];
		else if (!strcmp(argv[i], "--sleep-ms"))
			sleep_ms = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--dump"))
			dump = argv[i + 1];
		else {
			fprintf(stderr, "vec_add: unknown option %s\n", argv[i]);
			return 2;
		}
	}
	unsigned grid = (threads + block - 1) / block;
	threads = (size_t)grid * block;

	std::vector<float> a(threads), b(threads), c(threads);
	for (size_t i = 0; i < threads; i++) {
		a[i] = (float)(i % 1024);
		b[i] = (float)(i % 7);
	}
	float *da, *db, *dc;
	cudaStream_t stream;
	CHECK(cudaMalloc(&da, threads * sizeof(float)));
	CHECK(cudaMalloc(&db, threads * sizeof(float)));
	CHECK(cudaMalloc(&dc, threads * sizeof(float)));
	CHECK(cudaMemcpy(da, a.data(), threads * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(db, b.data(), threads * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaStreamCreate(&stream));

	auto start = std::chrono::steady_clock::now();
	int left = count;
	double first_us = 0;
	if (!strcmp(how, "launch") || !strcmp(how, "threads")) {
		launches(1, grid, block, 0, da, db, dc, stream);
		CHECK(cudaStreamSynchronize(stream));
		left--;
	} else {
		graph_launches(!strcmp(how, "capture"), count, grid, block, da, db, dc, stream);
		left = 0;
	}
	first_us = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6;
	if (!strcmp(how, "threads")) {
		std::vector<std::thread> workers;

		for (int i = 0; i < 4; i++)
			workers.emplace_back([=] {
				cudaStream_t own;

				CHECK(cudaStreamCreate(&own));
				launches(left / 4 + (i < left % 4), grid, block, sleep_ms, da, db, dc, own);
				CHECK(cudaStreamSynchronize(own));
			});
		for (auto &worker : workers)
			worker.join();
	} else {
		launches(left, grid, block, sleep_ms, da, db, dc, stream);
	}
	CHECK(cudaDeviceSynchronize());

	CHECK(cudaMemcpy(c.data(), dc, threads * sizeof(float), cudaMemcpyDeviceToHost));
	double sum = 0;
	for (size_t i = 0; i < threads; i++) {
		if (c[i] != a[i] + b[i]) {
			fprintf(stderr, "vec_add: wrong result at %zu\n", i);
			return 1;
		}
		sum += c[i];
	}
	if (dump) {
		FILE *file = fopen(dump, "wb");

		if (!file || fwrite(c.data(), sizeof(float), threads, file) != threads || fclose(file)) {
			perror(dump);
			return 1;
		}
	}
	printf("threads=%zu launches=%d first_us=%.0f sum=%.0f PASS\n", threads, count, first_us, sum);
	return 0;
}
