/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each field gets a register c<n> of its own, and what it takes to compute it happens in a scope of its own, so that names do
 * not meet; ptxas sees through both. Constants need no register. What cannot be had is 0: the address of a kernel's parameter
 * before PTX 7.7 and sm_70 (no cvta.param) and of a function's one, whatever is behind an operand of a form that we do not know.
 *
 * Parameters in .param space are read again where they are wanted, because they cannot change. A function's parameters in
 * registers have at its return what the function left in them.
 */

#include "probe-context.h"

#include <stdarg.h>
#include <inttypes.h>

#include "../proto/kernel-id.h"

/* Offsets / 8 in struct gpuprobe_kernel_ctx and gpuprobe_memory_ctx. */
enum {
	FIELD_KERNEL_ID,
	FIELD_DEVICE,
	FIELD_PID,
	FIELD_GRID_DIM,
	FIELD_GRID_DIM_Z,
	FIELD_BLOCK_DIM,
	FIELD_SHARED_BYTES,
	FIELD_PARAM_COUNT,
	FIELD_PARAMS,
};

enum {
	FIELD_INSTRUCTION_ID,
	FIELD_ADDRESS,
	FIELD_SIZE,
	FIELD_SPACE,
	FIELD_KIND,
	FIELD_VALUE,
};

struct writer {
	FILE *stream;
	const struct probe_place *place;
	const struct ptx_body *body;
	const char *text; /* of the module */
	unsigned int field; /* whose register is written */
};

#define FIELD_REGISTER PROBE_REGISTER "c%u"

/* A line of a field's block; each %u stands for the field's number. */
#define LINE(writer, format, ...) \
	fprintf((writer)->stream, "\t" format "\n", ##__VA_ARGS__)

static void open_block(const struct writer *writer)
{
	fprintf(writer->stream,
		"\t{\n\t.reg .b64 " PROBE_REGISTER "d;\n\t.reg .b32 " PROBE_REGISTER "w, " PROBE_REGISTER
		"x;\n\t.reg .b16 " PROBE_REGISTER "h;\n");
}

static void close_block(const struct writer *writer)
{
	fputs("\t}\n", writer->stream);
}

static const char *token_text(const struct writer *writer, uint32_t token)
{
	return writer->text + writer->body->tokens[token].offset;
}

static int token_length(const struct writer *writer, uint32_t token)
{
	return (int)writer->body->tokens[token].length;
}

/* Two dimensions, each in 32 bits: c = low | high << shift. */
static void write_pair(const struct writer *writer, const char *low, const char *high)
{
	open_block(writer);
	LINE(writer, "mov.u32 " PROBE_REGISTER "w, %s;", low);
	LINE(writer, "mov.u32 " PROBE_REGISTER "x, %s;", high);
	LINE(writer, "mov.b64 " FIELD_REGISTER ", {" PROBE_REGISTER "w, " PROBE_REGISTER "x};",
	     writer->field);
	close_block(writer);
}

static void write_special(const struct writer *writer, const char *name)
{
	open_block(writer);
	LINE(writer, "mov.u32 " PROBE_REGISTER "w, %s;", name);
	LINE(writer, "cvt.u64.u32 " FIELD_REGISTER ", " PROBE_REGISTER "w;", writer->field);
	close_block(writer);
}

/* x | y << 16 | z << 32 */
static void write_block_dim(const struct writer *writer)
{
	open_block(writer);
	LINE(writer, "mov.u32 " PROBE_REGISTER "w, %%ntid.x;");
	LINE(writer, "mov.u32 " PROBE_REGISTER "x, %%ntid.y;");
	LINE(writer, "shl.b32 " PROBE_REGISTER "x, " PROBE_REGISTER "x, 16;");
	LINE(writer, "or.b32 " PROBE_REGISTER "w, " PROBE_REGISTER "w, " PROBE_REGISTER "x;");
	LINE(writer, "mov.u32 " PROBE_REGISTER "x, %%ntid.z;");
	LINE(writer, "mov.b64 " FIELD_REGISTER ", {" PROBE_REGISTER "w, " PROBE_REGISTER "x};",
	     writer->field);
	close_block(writer);
}

/* Part of the process slot, which is there once in a process and on a device. */
static void write_process(const struct writer *writer, unsigned int offset, unsigned int bits)
{
	open_block(writer);
	LINE(writer, "ld.%s.b%u " PROBE_REGISTER "%s, [__gpuprobe_process+%u];",
	     writer->place->process_space, bits, bits == 32 ? "w" : "d", offset);
	if (bits == 32)
		LINE(writer, "cvt.u64.u32 " FIELD_REGISTER ", " PROBE_REGISTER "w;", writer->field);
	else
		LINE(writer, "mov.b64 " FIELD_REGISTER ", " PROBE_REGISTER "d;", writer->field);
	close_block(writer);
}

/*
 * A register, or one element of it, zero-extended into `PROBE_REGISTER d`; false if it has no such bits. suffix: ".x" or "".
 */
static bool widen(const struct writer *writer, uint8_t type, const char *name, int length,
		  const char *suffix)
{
	switch (ptx_type_size(type)) {
	case 16:
		LINE(writer, "{\n\t.reg .b64 " PROBE_REGISTER "e;\n\tmov.b128 {" PROBE_REGISTER
			     "d, " PROBE_REGISTER "e}, %.*s%s;\n\t}",
		     length, name, suffix);
		return true;
	case 8:
		LINE(writer, "mov.b64 " PROBE_REGISTER "d, %.*s%s;", length, name, suffix);
		return true;
	case 4:
		LINE(writer, "mov.b32 " PROBE_REGISTER "w, %.*s%s;", length, name, suffix);
		LINE(writer, "cvt.u64.u32 " PROBE_REGISTER "d, " PROBE_REGISTER "w;");
		return true;
	case 2:
		LINE(writer, "mov.b16 " PROBE_REGISTER "h, %.*s%s;", length, name, suffix);
		LINE(writer, "cvt.u64.u16 " PROBE_REGISTER "d, " PROBE_REGISTER "h;");
		return true;
	case 1:
		if (type == PTX_TYPE_PRED)
			LINE(writer, "selp.b64 " PROBE_REGISTER "d, 1, 0, %.*s%s;", length, name,
			     suffix);
		else
			LINE(writer, "cvt.u64.u8 " PROBE_REGISTER "d, %.*s%s;", length, name, suffix);
		return true;
	}
	return false;
}

/* c |= the low `bytes` of d << shift */
static void merge(const struct writer *writer, uint32_t bytes, uint32_t shift)
{
	if (bytes < 8)
		LINE(writer, "and.b64 " PROBE_REGISTER "d, " PROBE_REGISTER "d, 0x%" PRIx64 ";",
		     (UINT64_C(1) << 8 * bytes) - 1);
	if (shift)
		LINE(writer, "shl.b64 " PROBE_REGISTER "d, " PROBE_REGISTER "d, %u;", 8 * shift);
	LINE(writer, "or.b64 " FIELD_REGISTER ", " FIELD_REGISTER ", " PROBE_REGISTER "d;",
	     writer->field, writer->field);
}

static void write_zero(const struct writer *writer)
{
	LINE(writer, "mov.b64 " FIELD_REGISTER ", 0;", writer->field);
}

/* Its first 8 bytes, in pieces as large as its alignment allows. */
static void write_parameter(const struct writer *writer, const struct ptx_variable *parameter)
{
	uint64_t size = parameter->size < 8 ? parameter->size : 8;
	uint32_t alignment = ptx_type_size(parameter->type) * parameter->vector, piece;
	const char *name = writer->text + parameter->name.offset;
	int length = (int)parameter->name.length;

	write_zero(writer);
	open_block(writer);
	if (parameter->space == PTX_SPACE_REG && parameter->vector == 1 && !parameter->array) {
		if (widen(writer, parameter->type, name, length, ""))
			merge(writer, 8, 0);
	} else if (parameter->space == PTX_SPACE_PARAM) {
		if (alignment < parameter->alignment)
			alignment = parameter->alignment;
		for (uint32_t at = 0; at < size; at += piece) {
			for (piece = 8; piece > alignment || piece > size - at;)
				piece /= 2;
			LINE(writer, "ld.param.u%u " PROBE_REGISTER "d, [%.*s+%u];", 8 * piece, length,
			     name, at);
			merge(writer, 8, at);
		}
	}
	close_block(writer);
}

/* A field of gpuprobe_kernel_ctx. False: *number is its value. */
static bool write_kernel_field(const struct writer *writer, uint64_t *number)
{
	const struct ptx_module *module = writer->body->module;
	const struct ptx_function *function = writer->body->function;

	switch (writer->field) {
	case FIELD_KERNEL_ID:
		*number = kernel_id(writer->text + function->name.offset, function->name.length);
		return false;
	case FIELD_DEVICE:
		write_process(writer, 8, 64);
		return true;
	case FIELD_PID:
		write_process(writer, 0, 32);
		return true;
	case FIELD_GRID_DIM:
		write_pair(writer, "%nctaid.x", "%nctaid.y");
		return true;
	case FIELD_GRID_DIM_Z:
		write_special(writer, "%nctaid.z");
		return true;
	case FIELD_BLOCK_DIM:
		write_block_dim(writer);
		return true;
	case FIELD_SHARED_BYTES:
		write_special(writer, "%dynamic_smem_size");
		return true;
	case FIELD_PARAM_COUNT:
		*number = function->parameter_count;
		return false;
	}
	*number = 0;
	if (writer->field - FIELD_PARAMS >= function->parameter_count)
		return false;
	write_parameter(writer, &module->parameters[function->first_parameter + writer->field -
						    FIELD_PARAMS]);
	return true;
}

/* The text of tokens [first, end). */
static const char *range_text(const struct writer *writer, uint32_t first, uint32_t end, int *length)
{
	*length = (int)(writer->body->tokens[end - 1].offset + writer->body->tokens[end - 1].length -
			writer->body->tokens[first].offset);
	return token_text(writer, first);
}

/* What cvta converts from: "" is generic, NULL: it cannot. */
static const char *address_space(const struct writer *writer)
{
	const struct ptx_module *module = writer->body->module;

	switch (writer->place->access->space) {
	case PROBE_SPACE_GENERIC:
		return "";
	case PROBE_SPACE_GLOBAL:
		return "global";
	case PROBE_SPACE_SHARED:
		return writer->place->access->cluster ? "shared::cluster" : "shared";
	case PROBE_SPACE_LOCAL:
		return "local";
	case PROBE_SPACE_CONST:
		return "const";
	case PROBE_SPACE_PARAM:
		break;
	}
	if (writer->body->function->entry && module->isa >= 77 && module->target.number >= 70)
		return "param";
	return NULL;
}

/* A register, a variable or a number becomes c; false if the token is none. */
static bool write_base(const struct writer *writer, uint32_t token)
{
	const struct probe_place *place = writer->place;
	struct probe_register found;

	if (probe_names_register(place->names, place->statement, token, &found)) {
		if (found.vector != 1 || !widen(writer, found.type, token_text(writer, token),
						token_length(writer, token), ""))
			return false;
		LINE(writer, "mov.b64 " FIELD_REGISTER ", " PROBE_REGISTER "d;", writer->field);
		return true;
	}
	if (writer->body->tokens[token].kind != PTX_TOKEN_WORD &&
	    writer->body->tokens[token].kind != PTX_TOKEN_INTEGER)
		return false;
	LINE(writer, "mov.u64 " FIELD_REGISTER ", %.*s;", writer->field, token_length(writer, token),
	     token_text(writer, token));
	return true;
}

/* [base], [base+constant], [base, {...}] */
static void write_address(const struct writer *writer)
{
	const struct ptx_operand *operand;
	const char *space = address_space(writer), *expression;
	uint32_t first, end;
	int length;

	write_zero(writer);
	if (writer->place->access->address == PTX_NONE || !space)
		return;
	operand = &writer->body->operands[writer->place->access->address];
	first = operand->first + 1;
	for (end = first; end < operand->end - 1; end++)
		if (ptx_token_is_char(writer->text, &writer->body->tokens[end], ','))
			break;
	if (first >= end)
		return;
	open_block(writer);
	if (write_base(writer, first++)) {
		if (first < end)
			first += ptx_token_is_char(writer->text, &writer->body->tokens[first], '+');
		if (first < end) {
			expression = range_text(writer, first, end, &length);
			LINE(writer, "add.s64 " FIELD_REGISTER ", " FIELD_REGISTER ", %.*s;",
			     writer->field, writer->field, length, expression);
		}
		if (*space)
			LINE(writer, "cvta.%s.u64 " FIELD_REGISTER ", " FIELD_REGISTER ";", space,
			     writer->field, writer->field);
	}
	close_block(writer);
}

/* The bits of [-]number as an element of the access; false if the tokens are none. */
static bool constant_bits(const struct writer *writer, uint32_t first, uint32_t end, uint64_t *bits)
{
	const struct ptx_token *token = &writer->body->tokens[first];
	bool negative = ptx_token_is_char(writer->text, token, '-');
	enum ptx_type type = writer->place->access->type;
	unsigned int width;
	double number;
	float narrow;

	token += negative;
	if (end - first != 1u + negative)
		return false;
	if (ptx_integer_value(writer->text + token->offset, token->length, bits)) {
		*bits = negative ? -*bits : *bits;
	} else if (ptx_float_bits(writer->text + token->offset, token->length, bits, &width)) {
		if (width == 64 && type == PTX_TYPE_F32) {
			memcpy(&number, bits, sizeof(number));
			narrow = (float)number;
			*bits = 0;
			memcpy(bits, &narrow, sizeof(narrow));
			width = 32;
		}
		if (negative)
			*bits ^= UINT64_C(1) << (width - 1);
	} else {
		return false;
	}
	return true;
}

/* Is it an expression of numbers, 1+2*3? */
static bool is_expression(const struct writer *writer, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++)
		if (writer->body->tokens[i].kind != PTX_TOKEN_INTEGER &&
		    writer->body->tokens[i].kind != PTX_TOKEN_PUNCTUATION)
			return false;
	return true;
}

/* One element, tokens [first, end), at a byte of the value. suffix: ".x" of a vector's name, or "". */
static void write_element(const struct writer *writer, uint32_t first, uint32_t end, uint32_t at,
			  const char *suffix)
{
	const struct probe_place *place = writer->place;
	uint32_t bytes = place->access->element < 8 ? place->access->element : 8;
	struct probe_register found;
	const char *expression;
	uint64_t bits;
	int length;

	if (first == end)
		return;
	expression = range_text(writer, first, end, &length);
	if (constant_bits(writer, first, end, &bits))
		LINE(writer, "mov.b64 " PROBE_REGISTER "d, 0x%" PRIx64 ";", bits);
	else if (is_expression(writer, first, end))
		LINE(writer, "mov.b64 " PROBE_REGISTER "d, %.*s;", length, expression);
	else if (end - first != 1 ||
		 !probe_names_register(place->names, place->statement, first, &found) ||
		 !widen(writer, found.type, token_text(writer, first), token_length(writer, first),
			suffix))
		return;
	merge(writer, bytes, at);
}

/* The elements of a vector's name: v.x, v.y, ... */
static void write_vector(const struct writer *writer, uint32_t token, uint32_t count)
{
	static const char *const suffixes[] = { ".x", ".y", ".z", ".w" };
	uint32_t element = writer->place->access->element;

	for (uint32_t i = 0; i < count && i < 4 && i * element < 8; i++)
		write_element(writer, token, token + 1, i * element, suffixes[i]);
}

/* The first 8 bytes of the operand: a, {a, b, ...} or a vector's name. */
static void write_value(const struct writer *writer)
{
	const struct probe_access *access = writer->place->access;
	const struct ptx_operand *operand;
	struct probe_register found;
	uint32_t from, at = 0;

	write_zero(writer);
	if (access->value == PTX_NONE || !access->element)
		return;
	operand = &writer->body->operands[access->value];
	open_block(writer);
	if (ptx_token_is_char(writer->text, &writer->body->tokens[operand->first], '{')) {
		from = operand->first + 1;
		for (uint32_t i = from; i < operand->end && at < 8; i++) {
			if (i + 1 < operand->end &&
			    !ptx_token_is_char(writer->text, &writer->body->tokens[i], ','))
				continue;
			write_element(writer, from, i, at, "");
			at += access->element;
			from = i + 1;
		}
	} else if (operand->end - operand->first == 1 &&
		   probe_names_register(writer->place->names, writer->place->statement, operand->first,
					&found) &&
		   found.vector > 1) {
		write_vector(writer, operand->first, found.vector);
	} else {
		write_element(writer, operand->first, operand->end, 0, "");
	}
	close_block(writer);
}

/* How many bytes an operand says. False: *number is known. */
static bool write_size(const struct writer *writer, uint64_t *number)
{
	const struct probe_access *access = writer->place->access;
	const struct ptx_operand *operand;

	*number = access->size;
	if (access->size_operand == PTX_NONE)
		return false;
	operand = &writer->body->operands[access->size_operand];
	if (constant_bits(writer, operand->first, operand->end, number))
		return false;
	write_zero(writer);
	open_block(writer);
	if (operand->end - operand->first == 1)
		write_base(writer, operand->first);
	close_block(writer);
	return true;
}

/* A field of gpuprobe_memory_ctx. False: *number is its value. */
static bool write_memory_field(const struct writer *writer, uint64_t *number)
{
	*number = 0;
	switch (writer->field) {
	case FIELD_INSTRUCTION_ID:
		*number = writer->place->instruction;
		return false;
	case FIELD_ADDRESS:
		write_address(writer);
		return true;
	case FIELD_SIZE:
		return write_size(writer, number);
	case FIELD_SPACE:
		*number = writer->place->access->space;
		return false;
	case FIELD_KIND:
		*number = writer->place->access->kind;
		return false;
	case FIELD_VALUE:
		if (writer->place->access->value == PTX_NONE)
			return false;
		write_value(writer);
		return true;
	}
	return false; /* behind the end of this context */
}

void probe_context_write(FILE *stream, const struct probe_place *place, struct probe_context *context)
{
	struct writer writer = {
		.stream = stream,
		.place = place,
		.body = place->names->body,
		.text = place->names->body->module->text,
	};

	for (unsigned int field = 0; field < PROBE_FIELDS; field++)
		if (context->wanted & 1u << field)
			LINE(&writer, ".reg .b64 " FIELD_REGISTER ";", field);
	for (unsigned int field = 0; field < PROBE_FIELDS; field++) {
		char *argument = context->arguments[field];
		uint64_t number;
		bool written;

		if (!(context->wanted & 1u << field))
			continue;
		writer.field = field;
		written = place->access ? write_memory_field(&writer, &number) :
					  write_kernel_field(&writer, &number);
		if (written)
			snprintf(argument, sizeof(context->arguments[field]), FIELD_REGISTER, field);
		else
			snprintf(argument, sizeof(context->arguments[field]), "0x%" PRIx64, number);
	}
}

bool probe_context_needs_process(uint32_t wanted)
{
	return wanted & (1u << FIELD_DEVICE | 1u << FIELD_PID);
}
