// SPDX-License-Identifier: Apache-2.0
// For programs that tests/gpu/harmless.py runs bare and in each mode: their standard output must
// stay the same, byte by byte. Standard error has one line: the milliseconds from the start of the
// program to its first result.
#pragma once
#include <chrono>
#include "checksum.h"

/* A call of a library or of the driver: their statuses are numbers, and 0 is success. */
#define OK(call)                                                                             \
	do {                                                                                 \
		int status_ = (int)(call);                                                   \
		if (status_) {                                                               \
			fprintf(stderr, "%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, \
				status_);                                                    \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* The same for a call that a library may not support everywhere: then its status is the result. */
#define TRY(call)                                                  \
	do {                                                       \
		int status_ = (int)(call);                         \
		if (status_)                                       \
			printf("%s: status %d\n", #call, status_); \
	} while (0)

static const auto program_start = std::chrono::steady_clock::now();

/* Call it where the first result of the GPU has reached the host; later calls do nothing. */
inline void first_result() {
	static bool told;

	if (!told)
		fprintf(stderr, "first result: %.1f ms\n",
			std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() -
								  program_start)
				.count());
	told = true;
}

/* The program needs something that is not on this machine. The harness shows the reason. */
[[noreturn]] inline void skip(const char *what) {
	printf("skipped: no %s\n", what);
	exit(77);
}

/* Prints a hash of the bytes of an array in device memory. */
template <class T> void print_result(const char *name, const T *device, size_t count) {
	CHECK(cudaDeviceSynchronize());
	print_checksum(name, device, count);
	first_result();
}

/* For floating point that may change in the last bit when its kernel is compiled again ("float" in
 * the harness): hash and some values. */
template <class T> void print_floats(const char *name, const T *device, size_t count) {
	std::vector<T> values(count);

	printf("float ");
	print_result(name, device, count);
	CHECK(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < 8; i++)
		printf("~%zu %s %a\n", 8 * sizeof(T), name, (double)values[i * (count - 1) / 7]);
}

/* Small whole numbers that look random: sums and products of them are exact in any order. */
template <class T> __global__ void fill_small(T *out, size_t count, int modulus) {
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned x = (unsigned)i * 2654435761u + 12345u;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	x ^= x >> 12;
	if (i < count)
		out[i] = T((int)(x % modulus) - modulus / 2);
}

template <class T> T *small_numbers(size_t count, int modulus = 7) {
	T *memory = allocate<T>(count);

	fill_small<<<(unsigned)((count + 255) / 256), 256>>>(memory, count, modulus);
	CHECK(cudaGetLastError());
	return memory;
}
