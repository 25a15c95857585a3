/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Resolves names in the body of a PTX function (probe-names.h): to the register or variable that is
 * declared in the innermost scope around a statement.
 */

#include "probe-names.h"

#include <errno.h>
#include <stdlib.h>

static int compare_ranges(const char *text, struct ptx_range left, struct ptx_range right) {
	if (left.length != right.length)
		return left.length < right.length ? -1 : 1;
	return memcmp(text + left.offset, text + right.offset, left.length);
}

static int compare_registers(const void *a, const void *b, void *context) {
	const struct ptx_body *body = context;
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	int order = compare_ranges(body->module->text, body->registers[left].name,
				   body->registers[right].name);

	return order ? order : (left > right) - (left < right);
}

static int compare_variables(const void *a, const void *b, void *context) {
	const struct ptx_body *body = context;
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	int order = compare_ranges(body->module->text, body->variables[left].name,
				   body->variables[right].name);

	return order ? order : (left > right) - (left < right);
}

static uint32_t *sorted(uint32_t count, int (*compare)(const void *, const void *, void *),
			const struct ptx_body *body) {
	uint32_t *indexes = calloc((size_t)count + 1, sizeof(*indexes));

	for (uint32_t i = 0; indexes && i < count; i++)
		indexes[i] = i;
	if (indexes)
		qsort_r(indexes, count, sizeof(*indexes), compare, (void *)(uintptr_t)body);
	return indexes;
}

int probe_names_init(struct probe_names *names, const struct ptx_body *body) {
	uint32_t open = PTX_NONE;

	names->body = body;
	names->scopes = calloc((size_t)body->statement_count + 1, sizeof(*names->scopes));
	names->registers = sorted(body->register_count, compare_registers, body);
	names->variables = sorted(body->variable_count, compare_variables, body);
	if (!names->scopes || !names->registers || !names->variables) {
		probe_names_deinit(names);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < body->statement_count; i++) {
		if (body->statements[i].kind == PTX_STATEMENT_SCOPE_CLOSE)
			open = names->scopes[body->statements[i].partner];
		names->scopes[i] = open;
		if (body->statements[i].kind == PTX_STATEMENT_SCOPE_OPEN)
			open = i;
	}
	names->scopes[body->statement_count] = PTX_NONE;
	return 0;
}

void probe_names_deinit(struct probe_names *names) {
	free(names->scopes);
	free(names->registers);
	free(names->variables);
	*names = (struct probe_names){ 0 };
}

/* Does what `declaring` declares hold at `at`? */
static bool encloses(const struct probe_names *names, uint32_t declaring, uint32_t at) {
	uint32_t open = names->scopes[declaring];

	return declaring < at && (open == PTX_NONE || at < names->body->statements[open].partner);
}

static struct ptx_range name_of(const struct probe_names *names, uint32_t index, bool registers) {
	return registers ? names->body->registers[index].name : names->body->variables[index].name;
}

static uint32_t count_of(const struct probe_names *names, uint32_t index, bool registers) {
	return registers ? names->body->registers[index].count
			 : names->body->variables[index].count;
}

static uint32_t statement_of(const struct probe_names *names, uint32_t index, bool registers) {
	return registers ? names->body->registers[index].statement
			 : names->body->variables[index].statement;
}

/*
 * The innermost declaration of the name that holds at the statement; PTX_NONE. number: PTX_NONE, or
 * that of %r<N>.
 */
static uint32_t find(const struct probe_names *names, struct ptx_range name, uint32_t number,
		     uint32_t at, bool registers) {
	const uint32_t *sorted_indexes = registers ? names->registers : names->variables;
	const char *text = names->body->module->text;
	uint32_t from = 0,
		 to = registers ? names->body->register_count : names->body->variable_count;

	/* behind the last of that name that stands before the statement */
	while (from < to) {
		uint32_t middle = from + (to - from) / 2, index = sorted_indexes[middle];
		int order = compare_ranges(text, name_of(names, index, registers), name);

		if (order < 0 || (!order && statement_of(names, index, registers) < at))
			from = middle + 1;
		else
			to = middle;
	}
	while (from--) {
		uint32_t index = sorted_indexes[from], count = count_of(names, index, registers);

		if (compare_ranges(text, name_of(names, index, registers), name))
			break;
		if (encloses(names, statement_of(names, index, registers), at) &&
		    (number == PTX_NONE ? !count : number < count))
			return index;
	}
	return PTX_NONE;
}

/* %r12: declared as such, or as %r<N>, or even as %r1<N>. */
static uint32_t find_declared(const struct probe_names *names, struct ptx_range name, uint32_t at,
			      bool registers) {
	const char *text = names->body->module->text;
	uint32_t index, found = find(names, name, PTX_NONE, at, registers);
	uint64_t number = 0, unit = 1;

	for (uint32_t length = name.length; length > 1 && name.length - length < 9; unit *= 10) {
		char digit = text[name.offset + --length];

		if (digit < '0' || digit > '9')
			break;
		number += (uint64_t)(digit - '0') * unit;
		if (digit == '0' && name.length - length > 1)
			continue; /* %r01 is not one of %r<N> */
		index = find(names, (struct ptx_range){ name.offset, length }, (uint32_t)number, at,
			     registers);
		if (index != PTX_NONE &&
		    (found == PTX_NONE ||
		     statement_of(names, index, registers) > statement_of(names, found, registers)))
			found = index;
	}
	return found;
}

/* The parameter of that name. */
static const struct ptx_variable *find_parameter(const struct probe_names *names,
						 struct ptx_range name) {
	const struct ptx_module *module = names->body->module;
	const struct ptx_function *function = names->body->function;

	for (uint32_t i = 0; i < function->parameter_count; i++) {
		const struct ptx_variable *parameter =
			&module->parameters[function->first_parameter + i];

		if (!compare_ranges(module->text, parameter->name, name))
			return parameter;
	}
	return NULL;
}

bool probe_names_register(const struct probe_names *names, uint32_t statement, uint32_t token,
			  struct probe_register *out) {
	const struct ptx_token *word = &names->body->tokens[token];
	const char *text = names->body->module->text, *dot;
	struct ptx_range name = { word->offset, word->length };
	const struct ptx_variable *parameter;
	uint32_t index;

	if (word->kind != PTX_TOKEN_WORD)
		return false;
	dot = memchr(text + name.offset, '.', name.length);
	if (dot)
		name.length = (uint32_t)(dot - text) - name.offset;
	index = find_declared(names, name, statement, true);
	if (index != PTX_NONE) {
		*out = (struct probe_register){ names->body->registers[index].type,
						dot ? 1 : names->body->registers[index].vector };
		return true;
	}
	parameter = find_parameter(names, name);
	if (!parameter || parameter->space != PTX_SPACE_REG)
		return false;
	*out = (struct probe_register){ parameter->type, dot ? 1 : parameter->vector };
	return true;
}

const struct ptx_variable *probe_names_variable(const struct probe_names *names, uint32_t statement,
						uint32_t token) {
	const struct ptx_token *word = &names->body->tokens[token];
	uint32_t index = find_declared(names, (struct ptx_range){ word->offset, word->length },
				       statement, false);

	return index == PTX_NONE ? NULL : &names->body->variables[index];
}

bool probe_names_hide(const struct probe_names *names, uint32_t statement, struct ptx_range name) {
	return find_declared(names, name, statement, false) != PTX_NONE ||
	       find_declared(names, name, statement, true) != PTX_NONE;
}

uint32_t probe_names_addressed(const struct ptx_body *body, const struct ptx_operand *operand) {
	const char *text = body->module->text;

	if (operand->end - operand->first < 3)
		return PTX_NONE;
	if (ptx_token_is_char(text, &body->tokens[operand->first], '['))
		return operand->first + 1;
	return ptx_token_is_char(text, &body->tokens[operand->first + 1], '[') ? operand->first
									       : PTX_NONE;
}
