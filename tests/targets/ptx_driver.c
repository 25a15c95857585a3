/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. Loads a file of PTX and launches kernels of it, one block of 32 threads each,
 * with a pointer to zeros as every parameter.
 *
 *   ptx_driver FILE KERNEL...
 *
 * Prints "KERNEL words=CHECKSUM" for each and exits 0: the same with and without probes.
 */

#include "driver.h"

#define BYTES (1 << 16)
#define PARAMETERS_MAX 64

static char *read_file(const char *path) {
	char *text = calloc(1, 1 << 20);
	FILE *file = fopen(path, "rb");

	if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(2);
	}
	fclose(file);
	return text;
}

static void launch(CUmodule module, const char *kernel, CUdeviceptr memory) {
	static unsigned words[BYTES / sizeof(unsigned)];
	void *parameters[PARAMETERS_MAX];
	unsigned hash = 0;
	CUfunction function;

	for (size_t i = 0; i < PARAMETERS_MAX; i++)
		parameters[i] = &memory;
	CHECK(driver.memset_d8(memory, 0, BYTES));
	CHECK(driver.module_get_function(&function, module, kernel));
	CHECK(driver.launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	CHECK(driver.ctx_synchronize());
	CHECK(driver.memcpy_to_host(words, memory, BYTES));
	for (size_t i = 0; i < BYTES / sizeof(unsigned); i++)
		hash = hash * 31 + words[i];
	printf("%s words=%u\n", kernel, hash);
}

int main(int argc, char **argv) {
	CUdeviceptr memory;
	CUmodule module;

	if (argc < 3) {
		fprintf(stderr, "usage: ptx_driver FILE KERNEL...\n");
		return 2;
	}
	driver_start(false);
	CHECK(driver.module_load_data(&module, read_file(argv[1])));
	CHECK(driver.mem_alloc(&memory, BYTES));
	for (int i = 2; i < argc; i++)
		launch(module, argv[i], memory);
	CHECK(driver.module_unload(module));
	return 0;
}
