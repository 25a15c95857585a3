/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the PTX that computes the fields of a program's context (probe-context.h).
 *
 * A field that is no constant gets a register c<n>. Temporary registers are declared in a scope
 * around their use: ptxas sees through all that, and a module with very many sites stays short.
 * What cannot be had is 0: the address of a kernel's parameter before PTX 7.7 and sm_70 (no
 * cvta.param) and of a function's one, whatever is behind an operand of a form that we do not know,
 * a parameter whose name means something else where it is wanted, the launch where the function has
 * no block of it.
 *
 * Parameters in .param space are read again where they are wanted, because they cannot change. A
 * function's parameters in registers have at its return what the function left in them.
 */

#include "probe-context.h"

#include <inttypes.h>

#include "proto/kernel-id.h"
#include "proto/launch.h"

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

#define FIELD PROBE_REGISTER "c%u"
#define TEMPORARY PROBE_REGISTER "t"

/* A line of text. */
#define LINE(writer, format, ...) fprintf((writer)->stream, "\t" format "\n", ##__VA_ARGS__)

static const char *token_text(const struct writer *writer, uint32_t token) {
	return writer->text + writer->body->tokens[token].offset;
}

static int token_length(const struct writer *writer, uint32_t token) {
	return (int)writer->body->tokens[token].length;
}

static void declare(const struct writer *writer) {
	LINE(writer, ".reg .b64 " FIELD ";", writer->field);
}

/* c = low | middle << 16 | high << 32, of special registers. */
static void write_pair(const struct writer *writer, const char *low, const char *middle,
		       const char *high) {
	declare(writer);
	LINE(writer, "{\n\t.reg .b32 " PROBE_REGISTER "w, " PROBE_REGISTER "x;");
	LINE(writer, "mov.u32 " PROBE_REGISTER "w, %s;", low);
	if (middle) {
		LINE(writer, "mov.u32 " PROBE_REGISTER "x, %s;", middle);
		LINE(writer, "shl.b32 " PROBE_REGISTER "x, " PROBE_REGISTER "x, 16;");
		LINE(writer,
		     "or.b32 " PROBE_REGISTER "w, " PROBE_REGISTER "w, " PROBE_REGISTER "x;");
	}
	LINE(writer, "mov.u32 " PROBE_REGISTER "x, %s;", high);
	LINE(writer, "mov.b64 " FIELD ", {" PROBE_REGISTER "w, " PROBE_REGISTER "x};\n\t}",
	     writer->field);
}

static void write_special(const struct writer *writer, const char *name) {
	declare(writer);
	LINE(writer, "{\n\t.reg .b32 " PROBE_REGISTER "w;");
	LINE(writer, "mov.u32 " PROBE_REGISTER "w, %s;", name);
	LINE(writer, "cvt.u64.u32 " FIELD ", " PROBE_REGISTER "w;\n\t}", writer->field);
}

/* Part of the process slot, which is there once in a process and on a device. */
static void write_process(const struct writer *writer, unsigned int offset, unsigned int bits) {
	declare(writer);
	LINE(writer, "ld.%s.u%u " FIELD ", [__gpuprobe_process+%u];", writer->place->process_space,
	     bits, writer->field, offset);
}

/* The register in which something is computed: the field's, or the temporary one. */
static const char *target_name(const struct writer *writer, bool temporary, char *name,
			       size_t size) {
	if (temporary)
		snprintf(name, size, TEMPORARY);
	else
		snprintf(name, size, FIELD, writer->field);
	return name;
}

/* A register's bits, zero-extended into `to`; false if it has none. suffix: "", or ".x" of one. */
static bool widen(const struct writer *writer, const char *to, uint8_t type, const char *name,
		  int length, const char *suffix) {
	bool integer = type == PTX_TYPE_B32 || type == PTX_TYPE_U32 || type == PTX_TYPE_S32 ||
		       type == PTX_TYPE_B16 || type == PTX_TYPE_U16 || type == PTX_TYPE_S16;
	unsigned int bits = 8 * ptx_type_size(type);

	if (type == PTX_TYPE_PRED)
		LINE(writer, "selp.b64 %s, 1, 0, %.*s;", to, length, name);
	else if (bits == 128)
		LINE(writer,
		     "{\n\t.reg .b64 " PROBE_REGISTER "e;\n\tmov.b128 {%s, " PROBE_REGISTER
		     "e}, %.*s%s;\n\t}",
		     to, length, name, suffix);
	else if (bits == 64)
		LINE(writer, "mov.b64 %s, %.*s%s;", to, length, name, suffix);
	else if (bits == 8 || (bits && integer))
		LINE(writer, "cvt.u64.u%u %s, %.*s%s;", bits, to, length, name, suffix);
	else if (bits)
		LINE(writer,
		     "{\n\t.reg .b%u " PROBE_REGISTER "w;\n\tmov.b%u " PROBE_REGISTER
		     "w, %.*s%s;\n\tcvt.u64.u%u %s, " PROBE_REGISTER "w;\n\t}",
		     bits, bits, length, name, suffix, bits, to);
	return bits;
}

/* The temporary register goes to its place in the field: c |= t << 8 * at. */
static void merge(const struct writer *writer, uint32_t at) {
	LINE(writer, "shl.b64 " TEMPORARY ", " TEMPORARY ", %u;", 8 * at);
	LINE(writer, "or.b64 " FIELD ", " FIELD ", " TEMPORARY ";", writer->field, writer->field);
}

/* Its first 8 bytes, in pieces as large as its alignment allows. False: it has none. */
static bool write_parameter(const struct writer *writer, const struct ptx_variable *parameter) {
	uint64_t size = parameter->size < 8 ? parameter->size : 8;
	uint32_t alignment = ptx_type_size(parameter->type) * parameter->vector, piece;
	const char *name = writer->text + parameter->name.offset;
	int length = (int)parameter->name.length;
	char to[32];

	if (!size || parameter->type == PTX_TYPE_TEXREF || parameter->type == PTX_TYPE_SAMPLERREF ||
	    parameter->type == PTX_TYPE_SURFREF ||
	    (parameter->space == PTX_SPACE_REG && (parameter->vector != 1 || parameter->array)) ||
	    probe_names_hide(writer->place->names, writer->place->statement, parameter->name))
		return false;
	declare(writer);
	if (parameter->space == PTX_SPACE_REG)
		return widen(writer, target_name(writer, false, to, sizeof(to)), parameter->type,
			     name, length, "");
	if (alignment < parameter->alignment)
		alignment = parameter->alignment;
	for (uint32_t at = 0; at < size; at += piece) {
		for (piece = 8; piece > alignment || piece > size - at;)
			piece /= 2;
		if (at)
			LINE(writer, "{\n\t.reg .b64 " TEMPORARY ";");
		LINE(writer, "ld.param.u%u %s, [%.*s+%u];", 8 * piece,
		     target_name(writer, at, to, sizeof(to)), length, name, at);
		if (at) {
			merge(writer, at);
			LINE(writer, "}");
		}
	}
	return true;
}

static enum point_context context_of(bool memory) {
	return memory ? POINT_MEMORY_CONTEXT : POINT_KERNEL_CONTEXT;
}

/* A field of the launch's block. */
static void write_launch(const struct writer *writer) {
	const uint32_t first = point_contexts[context_of(writer->place->access)].launch;

	declare(writer);
	LINE(writer, "ld.param.u64 " FIELD ", [" LAUNCH_BLOCK_PARAMETER "+%u];", writer->field,
	     8 * writer->field - first);
}

/* A field of gpuprobe_kernel_ctx. False: *number is its value. */
static bool write_kernel_field(const struct writer *writer, uint64_t *number) {
	const struct ptx_module *module = writer->body->module;
	const struct ptx_function *function = writer->body->function;

	*number = 0;
	switch (writer->field) {
	case FIELD_KERNEL_ID:
		*number = kernel_id(writer->text + function->name.offset, function->name.length);
		if (!writer->place->kernel_variable)
			return false;
		declare(writer);
		LINE(writer, "ld.const.u64 " FIELD ", [%s];", writer->field,
		     writer->place->kernel_variable);
		return true;
	case FIELD_DEVICE:
		write_process(writer, 8, 64);
		return true;
	case FIELD_PID:
		write_process(writer, 0, 32);
		return true;
	case FIELD_GRID_DIM:
		write_pair(writer, "%nctaid.x", NULL, "%nctaid.y");
		return true;
	case FIELD_GRID_DIM_Z:
		write_special(writer, "%nctaid.z");
		return true;
	case FIELD_BLOCK_DIM:
		write_pair(writer, "%ntid.x", "%ntid.y", "%ntid.z");
		return true;
	case FIELD_SHARED_BYTES:
		write_special(writer, "%dynamic_smem_size");
		return true;
	case FIELD_PARAM_COUNT:
		*number = function->parameter_count;
		return false;
	}
	if (writer->field - FIELD_PARAMS >= function->parameter_count ||
	    8 * writer->field >= POINT_STRUCT_MAX)
		return false;
	return write_parameter(
		writer,
		&module->parameters[function->first_parameter + writer->field - FIELD_PARAMS]);
}

/* Is it an expression of numbers, 1+2*3, (.u64)-1, WARP_SZ? */
static bool is_expression(const struct writer *writer, uint32_t first, uint32_t end) {
	for (uint32_t i = first; i < end; i++) {
		const struct ptx_token *token = &writer->body->tokens[i];

		if (token->kind != PTX_TOKEN_INTEGER &&
		    !ptx_token_is(writer->text, token, "WARP_SZ") &&
		    !ptx_token_is(writer->text, token, ".u64") &&
		    !ptx_token_is(writer->text, token, ".s64") &&
		    (token->kind != PTX_TOKEN_PUNCTUATION ||
		     !strchr("+-*/%&|^~()<>!?:=", writer->text[token->offset])))
			return false;
	}
	return first < end;
}

/* The text of tokens [first, end). */
static const char *range_text(const struct writer *writer, uint32_t first, uint32_t end,
			      int *length) {
	*length = (int)(writer->body->tokens[end - 1].offset +
			writer->body->tokens[end - 1].length - writer->body->tokens[first].offset);
	return token_text(writer, first);
}

/* What cvta converts from: "" is generic, NULL: it cannot. */
static const char *address_space(const struct writer *writer) {
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

/* Where 64 bits are: a piece of text. */
struct source {
	const char *text;
	int length;
	bool narrow; /* of a narrower register */
};

/*
 * A register as it stands in the text if it has 64 bits; any other, a variable or a number in `to`,
 * the field's register. False if it is none of them.
 */
static bool find_base(const struct writer *writer, uint32_t token, const char *to,
		      struct source *source) {
	const struct probe_place *place = writer->place;
	const struct ptx_token *word = &writer->body->tokens[token];
	struct probe_register found;

	*source = (struct source){ .text = token_text(writer, token),
				   .length = token_length(writer, token) };
	if (probe_names_register(place->names, place->statement, token, &found)) {
		if (found.vector != 1)
			return false;
		if (found.type == PTX_TYPE_B64 || found.type == PTX_TYPE_U64 ||
		    found.type == PTX_TYPE_S64)
			return true;
		if (!widen(writer, to, found.type, source->text, source->length, ""))
			return false;
		source->narrow = true;
	} else if (word->kind == PTX_TOKEN_WORD || word->kind == PTX_TOKEN_INTEGER) {
		LINE(writer, "mov.u64 %s, %.*s;", to, source->length, source->text);
	} else {
		return false;
	}
	source->text = to;
	source->length = (int)strlen(to);
	return true;
}

/* [base], [base+constant], [base, {...}], array[index]. False: it cannot be had. */
static bool write_address(const struct writer *writer) {
	const char *space = address_space(writer), *expression;
	const struct ptx_operand *operand;
	struct source source;
	char to[32];
	uint32_t base, first, end;
	int length;

	if (writer->place->access->address == PTX_NONE || !space)
		return false;
	operand = &writer->body->operands[writer->place->access->address];
	target_name(writer, false, to, sizeof(to));
	base = operand->first + 1;
	if (probe_names_addressed(writer->body, operand) == operand->first) {
		expression = range_text(writer, operand->first, operand->end, &length);
		declare(writer);
		LINE(writer, "mov.u64 %s, %.*s;", to, length, expression);
		if (*space)
			LINE(writer, "cvta.%s.u64 %s, %s;", space, to, to);
		return true;
	}
	for (end = base; end < operand->end - 1; end++)
		if (ptx_token_is_char(writer->text, &writer->body->tokens[end], ','))
			break;
	if (base >= end)
		return false;
	first = base + 1;
	if (first < end)
		first += ptx_token_is_char(writer->text, &writer->body->tokens[first], '+');
	if (first < end && !is_expression(writer, first, end))
		return false;
	declare(writer);
	if (!find_base(writer, base, to, &source)) {
		LINE(writer, "mov.b64 %s, 0;", to);
		return true;
	}
	if (first < end) {
		expression = range_text(writer, first, end, &length);
		LINE(writer, "add.s64 %s, %.*s, %.*s;", to, source.length, source.text, length,
		     expression);
		if (source.narrow && *space &&
		    strcmp(space,
			   "global")) /* the instruction adds as many bits as the register has */
			LINE(writer, "and.b64 %s, %s, 0xffffffff;", to, to);
		source = (struct source){ .text = to, .length = (int)strlen(to) };
	}
	if (*space)
		LINE(writer, "cvta.%s.u64 %s, %.*s;", space, to, source.length, source.text);
	else if (source.text != to)
		LINE(writer, "mov.b64 %s, %.*s;", to, source.length, source.text);
	return true;
}

/* The bits of [-]number as an element of the access; false if the tokens are none. */
static bool constant_bits(const struct writer *writer, uint32_t first, uint32_t end,
			  uint64_t *bits) {
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

static uint64_t element_mask(const struct writer *writer) {
	uint32_t bytes = writer->place->access->element;

	return bytes < 8 ? (UINT64_C(1) << 8 * bytes) - 1 : UINT64_MAX;
}

/* One element, tokens [first, end), at a byte of the value. suffix: ".x" of a vector's name, or "".
 */
static void write_element(const struct writer *writer, uint32_t first, uint32_t end, uint32_t at,
			  const char *suffix) {
	const struct probe_place *place = writer->place;
	uint64_t bits = 0, mask = element_mask(writer);
	struct probe_register found = { 0 };
	const char *expression;
	char to[32];
	int length;

	if (at)
		LINE(writer, "{\n\t.reg .b64 " TEMPORARY ";");
	target_name(writer, at, to, sizeof(to));
	if (first < end && !constant_bits(writer, first, end, &bits) &&
	    is_expression(writer, first, end)) {
		expression = range_text(writer, first, end, &length);
		LINE(writer, "mov.b64 %s, %.*s;", to, length, expression);
	} else if (end != first + 1 ||
		   !probe_names_register(place->names, place->statement, first, &found) ||
		   !widen(writer, to, found.type, token_text(writer, first),
			  token_length(writer, first), suffix)) {
		LINE(writer, "mov.b64 %s, 0x%" PRIx64 ";", to, bits & mask);
	}
	if (ptx_type_size(found.type) != place->access->element && mask != UINT64_MAX)
		LINE(writer, "and.b64 %s, %s, 0x%" PRIx64 ";", to, to, mask);
	if (at) {
		merge(writer, at);
		LINE(writer, "}");
	}
}

/* The elements of a vector's name: v.x, v.y, ... */
static void write_vector(const struct writer *writer, uint32_t token, uint32_t count) {
	static const char *const suffixes[] = { ".x", ".y", ".z", ".w" };
	uint32_t element = writer->place->access->element;

	for (uint32_t i = 0; i < count && i < 4 && i * element < 8; i++)
		write_element(writer, token, token + 1, i * element, suffixes[i]);
}

/* The first 8 bytes of the operand: a, {a, b, ...} or a vector's name. False: *number is the value.
 */
static bool write_value(const struct writer *writer, uint64_t *number) {
	const struct probe_access *access = writer->place->access;
	const struct ptx_operand *operand;
	struct probe_register found;
	uint32_t from, at = 0;

	if (access->value == PTX_NONE || !access->element)
		return false;
	operand = &writer->body->operands[access->value];
	if (constant_bits(writer, operand->first, operand->end, number)) {
		*number &= element_mask(writer);
		return false;
	}
	declare(writer);
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
		   probe_names_register(writer->place->names, writer->place->statement,
					operand->first, &found) &&
		   found.vector > 1) {
		write_vector(writer, operand->first, found.vector);
	} else {
		write_element(writer, operand->first, operand->end, 0, "");
	}
	return true;
}

/* How many bytes an operand says. False: *number is known. */
static bool write_size(const struct writer *writer, uint64_t *number) {
	const struct probe_access *access = writer->place->access;
	const struct probe_place *place = writer->place;
	const struct ptx_operand *operand;
	struct probe_register found;
	char to[32];

	*number = access->size;
	if (access->size_operand == PTX_NONE)
		return false;
	operand = &writer->body->operands[access->size_operand];
	if (constant_bits(writer, operand->first, operand->end, number))
		return false;
	*number = 0;
	if (operand->end != operand->first + 1 ||
	    !probe_names_register(place->names, place->statement, operand->first, &found) ||
	    !ptx_type_size(found.type) || found.vector != 1)
		return false;
	declare(writer);
	return widen(writer, target_name(writer, false, to, sizeof(to)), found.type,
		     token_text(writer, operand->first), token_length(writer, operand->first), "");
}

/* A field of gpuprobe_memory_ctx. False: *number is its value. */
static bool write_memory_field(const struct writer *writer, uint64_t *number) {
	*number = 0;
	switch (writer->field) {
	case FIELD_INSTRUCTION_ID:
		*number = writer->place->instruction;
		return false;
	case FIELD_ADDRESS:
		return write_address(writer);
	case FIELD_SIZE:
		return write_size(writer, number);
	case FIELD_SPACE:
		*number = writer->place->access->space;
		return false;
	case FIELD_KIND:
		*number = writer->place->access->kind;
		return false;
	case FIELD_VALUE:
		return write_value(writer, number);
	}
	return false; /* behind the end of this context */
}

/*
 * Are the fields that the place fixes the same in all lanes that may meet in a program? In code
 * that stands here alone, and if the size is no register's. In a function that other places call,
 * lanes of two places may meet.
 */
static bool is_uniform(const struct writer *writer) {
	const struct probe_access *access = writer->place->access;
	const struct ptx_operand *size;
	uint64_t number;

	if (!writer->place->inlined)
		return false;
	if (!access || access->size_operand == PTX_NONE)
		return true;
	size = &writer->body->operands[access->size_operand];
	return constant_bits(writer, size->first, size->end, &number);
}

void probe_context_write(FILE *stream, const struct probe_place *place,
			 struct probe_context *context) {
	struct writer writer = {
		.stream = stream,
		.place = place,
		.body = place->names->body,
		.text = place->names->body->module->text,
	};

	for (unsigned int field = 0; field < PROBE_FIELDS; field++) {
		char *argument = context->arguments[field];
		bool written =
			place->launch && point_is_launch(context_of(place->access), 8 * field);
		uint64_t number;

		if (!(context->wanted & 1u << field))
			continue;
		writer.field = field;
		if (written)
			write_launch(&writer);
		else if (8 * field == POINT_UNIFORM)
			number = is_uniform(&writer);
		else
			written = place->access ? write_memory_field(&writer, &number)
						: write_kernel_field(&writer, &number);
		if (written)
			snprintf(argument, sizeof(context->arguments[field]), FIELD, field);
		else
			snprintf(argument, sizeof(context->arguments[field]), "0x%" PRIx64, number);
	}
}

bool probe_context_needs_process(uint32_t wanted) {
	return wanted & (1u << FIELD_DEVICE | 1u << FIELD_PID);
}

bool probe_context_reads_launch(uint32_t wanted, bool memory) {
	const uint32_t first = point_contexts[context_of(memory)].launch / 8;

	return wanted >> first & ((1u << LAUNCH_BLOCK_FIELDS) - 1);
}
