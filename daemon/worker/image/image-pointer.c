/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the kernels of a module that cannot run in its twin (image-pointer.h).
 *
 * Bodies are parsed from the roots on, each one once, and their calls are noted. Then faults go up
 * from who has one to who calls it, and what is kept goes down from the roots. So the time is
 * linear in the text that can be reached.
 */

#include "image-pointer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct image_pointer_call {
	uint32_t caller, callee;
};

/* The calls of each function, or (by callee) those that call it: chains of 1 + index, 0 is the
 * end. */
struct chains {
	uint32_t *first, *next, *stack;
	uint32_t depth;
};

/* Functions of CUDA's own that code may call without being defined: they are the driver's. */
static bool is_system_call(const char *text, struct ptx_range name) {
	static const char *const known[] = { "vprintf", "malloc", "free", "__assertfail" };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (ptx_range_is(text, name, known[i]))
			return true;
	return false;
}

/* An index of a function of that name, always the same one. */
static uint32_t find(const struct ptx_module *module, const char *name, size_t length) {
	const struct ptx_function *function = ptx_module_find_function(module, name, length);

	return function ? (uint32_t)(function - module->functions) : PTX_NONE;
}

uint32_t image_pointer_definition(const struct image_pointer *pointer, const char *name,
				  size_t length) {
	const uint32_t index = find(pointer->module, name, length);

	return index == PTX_NONE ? PTX_NONE : pointer->definitions[index];
}

bool image_pointer_is_function(const struct ptx_module *module, const struct ptx_token *token) {
	return token->kind == PTX_TOKEN_WORD && module->text[token->offset] != '%' &&
	       find(module, module->text + token->offset, token->length) != PTX_NONE;
}

/* `.alias name, function;` */
static void read_alias(struct image_pointer *pointer, const struct ptx_range *text) {
	const struct ptx_module *module = pointer->module;
	uint32_t names[2] = { PTX_NONE, PTX_NONE };
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	size_t count = 0;

	ptx_lexer_init(&lexer, module->text, text->offset, text->offset + text->length);
	while (count < 2 && !ptx_lexer_next(&lexer, &token, &error) && token.kind != PTX_TOKEN_END)
		if (token.kind == PTX_TOKEN_WORD)
			names[count++] = find(module, module->text + token.offset, token.length);
	if (names[0] != PTX_NONE && names[1] != PTX_NONE &&
	    !module->functions[names[0]].body.length && module->functions[names[1]].body.length)
		pointer->definitions[names[0]] = names[1];
}

static void find_definitions(struct image_pointer *pointer) {
	const struct ptx_module *module = pointer->module;

	for (uint32_t i = 0; i < module->function_count; i++)
		pointer->definitions[i] = module->functions[i].body.length ? i : PTX_NONE;
	for (uint32_t i = 0; i < module->item_count; i++)
		if (module->items[i].kind == PTX_ITEM_ALIAS)
			read_alias(pointer, &module->items[i].text);
	for (uint32_t i = 0; i < module->function_count; i++) { /* one name, several prototypes */
		const struct ptx_range name = module->functions[i].name;

		if (pointer->definitions[i] == PTX_NONE)
			pointer->definitions[i] = image_pointer_definition(
				pointer, module->text + name.offset, name.length);
	}
}

static int add_call(struct image_pointer *pointer, uint32_t caller, uint32_t callee) {
	if (pointer->call_count == pointer->call_capacity) {
		const uint32_t capacity = pointer->call_capacity ? 2 * pointer->call_capacity : 64;
		struct image_pointer_call *more =
			reallocarray(pointer->calls, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		pointer->calls = more;
		pointer->call_capacity = capacity;
	}
	pointer->calls[pointer->call_count++] = (struct image_pointer_call){ caller, callee };
	return 0;
}

static void note(struct image_pointer *pointer, uint32_t function, enum image_pointer_fault fault,
		 const struct ptx_token *token) {
	struct image_pointer_function *one = &pointer->functions[function];

	if (one->fault)
		return;
	one->fault = fault;
	one->where = function;
	if (token)
		one->name = (struct ptx_range){ token->offset, token->length };
}

/* A call by name. */
static int read_call(struct image_pointer *pointer, uint32_t caller,
		     const struct ptx_token *target) {
	const struct ptx_range name = { target->offset, target->length };
	const char *text = pointer->module->text;
	const uint32_t callee = image_pointer_definition(pointer, text + name.offset, name.length);

	if (callee != PTX_NONE)
		return add_call(pointer, caller, callee);
	if (!is_system_call(text, name))
		note(pointer, caller, IMAGE_POINTER_OUTSIDE, target);
	return 0;
}

/* Whatever names a function and is no call of it takes its address, or could. */
static int read_tokens(struct image_pointer *pointer, uint32_t caller, const struct ptx_body *body,
		       uint32_t first, uint32_t end, uint32_t target) {
	int r = 0;

	for (uint32_t i = first; !r && i < end; i++)
		if (i == target)
			r = read_call(pointer, caller, &body->tokens[i]);
		else if (image_pointer_is_function(pointer->module, &body->tokens[i]))
			note(pointer, caller, IMAGE_POINTER_ADDRESS, &body->tokens[i]);
	return r;
}

static int read_instruction(struct image_pointer *pointer, uint32_t caller,
			    const struct ptx_body *body, const struct ptx_statement *statement) {
	const struct ptx_operand *operands = body->operands + statement->first_operand;
	struct ptx_call call = { .target = PTX_NONE };

	if (ptx_instruction_is(body, statement, "call") &&
	    (!ptx_instruction_call(body, statement, &call) || call.indirect)) {
		note(pointer, caller, IMAGE_POINTER_CALL, NULL);
		return 0;
	}
	return statement->operand_count
		       ? read_tokens(pointer, caller, body, operands[0].first,
				     operands[statement->operand_count - 1].end, call.target)
		       : 0;
}

/* Tables and prototypes of calls by pointers say nothing: such a call is a fault itself. */
static int read_statement(struct image_pointer *pointer, uint32_t caller,
			  const struct ptx_body *body, const struct ptx_statement *statement) {
	switch ((enum ptx_statement_kind)statement->kind) {
	case PTX_STATEMENT_INSTRUCTION:
		return read_instruction(pointer, caller, body, statement);
	case PTX_STATEMENT_VARIABLE: /* with an initializer, perhaps */
	case PTX_STATEMENT_OTHER:
		return read_tokens(pointer, caller, body, statement->first, statement->end,
				   PTX_NONE);
	case PTX_STATEMENT_LABEL:
	case PTX_STATEMENT_REGISTERS:
	case PTX_STATEMENT_SCOPE_OPEN:
	case PTX_STATEMENT_SCOPE_CLOSE:
	case PTX_STATEMENT_LOC:
	case PTX_STATEMENT_FILE:
	case PTX_STATEMENT_PRAGMA:
	case PTX_STATEMENT_BRANCH_TARGETS:
	case PTX_STATEMENT_CALL_TARGETS:
	case PTX_STATEMENT_CALL_PROTOTYPE:
	case PTX_STATEMENT_SECTION:
		break;
	}
	return 0;
}

static int read_body(struct image_pointer *pointer, uint32_t index) {
	struct ptx_error error;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, pointer->module, &pointer->module->functions[index], &error);
	if (r > 0)
		note(pointer, index, IMAGE_POINTER_TEXT, NULL);
	if (r)
		return r < 0 ? r : 0;
	for (uint32_t i = 0; !r && i < body.statement_count; i++)
		r = read_statement(pointer, index, &body, &body.statements[i]);
	ptx_body_deinit(&body);
	return r;
}

/* Reads what is on the stack, and what that calls. */
static int read_all(struct image_pointer *pointer, struct chains *chains) {
	int r = 0;

	while (!r && chains->depth) {
		uint32_t done = pointer->call_count;

		r = read_body(pointer, chains->stack[--chains->depth]);
		for (; !r && done < pointer->call_count; done++) {
			const uint32_t callee = pointer->calls[done].callee;

			if (pointer->functions[callee].reached)
				continue;
			pointer->functions[callee].reached = true;
			chains->stack[chains->depth++] = callee;
		}
	}
	return r;
}

static void chain(struct chains *chains, const struct image_pointer *pointer, bool by_callee) {
	memset(chains->first, 0, pointer->module->function_count * sizeof(*chains->first));
	for (uint32_t i = 0; i < pointer->call_count; i++) {
		const struct image_pointer_call *call = &pointer->calls[i];
		uint32_t *first = &chains->first[by_callee ? call->callee : call->caller];

		chains->next[i] = *first;
		*first = i + 1;
	}
}

/* Who calls a function with a fault has it, too. */
static void spread_faults(struct image_pointer *pointer, struct chains *chains) {
	chain(chains, pointer, true);
	for (uint32_t i = 0; i < pointer->module->function_count; i++)
		if (pointer->functions[i].fault)
			chains->stack[chains->depth++] = i;
	while (chains->depth) {
		const uint32_t from = chains->stack[--chains->depth];

		for (uint32_t i = chains->first[from]; i; i = chains->next[i - 1]) {
			const uint32_t to = pointer->calls[i - 1].caller;
			struct image_pointer_function *caller = &pointer->functions[to];

			if (caller->fault)
				continue;
			caller->fault = pointer->functions[from].fault;
			caller->where = pointer->functions[from].where;
			caller->name = pointer->functions[from].name;
			chains->stack[chains->depth++] = to;
		}
	}
}

/* Roots without a fault, which are marked, keep what they call. */
static void spread_kept(struct image_pointer *pointer, struct chains *chains) {
	chain(chains, pointer, false);
	for (uint32_t i = 0; i < pointer->module->function_count; i++)
		if (pointer->functions[i].kept)
			chains->stack[chains->depth++] = i;
	while (chains->depth) {
		const uint32_t from = chains->stack[--chains->depth];

		for (uint32_t i = chains->first[from]; i; i = chains->next[i - 1]) {
			const uint32_t to = pointer->calls[i - 1].callee;

			if (pointer->functions[to].kept)
				continue;
			pointer->functions[to].kept = true;
			chains->stack[chains->depth++] = to;
		}
	}
}

static int look(struct image_pointer *pointer, struct chains *chains, const bool *roots) {
	const uint32_t count = pointer->module->function_count;
	int r;

	for (uint32_t i = 0; i < count; i++)
		if (roots[i]) {
			pointer->functions[i].reached = true;
			chains->stack[chains->depth++] = i;
		}
	r = read_all(pointer, chains);
	chains->next = calloc((size_t)pointer->call_count + 1, sizeof(*chains->next));
	if (r || !chains->next)
		return r ? r : -ENOMEM;
	spread_faults(pointer, chains);
	for (uint32_t i = 0; i < count; i++)
		pointer->functions[i].kept = roots[i] && !pointer->functions[i].fault;
	spread_kept(pointer, chains);
	return 0;
}

int image_pointer_init(struct image_pointer *pointer, const struct ptx_module *module,
		       const bool *roots) {
	const size_t count = (size_t)module->function_count + 1;
	struct chains chains = {
		.first = calloc(count, sizeof(*chains.first)),
		.stack = calloc(count, sizeof(*chains.stack)),
	};
	int r = -ENOMEM;

	*pointer = (struct image_pointer){
		.module = module,
		.functions = calloc(count, sizeof(*pointer->functions)),
		.definitions = calloc(count, sizeof(*pointer->definitions)),
	};
	if (pointer->functions && pointer->definitions && chains.first && chains.stack) {
		find_definitions(pointer);
		r = look(pointer, &chains, roots);
	}
	free(chains.first);
	free(chains.next);
	free(chains.stack);
	return r;
}

void image_pointer_deinit(struct image_pointer *pointer) {
	free(pointer->functions);
	free(pointer->definitions);
	free(pointer->calls);
	*pointer = (struct image_pointer){};
}

/* A name as a part of a line. */
#define NAME(range) (int)((range).length < 80 ? (range).length : 80), text + (range).offset

void image_pointer_reason(const struct image_pointer *pointer, uint32_t function, char *reason,
			  size_t size) {
	const struct image_pointer_function *one = &pointer->functions[function];
	const char *text = pointer->module->text;
	size_t length;

	switch (one->fault) {
	case IMAGE_POINTER_NONE:
		snprintf(reason, size, "no kernel that can have one calls it");
		return;
	case IMAGE_POINTER_CALL:
		snprintf(reason, size, "it calls functions by pointers");
		break;
	case IMAGE_POINTER_ADDRESS:
		snprintf(reason, size, "it takes the address of %.*s", NAME(one->name));
		break;
	case IMAGE_POINTER_OUTSIDE:
		snprintf(reason, size, "it calls %.*s, which is outside of the module",
			 NAME(one->name));
		break;
	case IMAGE_POINTER_TEXT:
		snprintf(reason, size, "its PTX is not understood");
		break;
	}
	length = strlen(reason);
	if (one->where != function)
		snprintf(reason + length, size - length, " (in %.*s)",
			 NAME(pointer->module->functions[one->where].name));
}
