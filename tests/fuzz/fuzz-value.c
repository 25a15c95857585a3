/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Values of maps as gpuprobectl shows them, by BTF that is anybody's (2 bytes of a
 * type's number, 1 of a value's size, then BTF): what a person sees is printable, what a program
 * sees is JSON, and neither takes for ever.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/value-read.h"

#define HEAD 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void show(struct value_types *types, uint32_t type, const unsigned char *value,
		 size_t n_value) {
	json_object *json = value_json(types, type, value, n_value), *again;
	struct json_tokener *tokener;
	char *text = NULL;
	size_t n_text = 0;
	FILE *stream = open_memstream(&text, &n_text);

	if (!json || !stream)
		abort();
	value_print(json, stream);
	fclose(stream);
	for (size_t i = 0; i < n_text; i++)
		if (text[i] < ' ' || text[i] > '~')
			abort();
	free(text);
	tokener = json_tokener_new_ex(256);
	again = json_tokener_parse_ex(tokener, json_object_to_json_string(json), -1);
	if (!again)
		abort();
	json_tokener_free(tokener);
	json_object_put(again);
	json_object_put(json);
}

/* Types what is shown, and whatever else there is: bytes are stored where they belong, or a line
 * says why not. */
static void type_in(struct value_types *types, uint32_t type, const char *text, size_t n_value) {
	unsigned char *value = malloc(
		n_value ? n_value
			: 1); /* as large as it says: a sanitizer sees what is stored behind it */
	char error[VALUE_ERROR_SIZE] = "";

	if (value_read(types, type, text, value, n_value, error) && !*error)
		abort();
	free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct value_types *types;
	unsigned char *value;
	size_t n_value;
	uint32_t type;

	if (size < HEAD || value_types_new(&types, data + HEAD, size - HEAD))
		return 0;
	n_value = data[2];
	type = (uint32_t)(data[0] | data[1] << 8);
	value = malloc(n_value + 1);
	for (size_t i = 0; i < n_value; i++)
		value[i] = data[(i + HEAD) % size];
	value[n_value] = '\0';
	show(types, type, value, n_value);
	type_in(types, type, (const char *)value, n_value);
	type_in(types, type, "{.a = 1, .b = [2, {\"c\": \"d\"}]}", n_value);
	type_in(types, type, "[[1, 2], -1]", n_value);
	type_in(types, type, "1", n_value);
	value_types_size(types, type);
	value_types_is_section(types, type);
	value_types_find(types, "a");
	free(value);
	value_types_free(types);
	return 0;
}
