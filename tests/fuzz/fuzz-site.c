/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a function's beginning: a site lies within them; and any bytes as a
 * libcuda: its functions lie in the file.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/gpuprobed/trace/source/libcuda.h"
#include "daemon/gpuprobed/trace/source/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_file(const uint8_t *data, size_t size) {
	int fd = memfd_create("libcuda", MFD_CLOEXEC);
	struct libcuda *library;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (libcuda_new(&library, fd, "x"))
		return;
	for (size_t i = 0; i < library->n; i++)
		if (library->functions[i].offset >= size ||
		    strlen(library->functions[i].name) >= LIBCUDA_NAME_MAX)
			abort();
	libcuda_free(library);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	size_t n = size < SITE_BYTES ? size : SITE_BYTES, offset, length;
	uint8_t *bytes = malloc(n + 1);
	bool harmless;

	if (!bytes)
		return 0;
	memcpy(bytes, data, n);
	site_select(bytes, n, &offset);
	length = site_instruction(bytes, n, &harmless);
	if ((offset && offset >= n) || length > n)
		abort();
	free(bytes);
	if (size >= 4 && !memcmp(data,
				 "\x7f"
				 "ELF",
				 4))
		try_file(data, size);
	return 0;
}
