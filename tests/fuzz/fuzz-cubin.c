/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a cubin: names that are found lie inside the file and end there, and so
 * do relocations and what they change.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/compiler/cubin-relocation.h"
#include "daemon/worker/compiler/cubin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_relocations(const uint8_t *data, size_t size) {
	struct cubin_relocations relocations;
	struct cubin_relocation one;
	uint8_t *copy = malloc(size + 1);
	uint64_t value;

	if (!copy)
		return;
	memcpy(copy, data, size);
	if (cubin_relocations_init(&relocations, copy, size))
		while (cubin_relocations_next(&relocations, &one) == 1) {
			if (one.at > size - sizeof(value) || one.entry > size - sizeof(Elf64_Rel))
				abort();
			memcpy(&value, copy + one.at, sizeof(value));
			value += strlen(one.section) + strlen(one.symbol);
			memcpy(copy + one.at, &value, sizeof(value));
			cubin_relocation_drop(copy, &one);
		}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct cubin cubin;

	read_relocations(data, size);
	if (cubin_parse(&cubin, data, size))
		return 0;
	for (size_t i = 0; i < cubin.n_kernels; i++) {
		const uint8_t *name = (const uint8_t *)cubin.kernels[i];

		if (name < data || name + strlen(cubin.kernels[i]) >= data + size)
			abort();
	}
	cubin_deinit(&cubin);
	return 0;
}
