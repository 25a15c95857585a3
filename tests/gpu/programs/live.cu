// SPDX-License-Identifier: Apache-2.0
// live THREADS: launches vectorAdd and vectorMul (one module, machine code only) as it is told, a command a line; answers each with a line.
//   add N, mul N    N launches, one after the other: the median time of one in milliseconds
//   small N         N launches of vectorAdd with 32 threads: microseconds of one, as the host sees it
//   memory          bytes of the GPU's memory in use
//   device N        goes on with that device
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

__global__ void vectorMul(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] * b[i];
}

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "live: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static float *a, *b, *c;
static cudaEvent_t begin, end;

static void prepare(int device, int threads)
{
	check(cudaSetDevice(device), "cudaSetDevice");
	check(cudaMalloc(&a, threads * sizeof(float)), "cudaMalloc");
	check(cudaMalloc(&b, threads * sizeof(float)), "cudaMalloc");
	check(cudaMalloc(&c, threads * sizeof(float)), "cudaMalloc");
	check(cudaMemset(a, 0, threads * sizeof(float)), "cudaMemset");
	check(cudaMemset(b, 0, threads * sizeof(float)), "cudaMemset");
	check(cudaEventCreate(&begin), "cudaEventCreate");
	check(cudaEventCreate(&end), "cudaEventCreate");
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1 << 24, count;
	char line[256], word[32];

	prepare(0, threads);
	vectorAdd<<<1, 32>>>(a, b, c, 0);
	vectorMul<<<1, 32>>>(a, b, c, 0);
	check(cudaDeviceSynchronize(), "the first launches");
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		std::vector<float> times;

		count = 0;
		if (sscanf(line, "%31s %d", word, &count) < 1)
			continue;
		if (!strcmp(word, "memory")) {
			size_t available, total;

			check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
			printf("%zu\n", total - available);
		} else if (!strcmp(word, "device")) {
			prepare(count, threads);
			printf("%d\n", count);
		} else if (!strcmp(word, "small")) {
			auto start = std::chrono::steady_clock::now();

			for (int i = 0; i < count; i++)
				vectorAdd<<<1, 32>>>(a, b, c, 32);
			printf("%.4f\n", std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / count);
			check(cudaDeviceSynchronize(), "small launches");
		} else {
			for (int i = 0; i < count; i++) {
				float ms;

				cudaEventRecord(begin);
				if (!strcmp(word, "mul"))
					vectorMul<<<(threads + 255) / 256, 256>>>(a, b, c, threads);
				else
					vectorAdd<<<(threads + 255) / 256, 256>>>(a, b, c, threads);
				cudaEventRecord(end);
				check(cudaEventSynchronize(end), "a launch");
				cudaEventElapsedTime(&ms, begin, end);
				times.push_back(ms);
			}
			std::sort(times.begin(), times.end());
			printf("%.5f\n", times.empty() ? 0 : times[times.size() / 2]);
		}
		fflush(stdout);
	}
	return 0;
}
