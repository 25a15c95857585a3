/* SPDX-License-Identifier: Apache-2.0 */

/* Fuzz target. Any bytes as a cubin: names that are found lie inside the file and end there. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/compiler/cubin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct cubin cubin;

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
