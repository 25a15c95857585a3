/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a list of names: what is given out lies in it and ends there, and a
 * good list is read to its end.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/name-list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct name_list names;
	const char *name;
	uint32_t index;
	int r;

	name_list_init(&names, data, size);
	while (!(r = name_list_next_module(&names))) {
		uint32_t count = 0;

		while (!name_list_next(&names, &name, &index)) {
			if (index != count++ || (const uint8_t *)name < data ||
			    (const uint8_t *)name + strlen(name) >= names.position)
				abort();
		}
		if (count != names.module.name_count || names.position > data + size)
			abort();
	}
	if (r == NAME_LIST_E_END ? names.position != data + size : !names.what)
		abort();
	return 0;
}
