/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Workers' lists of instructions: every element that is handed out is an object, and
 * no more of them than there are '{'.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/control/kernels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_item(json_object *item, void *userdata) {
	if (!json_object_is_type(item, json_type_object))
		abort();
	++*(size_t *)userdata;
	return json_object_object_get_ex(item, "stop", NULL) ? KERNELS_E_LIMIT : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char *copy = malloc(size ? size : 1); /* without a NUL behind it */
	size_t items = 0, braces = 0;
	int r;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	for (size_t i = 0; i < size; i++)
		braces += copy[i] == '{';
	r = kernels_walk(copy, size, on_item, &items);
	if ((r != 0 && r != KERNELS_E_INVALID && r != KERNELS_E_LIMIT) || items > braces)
		abort();
	free(copy);
	return 0;
}
