/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks up layouts of ioctl parameters in the generated tables (params.h) and decodes their fields
 * into an item. The bytes come from the traced program, so each access is checked.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

struct trace_number {
	uint32_t number;
	const char *name;
};

#include "tables.h"

static const struct trace_number functions[] = {
	/* NVOS32_FUNCTION_ */
	{ 2, "ALLOC_SIZE" },
	{ 3, "FREE" },
	{ 5, "INFO" },
	{ 6, "ALLOC_TILED_PITCH_HEIGHT" },
	{ 11, "DUMP" },
	{ 14, "ALLOC_SIZE_RANGE" },
	{ 15, "REACQUIRE_COMPR" },
	{ 16, "RELEASE_COMPR" },
	{ 18, "GET_MEM_ALIGNMENT" },
	{ 19, "HW_ALLOC" },
	{ 20, "HW_FREE" },
	{ 27, "ALLOC_OS_DESCRIPTOR" },
};

static int compare_numbers(const void *a, const void *b) {
	uint32_t x = ((const struct trace_number *)a)->number,
		 y = ((const struct trace_number *)b)->number;

	return (x > y) - (x < y);
}

/* The name of a number in a sorted table, or NULL. */
static const char *find_name(const struct trace_number *table, size_t n, uint64_t number) {
	const struct trace_number key = { .number = (uint32_t)number };
	const struct trace_number *found =
		number > UINT32_MAX ? NULL
				    : bsearch(&key, table, n, sizeof(*table), compare_numbers);

	return found ? found->name : NULL;
}

/* What an argument of this size looks like for this driver; size -1: any, for the name alone. NULL:
 * unknown. */
const struct trace_params *trace_params_find(enum trace_params_table table, uint32_t number,
					     int64_t size, unsigned driver) {
	static const struct {
		const struct trace_params *rows;
		size_t n;
	} tables[] = {
		[PARAMS_IOCTL] = { ioctl_params, N(ioctl_params) },
		[PARAMS_UVM] = { uvm_params, N(uvm_params) },
		[PARAMS_ALLOC] = { alloc_params, N(alloc_params) },
		[PARAMS_CONTROL] = { control_params, N(control_params) },
	};

	for (size_t i = 0; i < tables[table].n; i++) {
		const struct trace_params *row = tables[table].rows + i;

		if (row->number == number && (size < 0 || row->size < 0 || row->size == size) &&
		    (row->until == TRACE_DRIVER_ANY || driver <= row->until))
			return row;
	}
	return NULL;
}

/* A field that is no number: a UUID, or a text that ends at a NUL or at the field's end. */
static struct trace_value *decode_text(struct trace_ioctl_job *job, const struct trace_field *field,
				       struct trace_bytes bytes) {
	const char *data = (const char *)bytes.data + field->offset;
	struct trace_value *value = trace_item_value(job->item, field->name, VALUE_STRING, 0);
	char uuid[40], *end = uuid;

	if (field->kind == FIELD_STRING) {
		value->text = trace_decoder_text(job->decoder, data, strnlen(data, field->size));
		return value;
	}
	for (size_t i = 0; i < 16; i++)
		end += sprintf(end, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			       (uint8_t)data[i]);
	value->text = trace_decoder_text(job->decoder, uuid, (size_t)(end - uuid));
	return value;
}

/* A number with its name, if it has one. */
static struct trace_value *add_name(struct trace_ioctl_job *job, const char *name, uint64_t number,
				    const char *text) {
	struct trace_value *value = trace_item_value(job->item, name, VALUE_NAME, (int64_t)number);

	value->text = text;
	return value;
}

static struct trace_value *decode_number(struct trace_ioctl_job *job,
					 const struct trace_field *field, uint64_t number) {
	static const enum trace_value_kind kinds[] = {
		[FIELD_UINT] = VALUE_UINT, [FIELD_INT] = VALUE_INT,   [FIELD_HEX] = VALUE_HEX,
		[FIELD_BOOL] = VALUE_BOOL, [FIELD_SIZE] = VALUE_SIZE,
	};

	switch (field->kind) {
	case FIELD_CLASS:
		return add_name(job, field->name, number, find_name(classes, N(classes), number));
	case FIELD_COMMAND:
		return add_name(job, field->name, number, find_name(commands, N(commands), number));
	case FIELD_FUNCTION:
		return add_name(job, field->name, number,
				find_name(functions, N(functions), number));
	case FIELD_INT:
		number = (uint64_t)(int64_t)(int32_t)number;
		break;
	case FIELD_BOOL:
		number = number != 0;
		break;
	}
	return trace_item_value(job->item, field->name, kinds[field->kind], (int64_t)number);
}

/* A field of these bytes; NULL if they end before it does. */
static struct trace_value *decode_field(struct trace_ioctl_job *job,
					const struct trace_field *field, struct trace_bytes bytes) {
	uint64_t number;

	if (field->offset > bytes.n || field->size > bytes.n - field->offset)
		return NULL;
	if (field->kind == FIELD_UUID || field->kind == FIELD_STRING)
		return decode_text(job, field, bytes);
	return trace_bytes_read(bytes, field->offset, field->size, &number)
		       ? decode_number(job, field, number)
		       : NULL;
}

/* All fields that are there, from the bytes of the entry, or of the return for those that the
 * driver writes. */
void trace_params_decode(struct trace_ioctl_job *job, const struct trace_params *params,
			 struct trace_bytes before, struct trace_bytes after) {
	uint64_t status;

	for (const struct trace_field *field = fields + params->first;
	     field < fields + params->first + params->n; field++) {
		struct trace_value *value =
			field->access == ACCESS_IN ? NULL : decode_field(job, field, after);

		if (value)
			value->out = true;
		else if (field->access != ACCESS_OUT)
			decode_field(job, field, before);
	}
	if (params->status >= 0 && trace_bytes_read(after, (size_t)params->status, 4, &status)) {
		job->status = (uint32_t)status;
		job->has_status = true;
	}
}
