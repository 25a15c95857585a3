/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests. Launches one of the kernels of language.cu through the driver API.
 *
 *   language_driver KERNEL [--grid X,Y,Z] [--block X,Y,Z] [--launches N] [--sleep-ms MS] [--shared
 *   BYTES]
 *
 * Prints "KERNEL threads=N launches=N data=CHECKSUM vectors=CHECKSUM" and exits 0: the same with
 * and without probes, as long as threads do not race for the data.
 */

#include <string.h>
#include <time.h>

#include "driver.h"

#define WORDS 1024
#define VECTORS (1 << 20)

extern const unsigned char language_image[];

static void usage(void) {
	fprintf(stderr, "usage: language_driver KERNEL [--grid X,Y,Z] [--block X,Y,Z] [--launches "
			"N] [--sleep-ms MS] [--shared BYTES]\n");
	exit(2);
}

static unsigned long long checksum(CUdeviceptr memory, size_t size) {
	unsigned char *bytes = malloc(size);
	unsigned long long hash = 0xcbf29ce484222325ull;

	if (!bytes)
		exit(1);
	CHECK(driver.memcpy_to_host(bytes, memory, size));
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	free(bytes);
	return hash;
}

static CUdeviceptr zeros(size_t size) {
	CUdeviceptr memory;

	CHECK(driver.mem_alloc(&memory, size));
	CHECK(driver.memset_d8(memory, 0, size));
	return memory;
}

int main(int argc, char **argv) {
	unsigned grid[3] = { 4, 1, 1 }, block[3] = { 64, 1, 1 }, launches = 1, sleep_ms = 0,
		 shared = 0;
	struct {
		unsigned long long first, second;
	} pair = { 0x1122334455667788, 9 };
	unsigned long long a = 0xfedcba9876543210;
	unsigned b = 0x89abcdef;
	unsigned char c = 0xfe;
	short e = -2;
	CUdeviceptr data, vectors;
	CUfunction function;
	CUmodule module;

	if (argc < 2)
		usage();
	for (int i = 2; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--grid"))
			sscanf(argv[i + 1], "%u,%u,%u", &grid[0], &grid[1], &grid[2]);
		else if (!strcmp(argv[i], "--block"))
			sscanf(argv[i + 1], "%u,%u,%u", &block[0], &block[1], &block[2]);
		else if (!strcmp(argv[i], "--launches"))
			launches = (unsigned)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--sleep-ms"))
			sleep_ms = (unsigned)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--shared"))
			shared = (unsigned)atoi(argv[i + 1]);
		else
			usage();
	}
	driver_start(false);
	data = zeros(WORDS * 4);
	vectors = zeros(VECTORS * 16);
	CHECK(driver.module_load_data(&module, language_image));
	CHECK(driver.module_get_function(&function, module, argv[1]));
	for (unsigned i = 0; i < launches; i++) {
		void *plain[] = { &data }, *wide[] = { &vectors, &data },
		     *many[] = { &a, &b, &c, &pair, &e, &data };

		CHECK(driver.launch_kernel(function, grid[0], grid[1], grid[2], block[0], block[1],
					   block[2], shared, NULL,
					   !strcmp(argv[1], "parameters") ? many
					   : !strcmp(argv[1], "accesses") ? wide
									  : plain,
					   NULL));
		CHECK(driver.ctx_synchronize());
		nanosleep(&(struct timespec){ sleep_ms / 1000, sleep_ms % 1000 * 1000000L }, NULL);
	}
	printf("%s threads=%llu launches=%u data=%016llx vectors=%016llx\n", argv[1],
	       1ull * grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2], launches,
	       checksum(data, WORDS * 4), checksum(vectors, VECTORS * 16));
	CHECK(driver.module_unload(module));
	return 0;
}
