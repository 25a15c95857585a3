/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as BTF (2 bytes of a type's number, 1 of a value's size, then BTF): what
 * is found lies within the value, has names that can be those of metrics, and any bytes of a value
 * can be shown.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/map/fields.h"
#include "daemon/gpuprobed/export/openmetrics.h"

#define HEAD 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const char *name) {
	if (strlen(name) >= FIELD_NAME_SIZE)
		abort();
	for (; *name; name++)
		if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
		      (*name >= '0' && *name <= '9') || *name == '_'))
			abort();
}

/* What stands between the quotes of a label: no line end, no quote, no backslash that escapes
 * nothing. */
static void check_label(const uint8_t *value, size_t n) {
	struct metrics_text text = {};

	metrics_text_escape(&text, (const char *)value, n, true);
	for (size_t i = 0; i < text.n; i++) {
		if (text.data[i] == '\n' || text.data[i] == '"')
			abort();
		if (text.data[i] == '\\' && (++i == text.n || !strchr("\\n\"", text.data[i])))
			abort();
	}
	metrics_text_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	unsigned char *value;
	struct fields *fields;
	size_t n_value;

	if (size < HEAD)
		return 0;
	n_value = data[2];
	if (fields_new(&fields, data + HEAD, size - HEAD, (uint32_t)(data[0] | data[1] << 8),
		       n_value) != 0)
		return 0;
	value = malloc(n_value + 1); /* what is read beyond it is found */
	for (size_t i = 0; i < n_value; i++)
		value[i] = data[i % size];
	if (fields->n > FIELDS_MAX)
		abort();
	for (size_t i = 0; i < fields->n; i++) {
		const struct field *field = &fields->fields[i];

		check_name(field->name);
		if (!field->bits || !field->count ||
		    field->bit + (uint64_t)field->bits * field->count > n_value * 8)
			abort();
		if (field_is_number(field)) {
			if (field->bits > 64 ||
			    (field->kind == FIELD_FLOAT && field->bits != 32 && field->bits != 64))
				abort();
			for (uint32_t j = 0; j < field->count; j++)
				field_enumerator(field, field_load(field, value, j));
			if (field->kind == FIELD_FLOAT)
				field_double(field, field_load(field, value, 0));
		} else {
			check_label(value + field->bit / 8, field->bits / 8 * field->count);
		}
	}
	check_label(data, size);
	free(value);
	fields_free(fields);
	return 0;
}
