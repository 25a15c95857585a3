/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). Operands: every source becomes a register, by an
 * instruction put in front if need be (special registers, frame addresses).
 */

#include <stdlib.h>

#include "sim-decode.h"

static bool bad_operand(struct sim_decoder *d, uint32_t first, uint32_t end) {
	struct ptx_range range = { 0 };

	if (first < end)
		range = sim_token_range(d, first);
	return sim_decode_fail(d, "an operand is not understood: %.*s",
			       (int)(range.length < 80 ? range.length : 80), sim_text(d, range));
}

static uint64_t float_constant(uint64_t bits, unsigned int width, enum ptx_type type) {
	if (type == PTX_TYPE_F32 && width == 64)
		return sim_f32_bits((float)sim_f64(bits));
	if (type == PTX_TYPE_F64 && width == 32)
		return sim_f64_bits(sim_f32(bits));
	return bits;
}

/* A constant expression of the simple kind: [-~!] number, and sums of such. */
static bool constant_expression(struct sim_decoder *d, uint32_t first, uint32_t end,
				enum ptx_type type, uint64_t *out) {
	uint64_t sum = 0;
	bool floating = type == PTX_TYPE_F32 || type == PTX_TYPE_F64;
	uint32_t at = first;

	while (at < end) {
		bool negative = false, invert = false, logical = false;
		const struct ptx_token *token;
		unsigned int width;
		uint64_t value;

		for (; at < end && d->body->tokens[at].kind == PTX_TOKEN_PUNCTUATION; at++) {
			if (sim_token_char(d, at, '-'))
				negative = !negative;
			else if (sim_token_char(d, at, '~'))
				invert = !invert;
			else if (sim_token_char(d, at, '!'))
				logical = !logical;
			else if (!sim_token_char(d, at, '+'))
				return bad_operand(d, at, end);
		}
		if (at >= end)
			return bad_operand(d, first, end);
		token = &d->body->tokens[at++];
		if (token->kind == PTX_TOKEN_FLOAT) {
			if (!ptx_float_bits(d->module->text + token->offset, token->length, &value,
					    &width) ||
			    sum)
				return bad_operand(d, first, end);
			value = float_constant(value, width, type);
			if (negative)
				value ^= type == PTX_TYPE_F64 ? UINT64_C(1) << 63
							      : UINT64_C(1) << 31;
			*out = value;
			return at == end || bad_operand(d, first, end);
		}
		if (token->kind != PTX_TOKEN_INTEGER ||
		    !ptx_integer_value(d->module->text + token->offset, token->length, &value))
			return bad_operand(d, first, end);
		if (logical)
			value = !value;
		if (invert)
			value = ~value;
		sum += negative ? -value : value;
		if (at < end && !sim_token_char(d, at, '+') && !sim_token_char(d, at, '-'))
			return bad_operand(d, first, end);
	}
	if (floating)
		sum = type == PTX_TYPE_F32 ? sim_f32_bits((float)(int64_t)sum)
					   : sim_f64_bits((double)(int64_t)sum);
	*out = sum;
	return true;
}

/* The address of a variable or function outside of the frame; false, without a word, if the name is
 * none. */
static bool outer_address(struct sim_decoder *d, struct ptx_range name, uint64_t *address,
			  bool *shared, uint64_t *size) {
	const char *text = sim_text(d, name);
	const struct sim_variable *variable =
		sim_program_variable(d->function->program, d->module, text, name.length);
	const struct sim_function *function;

	if (variable) {
		uint32_t index = variable - d->function->program->variables;

		*shared = variable->space == PTX_SPACE_SHARED;
		*address = variable->address;
		*size = variable->size;
		if (*shared && !d->used[index]) {
			d->used[index] = 1;
			d->function->shared_size += variable->size;
		}
		return true;
	}
	function = sim_program_function(d->function->program, d->module, text, name.length);
	*shared = false;
	*size = 0;
	*address = (uint64_t)(uintptr_t)function;
	return function;
}

static bool name_source(struct sim_decoder *d, struct ptx_range name, int64_t addend,
			uint32_t *slot) {
	uint32_t index;
	const struct sim_symbol *symbol = sim_find_symbol(d, name, &index);
	struct sim_insn *insn;
	uint64_t address, size;
	bool shared;
	int special;

	if (symbol && symbol->kind == SIM_SYMBOL_REGISTER) {
		*slot = symbol->slot + index;
		return !addend || sim_decode_fail(d, "a register plus a number is no operand");
	}
	if (symbol && symbol->kind == SIM_SYMBOL_ADDRESS)
		return sim_constant(d, symbol->address + addend, slot);
	if (symbol) {
		int64_t offset = symbol->offset + addend;

		if (!sim_temporary(d, slot))
			return false;
		insn = sim_emit(d, sim_op_frame_address());
		if (!insn)
			return false;
		insn->d = *slot;
		insn->offset = offset;
		return true;
	}
	special = sim_special_from_name(sim_text(d, name), name.length);
	if (special >= 0) {
		if (!sim_temporary(d, slot))
			return false;
		insn = sim_emit(d, sim_op_control(SIM_CONTROL_SPECIAL));
		if (!insn)
			return false;
		insn->d = *slot;
		insn->mode = special;
		return true;
	}
	if (ptx_range_is(d->module->text, name, "WARP_SZ"))
		return sim_constant(d, SIM_WARP + addend, slot);
	if (outer_address(d, name, &address, &shared, &size))
		return sim_constant(d, address + addend, slot);
	return sim_decode_fail(d, "nothing has the name %.*s",
			       (int)(name.length < 120 ? name.length : 120), sim_text(d, name));
}

bool sim_source_tokens(struct sim_decoder *d, uint32_t first, uint32_t end, enum ptx_type type,
		       uint32_t *slot) {
	uint64_t value;

	if (first >= end)
		return bad_operand(d, first, end);
	if (d->body->tokens[first].kind == PTX_TOKEN_WORD) {
		uint64_t addend = 0;

		if (first + 1 < end &&
		    !constant_expression(d, first + 1, end, PTX_TYPE_B64, &addend))
			return false;
		return name_source(d, sim_token_range(d, first), addend, slot);
	}
	return constant_expression(d, first, end, type, &value) && sim_constant(d, value, slot);
}

bool sim_source(struct sim_decoder *d, uint32_t n, enum ptx_type type, uint32_t *slot) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];

	return sim_source_tokens(d, operand->first, operand->end, type, slot);
}

/* p, !p, or a number. */
bool sim_predicate_source(struct sim_decoder *d, uint32_t n, uint32_t *slot) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];
	uint32_t first = operand->first, inner;
	struct sim_insn *insn;
	sim_op negate = NULL;

	if (operand->end - first != 2 || !sim_token_char(d, first, '!') ||
	    d->body->tokens[first + 1].kind != PTX_TOKEN_WORD)
		return sim_source_tokens(d, first, operand->end, PTX_TYPE_B32, slot);
	for (const struct sim_op_row *row = sim_op_bits; row->key; row++)
		if (!strcmp(row->key, "not.pred"))
			negate = row->op;
	if (!sim_source_tokens(d, first + 1, operand->end, PTX_TYPE_PRED, &inner) ||
	    !sim_temporary(d, slot))
		return false;
	insn = sim_emit(d, negate);
	if (!insn)
		return false;
	insn->d = *slot;
	insn->a = inner;
	return true;
}

static bool register_tokens(struct sim_decoder *d, uint32_t first, uint32_t end, uint32_t *slot) {
	const struct sim_symbol *symbol;
	struct ptx_range name;
	uint32_t index;

	if (end - first != 1 || d->body->tokens[first].kind != PTX_TOKEN_WORD)
		return bad_operand(d, first, end);
	name = sim_token_range(d, first);
	if (ptx_range_is(d->module->text, name, "_")) {
		*slot = d->sink;
		return true;
	}
	symbol = sim_find_symbol(d, name, &index);
	if (!symbol || symbol->kind != SIM_SYMBOL_REGISTER)
		return sim_decode_fail(d, "%.*s is no register",
				       (int)(name.length < 120 ? name.length : 120),
				       sim_text(d, name));
	*slot = symbol->slot + index;
	return true;
}

bool sim_destination(struct sim_decoder *d, uint32_t n, uint32_t *slot) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];

	return register_tokens(d, operand->first, operand->end, slot);
}

bool sim_destination_pair(struct sim_decoder *d, uint32_t n, uint32_t *slot, uint32_t *second) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];

	*second = d->sink;
	if (operand->end - operand->first == 3 && sim_token_char(d, operand->first + 1, '|'))
		return register_tokens(d, operand->first, operand->first + 1, slot) &&
		       register_tokens(d, operand->first + 2, operand->end, second);
	return register_tokens(d, operand->first, operand->end, slot);
}

bool sim_vector_operand(struct sim_decoder *d, uint32_t n, enum ptx_type type, bool is_source,
			uint32_t slots[8], uint32_t *count) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];
	uint32_t first = operand->first + 1, at;

	*count = 0;
	if (operand->first >= operand->end || !sim_token_char(d, operand->first, '{'))
		return true;
	for (at = first; at < operand->end; at++) {
		if (!sim_token_char(d, at, ',') && !sim_token_char(d, at, '}'))
			continue;
		if (*count == 8)
			return bad_operand(d, operand->first, operand->end);
		if (is_source ? !sim_source_tokens(d, first, at, type, &slots[*count])
			      : !register_tokens(d, first, at, &slots[*count]))
			return false;
		++*count;
		first = at + 1;
	}
	return *count || bad_operand(d, operand->first, operand->end);
}

/* The base of an address: a register, a variable, or a number. */
static bool address_base(struct sim_decoder *d, uint32_t token, bool shared, uint32_t size,
			 struct sim_address *address) {
	const struct sim_symbol *symbol;
	struct ptx_range name = sim_token_range(d, token);
	uint64_t place, room;
	uint32_t index;

	address->access = shared ? SIM_ACCESS_SHARED : SIM_ACCESS_REAL;
	if (d->body->tokens[token].kind != PTX_TOKEN_WORD) {
		uint64_t value;

		return constant_expression(d, token, token + 1, PTX_TYPE_B64, &value) &&
		       sim_constant(d, value, &address->slot);
	}
	symbol = sim_find_symbol(d, name, &index);
	if (symbol && symbol->kind == SIM_SYMBOL_REGISTER) {
		address->slot = symbol->slot + index;
		return true;
	}
	if (symbol && symbol->kind == SIM_SYMBOL_FRAME) {
		if (address->offset < 0 || (uint64_t)address->offset + size > symbol->size)
			return sim_decode_fail(d, "%u bytes at offset %lld of %.*s, which has %llu",
					       size, (long long)address->offset,
					       (int)(name.length < 80 ? name.length : 80),
					       sim_text(d, name), (unsigned long long)symbol->size);
		address->access = SIM_ACCESS_FRAME;
		address->offset += symbol->offset;
		address->slot = d->zero;
		return true;
	}
	if (symbol) {
		place = symbol->address;
		shared = symbol->space == PTX_SPACE_SHARED;
	} else if (!outer_address(d, name, &place, &shared, &room)) {
		return sim_decode_fail(d, "nothing has the name %.*s",
				       (int)(name.length < 120 ? name.length : 120),
				       sim_text(d, name));
	}
	address->access = shared ? SIM_ACCESS_SHARED : SIM_ACCESS_REAL;
	return sim_constant(d, place, &address->slot);
}

bool sim_address(struct sim_decoder *d, uint32_t n, bool shared, uint32_t size,
		 struct sim_address *address) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];
	uint32_t first = operand->first + 1, end = operand->end - 1;
	uint64_t addend = 0;

	if (operand->end - operand->first < 3 || !sim_token_char(d, operand->first, '[') ||
	    !sim_token_char(d, end, ']'))
		return bad_operand(d, operand->first, operand->end);
	if (first + 1 < end && !constant_expression(d, first + 1, end, PTX_TYPE_B64, &addend))
		return false;
	address->offset = addend;
	return address_base(d, first, shared, size, address);
}
