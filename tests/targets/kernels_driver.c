/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. Kernels of the usual kinds through the driver API, each against the same
 * thing in C.
 *
 *   kernels_driver [--dump FILE] [--image FILE] [--global NAME] reduceSum | histogram |
 *   matrixMultiply | stencil | warpFunctions | math64 | functions
 *
 * Prints "NAME threads=N PASS" (or FAIL and where) and exits 0 (1). --dump writes the result
 * memory, for a comparison of two runs. --image loads another image than its own (PTX or fatbin
 * with the same kernels); --global prints a 64-bit variable of the module afterwards.
 */

#include <math.h>
#include <string.h>

#include "driver.h"

extern const unsigned char kernels_image[];

struct run {
	unsigned int grid[2], block[2], shared;
	int n;
	void *inputs[2], *output, *expected;
	size_t input_size[2], output_size;
};

static void *room(size_t size) {
	void *p = calloc(1, size);

	if (!p)
		exit(1);
	return p;
}

static uint64_t next_random(uint64_t *state) {
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 11 ^ *state << 23;
}

/* Memory for inputs, output and what is expected. */
static void allocate(struct run *run, size_t first, size_t second, size_t output) {
	run->input_size[0] = first;
	run->input_size[1] = second;
	run->output_size = output;
	run->inputs[0] = first ? room(first) : NULL;
	run->inputs[1] = second ? room(second) : NULL;
	run->output = room(output);
	run->expected = room(output);
}

static void reduce_sum(struct run *run) {
	float *in, *out;

	run->n = 10000;
	run->block[0] = 256;
	run->grid[0] = 40;
	allocate(run, run->n * 4, 0, run->grid[0] * 4);
	in = run->inputs[0];
	out = run->expected;
	for (int i = 0; i < run->n; i++) {
		in[i] = (float)(i % 13);
		out[i / 256] += in[i];
	}
}

static void histogram(struct run *run) {
	unsigned char *in;
	uint64_t state = 1;

	run->n = 100000;
	run->block[0] = 128;
	run->grid[0] = 20;
	allocate(run, run->n, 0, 64 * 4);
	in = run->inputs[0];
	for (int i = 0; i < run->n; i++) {
		in[i] = next_random(&state);
		((unsigned int *)run->expected)[in[i] & 63]++;
	}
}

static void matrix_multiply(struct run *run) {
	float *a, *b, *c;
	int n = 64;

	run->n = n;
	run->block[0] = run->block[1] = 16;
	run->grid[0] = run->grid[1] = n / 16;
	allocate(run, n * n * 4, n * n * 4, n * n * 4);
	a = run->inputs[0];
	b = run->inputs[1];
	c = run->expected;
	for (int i = 0; i < n * n; i++) {
		a[i] = (float)(i % 7 - 3);
		b[i] = (float)(i % 5 - 2);
	}
	for (int row = 0; row < n; row++)
		for (int column = 0; column < n; column++)
			for (int k = 0; k < n; k++)
				c[row * n + column] += a[row * n + k] * b[k * n + column];
}

static void stencil(struct run *run) {
	int *in, *out;

	run->n = 5000;
	run->block[0] = 128;
	run->grid[0] = 40;
	run->shared = (128 + 6) * 4;
	allocate(run, run->n * 4, 0, run->n * 4);
	in = run->inputs[0];
	out = run->expected;
	for (int i = 0; i < run->n; i++)
		in[i] = i * 7919 % 1009;
	for (int i = 0; i < run->n; i++)
		for (int k = -3; k <= 3; k++)
			out[i] += i + k >= 0 && i + k < run->n ? in[i + k] : 0;
}

static void warp_expect(const int *in, int lane, int *out) {
	unsigned int odd = 0, same = 0, low = 0, high = 0;
	int any = 0, all = 1, all_same = 1;

	for (int k = 0; k < 32; k++) {
		out[0] += in[k];
		out[1] += k <= lane ? in[k] : 0;
		odd |= (unsigned int)(in[k] & 1) << k;
		any |= in[k] == 77;
		all &= in[k] >= 0;
		same |= (unsigned int)(in[k] % 4 == in[lane] % 4) << k;
		all_same &= in[k] / 100000 == in[0] / 100000;
		low += k < 16 && in[k] & 2;
		high += k >= 16 && in[k] & 4;
	}
	out[2] = in[(lane & 24) + ((lane + 5) & 7)];
	out[3] = lane + 3 < 32 ? in[lane + 3] : in[lane];
	out[4] = (int)odd;
	out[5] = any + 2 * all;
	out[6] = (int)same;
	out[7] = all_same + 2 * (int)(lane < 16 ? low : high);
}

static void warp_functions(struct run *run) {
	uint64_t state = 7;
	int threads = 256;
	int *in;

	run->block[0] = 128;
	run->grid[0] = 2;
	allocate(run, threads * 4, 0, threads * 8 * 4);
	in = run->inputs[0];
	for (int i = 0; i < threads; i++)
		in[i] = (int)(next_random(&state) % 150000) - (i >= 128 ? 1000 : 0);
	in[40] = 77;
	for (int i = 0; i < threads; i++)
		warp_expect(in + (i & ~31), i & 31, (int *)run->expected + 8 * i);
}

static uint64_t reverse_bits(uint64_t value) {
	uint64_t result = 0;

	for (int n = 0; n < 64; n++)
		result |= (value >> n & 1) << (63 - n);
	return result;
}

static uint64_t bits_of(double value) {
	uint64_t bits;

	memcpy(&bits, &value, 8);
	return bits;
}

static void math_expect(int64_t a, int64_t b, uint64_t *out) {
	double x = (double)a, y = (double)b;

	out[0] = (uint64_t)(a / b);
	out[1] = (uint64_t)(a % b);
	out[2] = (uint64_t)a / (uint64_t)b + (uint64_t)(((__int128)a * b) >> 64) +
		 (uint64_t)(((unsigned __int128)(uint64_t)a * (uint64_t)b) >> 64);
	out[3] = ((uint64_t)a << (b & 63)) ^ (uint64_t)(a >> (b & 63)) ^ reverse_bits((uint64_t)a);
	out[4] = (uint64_t)__builtin_popcountll((uint64_t)a) << 32 |
		 (uint64_t)(a ? __builtin_clzll((uint64_t)a) : 64) << 8 |
		 (uint64_t)__builtin_ffsll(b);
	out[5] = bits_of(x / y + sqrt(fabs(x)));
	out[6] = (uint64_t)(int64_t)(x * 0.001) + (uint64_t)(unsigned int)(float)(a & 0xffff);
	out[7] = bits_of(fma(x, y, 1.0)) ^ (uint64_t)(a < b ? 1 : 2);
}

static void math64(struct run *run) {
	uint64_t state = 3;
	int64_t *in;

	run->n = 1000;
	run->block[0] = 96;
	run->grid[0] = 11;
	allocate(run, run->n * 8, 0, run->n * 64);
	in = run->inputs[0];
	for (int i = 0; i < run->n; i++)
		in[i] = (int64_t)next_random(&state) >> (i % 48);
	in[0] = 0;
	for (int i = 0; i < run->n; i++)
		math_expect(in[i], in[run->n - 1 - i] | 1, (uint64_t *)run->expected + 8 * i);
}

static int fibonacci(int n) {
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static int functions_expect(int i) {
	static const int factors[8] = { 3, 1, 4, 1, 5, 9, 2, 6 }, table[4] = { 10, 20, 30, 40 };
	int local[16], sum = 0;

	for (int k = 0; k < 16; k++)
		local[(k * 7 + i) & 15] = k * i;
	for (int k = 0; k < 16; k++)
		sum += local[k] * factors[(k + i) & 7];
	switch (i % 6) {
	case 0:
		return sum + fibonacci(i % 12);
	case 1:
		return sum + (i & 1 ? i * i : 2 * i);
	case 2:
		return sum + (i >> 1 & 1 ? i * i : 2 * i);
	case 3:
		return sum - table[i & 3];
	case 4:
		return sum ^ 0x55;
	default:
		return -sum;
	}
}

static void functions(struct run *run) {
	run->n = 1000;
	run->block[0] = 64;
	run->grid[0] = 16;
	allocate(run, 0, 0, run->n * 4);
	for (int i = 0; i < run->n; i++)
		((int *)run->expected)[i] = functions_expect(i);
}

static const struct {
	const char *name;
	void (*prepare)(struct run *run);
	bool has_n;
} kernels[] = {
	{ "reduceSum", reduce_sum, true },
	{ "histogram", histogram, true },
	{ "matrixMultiply", matrix_multiply, true },
	{ "stencil", stencil, true },
	{ "warpFunctions", warp_functions, false },
	{ "math64", math64, true },
	{ "functions", functions, true },
};

/* Launches the kernel on copies of the inputs and fetches its output. */
static void execute(struct run *run, CUmodule module, const char *name, bool has_n) {
	CUdeviceptr memory[3] = { 0 };
	void *arguments[5];
	CUfunction function;
	int count = 0;

	for (int k = 0; k < 2; k++) {
		if (!run->inputs[k])
			continue;
		CHECK(driver.mem_alloc(&memory[k], run->input_size[k]));
		CHECK(driver.memcpy_to_device(memory[k], run->inputs[k], run->input_size[k]));
		arguments[count++] = &memory[k];
	}
	CHECK(driver.mem_alloc(&memory[2], run->output_size));
	CHECK(driver.memset_d8(memory[2], 0, run->output_size));
	arguments[count++] = &memory[2];
	if (has_n)
		arguments[count++] = &run->n;
	CHECK(driver.module_get_function(&function, module, name));
	CHECK(driver.launch_kernel(function, run->grid[0], run->grid[1], 1, run->block[0],
				   run->block[1], 1, run->shared, NULL, arguments, NULL));
	CHECK(driver.ctx_synchronize());
	CHECK(driver.memcpy_to_host(run->output, memory[2], run->output_size));
	for (int k = 0; k < 3; k++)
		if (memory[k])
			CHECK(driver.mem_free(memory[k]));
}

static uint64_t read_global(CUmodule module, const char *name) {
	CUdeviceptr address;
	uint64_t value = 0;
	size_t size;

	CHECK(driver.module_get_global(&address, &size, module, name));
	if (size != sizeof(value)) {
		fprintf(stderr, "kernels_driver: %s has %zu bytes\n", name, size);
		exit(1);
	}
	CHECK(driver.memcpy_to_host(&value, address, sizeof(value)));
	return value;
}

/* A file with a NUL behind it; exits if it cannot be read. */
static char *read_image(const char *path) {
	FILE *file = fopen(path, "rb");
	long size = -1;
	char *data;

	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	if (size < 0) {
		perror(path);
		exit(1);
	}
	rewind(file);
	data = room((size_t)size + 1);
	if (fread(data, 1, (size_t)size, file) != (size_t)size) {
		perror(path);
		exit(1);
	}
	fclose(file);
	return data;
}

int main(int argc, char **argv) {
	struct run run = { .grid = { 1, 1 }, .block = { 1, 1 } };
	const char *dump = NULL, *name = NULL, *image = NULL, *global = NULL;
	size_t at, which = 0;
	CUmodule module;
	bool right;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--dump") && i + 1 < argc)
			dump = argv[++i];
		else if (!strcmp(argv[i], "--image") && i + 1 < argc)
			image = argv[++i];
		else if (!strcmp(argv[i], "--global") && i + 1 < argc)
			global = argv[++i];
		else
			name = argv[i];
	}
	while (name && which < sizeof(kernels) / sizeof(kernels[0]) &&
	       strcmp(kernels[which].name, name))
		which++;
	if (!name || which == sizeof(kernels) / sizeof(kernels[0])) {
		fprintf(stderr, "kernels_driver: which kernel?\n");
		return 2;
	}
	kernels[which].prepare(&run);
	driver_start(false);
	image = image ? read_image(image) : (const char *)kernels_image;
	CHECK(driver.module_load_data(&module, image));
	execute(&run, module, name, kernels[which].has_n);
	driver_dump(dump, run.output, run.output_size);
	for (at = 0;
	     at < run.output_size && ((char *)run.output)[at] == ((char *)run.expected)[at];)
		at++;
	right = at == run.output_size &&
		(strcmp(name, "functions") || read_global(module, "calls") == (uint64_t)run.n);
	if (!right)
		fprintf(stderr, "%s: the result is wrong at byte %zu of %zu\n", name, at,
			run.output_size);
	if (global)
		printf("%s=%llu\n", global, (unsigned long long)read_global(module, global));
	CHECK(driver.module_unload(module));
	printf("%s threads=%u %s\n", name, run.grid[0] * run.grid[1] * run.block[0] * run.block[1],
	       right ? "PASS" : "FAIL");
	if (image != (const char *)kernels_image)
		free((void *)image);
	free(run.inputs[0]);
	free(run.inputs[1]);
	free(run.output);
	free(run.expected);
	return right ? 0 : 1;
}
