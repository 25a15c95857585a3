/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Puts the bare body of each probed kernel into the module, beside the probed one (probe-bare.h).
 *
 * A function is a text of its own: labels, registers, parameters, prototypes and tables of branches
 * are known inside of it only, so a second one may have the same. Where a debug section names
 * labels of a body, assemblers take those of the first, the probed one, because the original stands
 * behind it: what a debugger then says of the probed function stays right.
 *
 * Not so are variables of a body that outlive it (.global, .const): there would be two. Those of
 * .shared and .local space begin with every block or thread.
 *
 * A kernel needs the registers of all that it calls. So the original of one that calls a probed
 * device function calls that one's original, by name. Where the address of a function is taken,
 * nobody knows who calls it, and assemblers count its registers to each kernel with a call through
 * a pointer: such functions, and those that they call, are held.
 */

#include "probe-bare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

/* Does the body have a variable that keeps its value from one launch to the next? */
static bool has_memory(const struct ptx_body *body) {
	for (uint32_t i = 0; i < body->variable_count; i++)
		if (body->variables[i].space == PTX_SPACE_GLOBAL ||
		    body->variables[i].space == PTX_SPACE_CONST)
			return true;
	return false;
}

/* Would the new name be the function's own, and its text what the old one is? */
static bool is_possible(const struct ptx_body *body) {
	const struct ptx_range name = body->function->name;
	char *bare = NULL;
	bool taken = true;

	if (asprintf(&bare, "%.*s" PROBE_BARE_SUFFIX, (int)name.length,
		     body->module->text + name.offset) >= 0) {
		taken = ptx_module_has_symbol(body->module, bare, strlen(bare));
		free(bare);
	}
	return !taken && !has_memory(body);
}

int probe_bare_init(struct probe_bare *bare, const struct ptx_module *module) {
	*bare = (struct probe_bare){
		.module = module,
		.held = calloc((size_t)module->function_count + 1, sizeof(*bare->held)),
		.probed = calloc((size_t)module->function_count + 1, sizeof(*bare->probed)),
	};
	return bare->held && bare->probed ? 0 : -ENOMEM;
}

void probe_bare_deinit(struct probe_bare *bare) {
	free(bare->calls);
	free(bare->held);
	free(bare->probed);
	*bare = (struct probe_bare){ 0 };
}

void probe_bare_read_kernel(struct probe_bare *bare, const struct ptx_body *body) {
	bare->held[body->function - bare->module->functions] |= !is_possible(body);
}

/* The index of a device function with a body, PTX_NONE if the token names none. */
static uint32_t find_function(const struct probe_bare *bare, const struct ptx_token *token) {
	const struct ptx_function *function;

	if (token->kind != PTX_TOKEN_WORD)
		return PTX_NONE;
	function = ptx_module_find_function(bare->module, bare->module->text + token->offset,
					    token->length);
	return function && !function->entry && function->body.length
		       ? (uint32_t)(function - bare->module->functions)
		       : PTX_NONE;
}

static int add_call(struct probe_bare *bare, uint32_t caller, uint32_t callee, uint32_t end) {
	struct probe_bare_call *larger;
	uint32_t capacity;

	if (bare->call_count == bare->call_capacity) {
		capacity = bare->call_capacity ? bare->call_capacity * 2 : 64;
		larger = reallocarray(bare->calls, capacity, sizeof(*larger));
		if (!larger)
			return -ENOMEM;
		bare->calls = larger;
		bare->call_capacity = capacity;
	}
	bare->calls[bare->call_count++] = (struct probe_bare_call){ caller, callee, end };
	return 0;
}

/* .calltargets f<4> is f0 ... f3: all that begin so are held. */
static void hold_numbered(struct probe_bare *bare, const struct ptx_body *body,
			  const struct ptx_operand *operand) {
	const struct ptx_module *module = bare->module;
	const struct ptx_token *name = &body->tokens[operand->first];

	for (uint32_t i = 0; i < module->function_count && operand->end - operand->first > 1; i++)
		if (module->functions[i].name.length > name->length &&
		    !memcmp(module->text + module->functions[i].name.offset,
			    module->text + name->offset, name->length))
			bare->held[i] = true;
}

/* Whatever names a function and is no call of it takes its address, or could. */
static int read_statement(struct probe_bare *bare, uint32_t caller, const struct ptx_body *body,
			  const struct ptx_statement *statement) {
	struct ptx_call call;
	bool calls = ptx_instruction_call(body, statement, &call) && !call.indirect;
	int r = 0;

	for (uint32_t i = 0;
	     statement->kind == PTX_STATEMENT_CALL_TARGETS && i < statement->operand_count; i++)
		hold_numbered(bare, body, &body->operands[statement->first_operand + i]);

	for (uint32_t i = statement->first; i < statement->end && !r; i++) {
		uint32_t callee = find_function(bare, &body->tokens[i]);

		if (callee == PTX_NONE)
			continue;
		if (calls && i == call.target)
			r = add_call(bare, caller, callee,
				     body->tokens[i].offset + body->tokens[i].length);
		else
			bare->held[callee] = true;
	}
	return r;
}

static int read_body(struct probe_bare *bare, uint32_t index, struct ptx_error *error) {
	struct ptx_error inner;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, bare->module, &bare->module->functions[index], &inner);
	if (r > 0) {
		*error = inner;
		return PROBE_E_FUNCTION;
	}
	if (r)
		return r;
	bare->held[index] |= !is_possible(&body);
	for (uint32_t i = 0; i < body.statement_count && !r; i++)
		r = read_statement(bare, index, &body, &body.statements[i]);
	ptx_body_deinit(&body);
	return r;
}

/* Text at module scope. */
static void read_text(struct probe_bare *bare, struct ptx_range range) {
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	uint32_t function;

	ptx_lexer_init(&lexer, bare->module->text, range.offset, range.offset + range.length);
	while (!ptx_lexer_next(&lexer, &token, &error) && token.kind != PTX_TOKEN_END) {
		function = find_function(bare, &token);
		if (function != PTX_NONE)
			bare->held[function] = true;
	}
}

/* Adds to a set of functions those that its members call, or with `up`, those that call its
 * members. */
static int spread(const struct probe_bare *bare, bool *set, bool up) {
	uint32_t count = bare->module->function_count, depth = 0;
	/* calls by the function at one end, as chains: 1 + index, 0 is the end */
	uint32_t *first = calloc((size_t)count + 1, sizeof(*first)),
		 *next = calloc((size_t)bare->call_count + 1, sizeof(*next)),
		 *stack = calloc((size_t)count + 1, sizeof(*stack));
	int r = first && next && stack ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < bare->call_count && !r; i++) {
		uint32_t from = up ? bare->calls[i].callee : bare->calls[i].caller;

		next[i] = first[from];
		first[from] = i + 1;
	}
	for (uint32_t i = 0; i < count && !r; i++)
		if (set[i])
			stack[depth++] = i;
	while (depth)
		for (uint32_t i = first[stack[--depth]]; i; i = next[i - 1]) {
			uint32_t to = up ? bare->calls[i - 1].caller : bare->calls[i - 1].callee;

			if (set[to])
				continue;
			set[to] = true;
			stack[depth++] = to;
		}
	free(first);
	free(next);
	free(stack);
	return r;
}

int probe_bare_read(struct probe_bare *bare, struct ptx_error *error) {
	const struct ptx_module *module = bare->module;
	int r = 0;

	for (uint32_t i = 0; i < module->function_count && !r; i++)
		if (module->functions[i].body.length)
			r = read_body(bare, i, error);
	if (r)
		return r;
	for (uint32_t i = 0; i < module->variable_count; i++)
		read_text(bare, module->variables[i].initializer);
	for (uint32_t i = 0; i < module->item_count; i++)
		if (module->items[i].kind == PTX_ITEM_ALIAS)
			read_text(bare, module->items[i].text);
	return spread(bare, bare->held, false);
}

/* Text of the module, with the suffix behind. */
static int write_renamed(struct ptx_edit *edit, const struct ptx_module *module, uint32_t at,
			 uint32_t begin, uint32_t end) {
	int r = ptx_edit_insert(edit, at, module->text + begin, end - begin);

	return r ? r : ptx_edit_insert(edit, at, PROBE_BARE_SUFFIX, sizeof(PROBE_BARE_SUFFIX) - 1);
}

/* Puts a function's or a prototype's original behind it. *call: its first call, then that of the
 * next function. */
static int write_function(const struct probe_bare *bare, struct ptx_edit *edit, uint32_t index,
			  const bool *copied, uint32_t *call) {
	const struct ptx_function *function = &bare->module->functions[index];
	uint32_t end = function->text.offset + function->text.length,
		 done = function->name.offset + function->name.length;
	int r;

	r = ptx_edit_insert(edit, end, "\n", 1);
	if (!r)
		r = write_renamed(edit, bare->module, end, function->text.offset, done);
	for (; !r && *call < bare->call_count && bare->calls[*call].caller == index; ++*call)
		if (copied[bare->calls[*call].callee]) {
			r = write_renamed(edit, bare->module, end, done, bare->calls[*call].end);
			done = bare->calls[*call].end;
		}
	return r ? r : ptx_edit_insert(edit, end, bare->module->text + done, end - done);
}

/* Is this one to be copied, or does it declare one that is? */
static bool is_copied(const struct probe_bare *bare, uint32_t index, const bool *copied) {
	const struct ptx_function *function = &bare->module->functions[index], *defined;

	if (function->body.length)
		return copied[index] && !bare->held[index];
	defined = ptx_module_find_function(bare->module, bare->module->text + function->name.offset,
					   function->name.length);
	return defined && defined->body.length && !defined->entry && !function->entry &&
	       copied[defined - bare->module->functions];
}

int probe_bare_write(const struct probe_bare *bare, struct ptx_edit *edit) {
	const struct ptx_module *module = bare->module;
	bool *copied = calloc((size_t)module->function_count + 1, sizeof(*copied));
	uint32_t call = 0;
	int r = -ENOMEM;

	if (copied) {
		for (uint32_t i = 0; i < module->function_count; i++)
			copied[i] = bare->probed[i];
		r = spread(bare, copied, true);
	}
	for (uint32_t i = 0; i < module->function_count && !r; i++) {
		while (call < bare->call_count && bare->calls[call].caller < i)
			call++;
		if (is_copied(bare, i, copied))
			r = write_function(bare, edit, i, copied, &call);
	}
	free(copied);
	return r;
}
