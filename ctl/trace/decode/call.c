/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns a record of a call into an item. The words and extras come from the traced program and may
 * be wrong or cut off. What is not there is left out, never guessed, and no pointer is followed.
 * The value of an argument is what it pointed to, if that was recorded, else what was in the
 * register.
 */

#include "call.h"

#include <stdbool.h>
#include <string.h>

#include "lib/function.h"

#define BYTES_SHOWN_MAX 64

/* A call that is being decoded. */
struct call {
	struct trace_decoder *decoder;
	struct trace_item *item;
	const struct function *function;
	struct trace_bytes words; /* as many as are there */
	struct trace_bytes entry[TRACE_WORDS_MAX],
		back[TRACE_WORDS_MAX]; /* what arguments pointed to; data NULL: not recorded */
};

static struct trace_value *add_value(struct call *call, const char *name, bool out,
				     enum trace_value_kind kind, uint64_t number,
				     const char *text) {
	struct trace_value *value = trace_item_value(call->item, name, kind, (int64_t)number);

	value->out = out;
	value->text = text;
	return value;
}

/* A text that ends at a NUL, or at the end of the bytes. */
static void add_string(struct call *call, const char *name, bool out, struct trace_bytes bytes) {
	const char *text = (const char *)bytes.data;

	add_value(call, name, out, VALUE_STRING, 0,
		  trace_decoder_text(call->decoder, text, strnlen(text, bytes.n)));
}

/* Bytes that nobody understands. */
static void add_bytes(struct call *call, const char *name, bool out, struct trace_bytes bytes) {
	static const char digits[] = "0123456789abcdef";
	size_t n = bytes.n < BYTES_SHOWN_MAX ? bytes.n : BYTES_SHOWN_MAX;
	char hex[2 * BYTES_SHOWN_MAX];

	for (size_t i = 0; i < n; i++) {
		hex[2 * i] = digits[bytes.data[i] >> 4];
		hex[2 * i + 1] = digits[bytes.data[i] & 15];
	}
	add_value(call, name, out, VALUE_BYTES, 0, trace_decoder_text(call->decoder, hex, 2 * n));
}

/* A value of a scalar type. */
static void add_scalar(struct call *call, const char *name, bool out,
		       const struct function_type *type, uint64_t number) {
	int64_t integer =
		type->size == 0 || type->size > 8
			? 0
			: (int64_t)(number << (64 - 8 * type->size)) >> (64 - 8 * type->size);
	double real;
	float single;
	uint32_t low = (uint32_t)number;

	switch (type->kind) {
	case FUNCTION_INT:
		add_value(call, name, out, VALUE_INT, (uint64_t)integer, NULL);
		break;
	case FUNCTION_UINT:
		add_value(call, name, out, VALUE_UINT, number, NULL);
		break;
	case FUNCTION_BOOL:
		add_value(call, name, out, VALUE_BOOL, number != 0, NULL);
		break;
	case FUNCTION_ENUM:
		add_value(call, name, out, VALUE_NAME, (uint64_t)integer,
			  function_enumerator(type->enumeration, integer));
		break;
	case FUNCTION_FLOAT:
		memcpy(&single, &low, sizeof(single));
		memcpy(&real, &number, sizeof(real));
		add_value(call, name, out, VALUE_FLOAT, 0, NULL)->real =
			type->size == sizeof(single) ? (double)single : real;
		break;
	default:
		add_value(call, name, out, VALUE_HEX, number, NULL);
	}
}

static void add_struct(struct call *call, const char *name, bool out,
		       const struct function_struct *structure, struct trace_bytes bytes);

/* A value of any type; nothing if the bytes end before it does. */
static void add_typed(struct call *call, const char *name, bool out,
		      const struct function_type *type, struct trace_bytes bytes) {
	uint64_t number;

	if (type->kind == FUNCTION_STRUCT)
		add_struct(call, name, out, type->structure, bytes);
	else if (type->kind == FUNCTION_BYTES) {
		bytes.n = bytes.n < type->size ? bytes.n : type->size;
		if (bytes.n > 0)
			add_bytes(call, name, out, bytes);
	} else if (trace_bytes_read(bytes, 0, type->size, &number))
		add_scalar(call, name, out, type, number);
}

/* Fields that mean nothing. A handle has no others. */
static bool is_reserved(const struct function_struct *structure,
			const struct function_field *field) {
	return structure->n > 1 &&
	       (strncmp(field->name, "reserved", 8) == 0 || field->name[0] == '_');
}

/* Fields become members of a group: those that are there and have room. A struct never contains
 * itself, so this ends. */
static void add_struct(struct call *call, const char *name, bool out,
		       const struct function_struct *structure, struct trace_bytes bytes) {
	struct trace_value *group = add_value(call, name, out, VALUE_GROUP, 0, NULL);

	for (const struct function_field *field = structure->fields;
	     field < structure->fields + structure->n; field++) {
		size_t before = call->item->n_values;

		if (field->offset >= bytes.n || is_reserved(structure, field))
			continue;
		add_typed(call, field->name, out, field->type,
			  (struct trace_bytes){ bytes.data + field->offset,
						bytes.n - field->offset });
		group->number += call->item->n_values > before;
	}
}

/* What a pointer pointed to. False: the bytes are of no use. */
static bool add_target(struct call *call, const char *name, bool out,
		       const struct function_type *type, struct trace_bytes bytes) {
	const struct function_type *target = type->target;
	size_t before = call->item->n_values;

	if (type->kind != FUNCTION_POINTER && type->kind != FUNCTION_STRING)
		return false;
	if (type->kind == FUNCTION_STRING ||
	    (target && target->kind == FUNCTION_INT && target->size == 1))
		add_string(call, name, out, bytes);
	else if (target && target->kind != FUNCTION_BYTES)
		add_typed(call, name, out, target, bytes);
	else if (bytes.n > 0)
		add_bytes(call, name, out, bytes);
	return call->item->n_values > before;
}

/* The bytes of an argument, from its words on. False if not all are there. */
static bool argument_bytes(const struct call *call, const struct function_argument *argument,
			   struct trace_bytes *bytesp) {
	size_t offset = argument->word * 8u, size = argument->words * 8u;

	if (offset > call->words.n || size > call->words.n - offset)
		return false;
	*bytesp = (struct trace_bytes){ call->words.data + offset, size };
	return true;
}

/* The number that an argument is, as wide as its type. False if it is none, or not there. */
static bool argument_number(const struct call *call, int i, uint64_t *numberp) {
	const struct function_argument *argument;
	struct trace_bytes bytes;

	if (i < 0)
		return false;
	argument = &call->function->arguments[i];
	return argument->words == 1 && argument_bytes(call, argument, &bytes) &&
	       trace_bytes_read(bytes, 0, argument->type->size, numberp);
}

static void add_argument(struct call *call, int i) {
	const struct function_argument *argument = &call->function->arguments[i];
	const struct function_type *type = argument->type;
	struct trace_bytes bytes;
	uint64_t number;

	if (call->back[i].data && add_target(call, argument->name, true, type, call->back[i]))
		return;
	if (call->entry[i].data && add_target(call, argument->name, false, type, call->entry[i]))
		return;
	if (i == call->function->size_argument && call->function->size_unit == 1) {
		if (argument_number(call, i, &number))
			add_value(call, argument->name, false, VALUE_SIZE, number, NULL);
	} else if (argument_bytes(call, argument, &bytes)) {
		bytes.n = bytes.n < type->size ? bytes.n : type->size;
		add_typed(call, argument->name, false, type, bytes);
	}
}

/* Extras that are there, the last one perhaps not as a whole; the first of each argument and time
 * counts. */
static void find_extras(struct call *call, struct trace_bytes rest, size_t n) {
	struct trace_extra extra;

	while (n-- > 0 && rest.n >= sizeof(extra)) {
		struct trace_bytes *place, bytes;

		memcpy(&extra, rest.data, sizeof(extra));
		trace_bytes_take(&rest, sizeof(extra));
		bytes = trace_bytes_take(&rest, extra.size);
		if (extra.argument >= call->function->n_arguments || bytes.n < (extra.size > 0))
			continue;
		place = extra.when == TRACE_EXTRA_RETURN ? &call->back[extra.argument]
							 : &call->entry[extra.argument];
		if (!place->data)
			*place = bytes;
	}
}

/* A field of the struct that a pointer argument pointed to. */
static bool read_field(const struct function_struct *structure, struct trace_bytes bytes,
		       const char *name, uint64_t *numberp) {
	for (const struct function_field *field = structure->fields;
	     field < structure->fields + structure->n; field++)
		if (strcmp(field->name, name) == 0)
			return trace_bytes_read(bytes, field->offset, field->type->size, numberp);
	return false;
}

/* a *= b; 0 if that is too much: then it is a lie. */
static void multiply(uint64_t *a, uint64_t b) {
	if (__builtin_mul_overflow(*a, b, a))
		*a = 0;
}

/* How much a copy moves, or an array takes, by its description. */
static uint64_t described_size(const struct function_struct *structure, struct trace_bytes bytes) {
	static const uint8_t formats[] = {
		[1] = 1, [2] = 2, [3] = 4, [8] = 1, [9] = 2, [10] = 4, [0x10] = 2, [0x20] = 4
	}; /* CUarray_format */
	uint64_t size, height, depth = 1, format, channels;

	if (read_field(structure, bytes, "WidthInBytes", &size)) {
		if (!read_field(structure, bytes, "Height", &height))
			return 0;
		multiply(&size, height);
		if (read_field(structure, bytes, "Depth", &depth))
			multiply(&size, depth);
		return size;
	}
	if (!read_field(structure, bytes, "Width", &size) ||
	    !read_field(structure, bytes, "Height", &height) ||
	    !read_field(structure, bytes, "Format", &format) ||
	    !read_field(structure, bytes, "NumChannels", &channels))
		return 0;
	read_field(structure, bytes, "Depth", &depth);
	multiply(&size, height ? height : 1); /* of arrays of fewer dimensions they are 0 */
	multiply(&size, depth ? depth : 1);
	multiply(&size, channels);
	multiply(&size, format < sizeof(formats) ? formats[format] : 0);
	return size;
}

/* What a struct says that an argument pointed to: how much, on which stream. */
static void set_described(struct call *call, uint8_t i) {
	const struct function *function = call->function;
	const struct function_type *target = function->arguments[i].type->target;

	if (!call->entry[i].data || !target || !target->structure)
		return;
	if (function->class == FUNCTION_LAUNCH)
		read_field(target->structure, call->entry[i], "hStream", &call->item->stream);
	else if (function->size_argument < 0 &&
		 (function->class == FUNCTION_TRANSFER || function->class == FUNCTION_MEMORY))
		call->item->size = described_size(target->structure, call->entry[i]);
}

/* What the item says besides its values: how much, on which stream, in which context, which kernel.
 */
static void set_subject(struct call *call, uint32_t pid) {
	const struct function *function = call->function;
	uint64_t number;

	if (argument_number(call, function->size_argument, &number)) {
		call->item->size = number;
		multiply(&call->item->size, function->size_unit);
		if (function->rows_argument >= 0)
			multiply(&call->item->size,
				 argument_number(call, function->rows_argument, &number) ? number
											 : 0);
	}
	if (argument_number(call, function->stream_argument, &number))
		call->item->stream = number;
	if (argument_number(call, function->context_argument, &number))
		call->item->context = number;
	if (argument_number(call, function->device_argument, &number))
		call->item->device = (uint32_t)number;
	if (argument_number(call, function->kernel_argument, &number))
		call->item->kernel = trace_decoder_kernel(call->decoder, pid, number);
	for (int i = 0; i < function->n_extras; i++)
		set_described(call, function->extras[i].argument);
}

bool trace_decode_function(uint16_t number, struct trace_item *item) {
	const struct function *function = function_by_number(number);

	if (!function)
		return false;
	item->name = function->name;
	item->base = function->base;
	item->class = function_class_name(function->class);
	return true;
}

bool trace_decode_call(struct trace_decoder *decoder, const struct trace_call *record,
		       struct trace_item *item) {
	struct call call = { .decoder = decoder,
			     .item = item,
			     .function = function_by_number(record->function) };
	struct trace_bytes rest = { (const uint8_t *)record->words,
				    record->record.size - sizeof(*record) };
	size_t n_words = record->n_arguments * 8u;

	item->result_name =
		item->has_result ? function_enumerator(function_results(), item->result) : NULL;
	if (!call.function)
		return false;
	call.words = (struct trace_bytes){ rest.data, n_words < rest.n ? n_words : rest.n };
	find_extras(&call, (struct trace_bytes){ rest.data + call.words.n, rest.n - call.words.n },
		    record->n_extras);

	trace_decode_function(record->function, item);
	for (int i = 0; i < call.function->n_arguments; i++)
		add_argument(&call, i);
	set_subject(&call, record->pid);
	return true;
}

bool trace_call_launches(uint16_t number) {
	const struct function *function = function_by_number(number);

	if (!function || strcmp(function->base, "cuLaunchHostFunc") == 0)
		return false;
	return function->class == FUNCTION_LAUNCH || strncmp(function->base, "cuMemcpy", 8) == 0 ||
	       strncmp(function->base, "cuMemset", 8) == 0;
}
