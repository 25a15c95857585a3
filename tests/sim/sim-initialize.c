/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). Initial values of variables: numbers, strings, addresses
 * (sym, sym+4, generic(sym), 0xFF(sym) for one byte of it), in braces that may nest. Sub-arrays
 * shorter than their dimension are not padded: compilers write all elements.
 */

#include <string.h>

#include "sim-program.h"

struct initializer {
	struct sim_program *program;
	const struct ptx_module *module;
	const struct sim_variable *variable;
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	enum ptx_type type;
	uint32_t element;
	uint64_t at; /* bytes filled */
};

static bool next(struct initializer *init) {
	return ptx_lexer_next(&init->lexer, &init->token, &init->error) == 0;
}

static bool is(const struct initializer *init, char c) {
	return ptx_token_is_char(init->module->text, &init->token, c);
}

static bool put(struct initializer *init, uint64_t bits) {
	uint32_t size = init->element;

	if (size > 8 || init->at + size > init->variable->size)
		return false;
	memcpy((char *)init->variable->memory + init->at, &bits, size);
	init->at += size;
	return true;
}

/* The address that a name stands for. */
static bool symbol_value(const struct initializer *init, uint64_t *value) {
	const char *name = init->module->text + init->token.offset;
	const struct sim_variable *variable =
		sim_program_variable(init->program, init->module, name, init->token.length);
	const struct sim_function *function;

	if (variable) {
		*value = variable->address;
		return true;
	}
	function = sim_program_function(init->program, init->module, name, init->token.length);
	*value = (uint64_t)(uintptr_t)function;
	return function;
}

static bool integer(struct initializer *init, uint64_t *value) {
	return ptx_integer_value(init->module->text + init->token.offset, init->token.length,
				 value) &&
	       next(init);
}

/* [+-] integer, any number of times. */
static bool addend(struct initializer *init, uint64_t *value) {
	while (is(init, '+') || is(init, '-')) {
		bool negative = is(init, '-');
		uint64_t more;

		if (!next(init))
			return false;
		if (is(init, '-')) {
			negative = !negative;
			if (!next(init))
				return false;
		}
		if (!integer(init, &more))
			return false;
		*value += negative ? -more : more;
	}
	return true;
}

/* sym, sym+4, generic(sym), generic(sym)+4 */
static bool address(struct initializer *init, uint64_t *value) {
	bool generic = ptx_token_is(init->module->text, &init->token, "generic");

	if (generic && (!next(init) || !is(init, '(') || !next(init)))
		return false;
	if (init->token.kind != PTX_TOKEN_WORD || !symbol_value(init, value) || !next(init))
		return false;
	if (!addend(init, value))
		return false;
	if (generic && (!is(init, ')') || !next(init)))
		return false;
	return addend(init, value);
}

static uint64_t float_bits(const struct initializer *init, uint64_t bits, unsigned int width) {
	float narrow;
	double wide;
	uint32_t low = bits;

	if (init->element == 4 && width == 64) {
		memcpy(&wide, &bits, 8);
		narrow = (float)wide;
		memcpy(&low, &narrow, 4);
		return low;
	}
	if (init->element == 8 && width == 32) {
		memcpy(&narrow, &low, 4);
		wide = narrow;
		memcpy(&bits, &wide, 8);
	}
	return bits;
}

static bool number(struct initializer *init) {
	const char *text = init->module->text;
	bool negative = false, floating = init->type == PTX_TYPE_F32 || init->type == PTX_TYPE_F64;
	unsigned int width;
	uint64_t value;

	if (is(init, '-')) {
		negative = true;
		if (!next(init))
			return false;
	}
	if (init->token.kind == PTX_TOKEN_FLOAT) {
		if (!ptx_float_bits(text + init->token.offset, init->token.length, &value, &width))
			return false;
		value = float_bits(init, value, width);
		if (negative)
			value ^= UINT64_C(1) << (8 * init->element - 1);
		return next(init) && put(init, value);
	}
	if (!integer(init, &value))
		return false;
	if (is(init, '(')) { /* mask(symbol): one byte of an address */
		uint64_t mask = value;

		if (!next(init) || !address(init, &value) || !is(init, ')') || !next(init) || !mask)
			return false;
		value = (value & mask) >> __builtin_ctzll(mask);
	}
	if (negative)
		value = -value;
	if (floating) {
		double wide = (double)(int64_t)value;

		memcpy(&value, &wide, 8);
		value = float_bits(init, value, 64);
	}
	return addend(init, &value) && put(init, value);
}

static bool string(struct initializer *init) {
	const char *text = init->module->text + init->token.offset;

	for (uint32_t n = 1; n + 1 < init->token.length; n++)
		if (!put(init, (unsigned char)text[n]))
			return false;
	return next(init);
}

/* Braces are walked without recursion: they only say where elements are. */
static bool values(struct initializer *init) {
	uint32_t depth = 0;

	do {
		bool good = true;

		while (is(init, '{')) {
			depth++;
			if (!next(init))
				return false;
		}
		if (init->token.kind == PTX_TOKEN_STRING)
			good = string(init);
		else if (init->token.kind == PTX_TOKEN_WORD) {
			uint64_t value;

			good = address(init, &value) && put(init, value);
		} else if (!is(init, '}')) {
			good = number(init);
		}
		if (!good)
			return false;
		while (depth && is(init, '}')) {
			depth--;
			if (!next(init))
				return false;
		}
	} while (depth && is(init, ',') && next(init));
	return !depth && init->token.kind == PTX_TOKEN_END;
}

CUresult sim_initialize(struct sim_program *program, const struct sim_variable *variable,
			const struct ptx_variable *source, char *message, size_t message_size) {
	struct initializer init = {
		.program = program,
		.module = &program->modules[variable->module],
		.variable = variable,
		.type = source->type,
		.element = ptx_type_size(source->type),
	};

	if (!source->initializer.length || !variable->memory)
		return CUDA_SUCCESS;
	ptx_lexer_init(&init.lexer, init.module->text, source->initializer.offset,
		       source->initializer.offset + source->initializer.length);
	if (!next(&init) || !values(&init))
		return sim_say(message, message_size, CUDA_ERROR_INVALID_PTX,
			       "%s: its initial value is not understood", variable->name);
	return CUDA_SUCCESS;
}
