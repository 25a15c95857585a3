/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a list of names: what is given out lies in it and ends there, and a
 * good list is read to its end.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/patch-names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct patch_names names;
	const char *name;
	uint32_t index;
	int r;

	patch_names_init(&names, data, size);
	while (!(r = patch_names_next_module(&names))) {
		uint32_t count = 0;

		while (!patch_names_next(&names, &name, &index)) {
			if (index != count++ || (const uint8_t *)name < data ||
			    (const uint8_t *)name + strlen(name) >= names.position)
				abort();
		}
		if (count != names.module.name_count || names.position > data + size)
			abort();
	}
	if (r == PATCH_NAMES_E_END ? names.position != data + size : !names.what)
		abort();
	return 0;
}
