// SPDX-License-Identifier: Apache-2.0
// For programs whose output must be the same bare and probed: errors end the program, results are
// printed as checksums.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                   \
	do {                                                                          \
		cudaError_t error_ = (call);                                          \
		if (error_ != cudaSuccess) {                                          \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				cudaGetErrorString(error_));                          \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* Prints a checksum (FNV-1a) of `count` elements in device memory. */
template <class T> void print_checksum(const char *name, const T *device, size_t count) {
	std::vector<T> values(count);
	unsigned long long hash = 0xcbf29ce484222325ull;

	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < count * sizeof(T); i++)
		hash = (hash ^ ((const unsigned char *)values.data())[i]) * 0x100000001b3ull;
	printf("%s %016llx\n", name, hash);
}

template <class T> T *allocate(size_t count) {
	T *memory;

	CHECK(cudaMalloc(&memory, count * sizeof(T)));
	CHECK(cudaMemset(memory, 0, count * sizeof(T)));
	return memory;
}

/* Numbers that look random and are always the same. */
static __global__ void fill_numbers(unsigned *out, size_t count) {
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned x = (unsigned)i * 2654435761u + 12345u;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	x ^= x >> 12;
	if (i < count)
		out[i] = x;
}

static unsigned *numbers(size_t count) {
	unsigned *memory = allocate<unsigned>(count);

	fill_numbers<<<(unsigned)((count + 255) / 256), 256>>>(memory, count);
	CHECK(cudaGetLastError());
	return memory;
}
