/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Registers and variables that the body declares are the block's own, so they need no other names. Labels are renamed all the
 * same, and so is the way out: `ret` becomes a branch to the block's end. Reading the parameter becomes a move, writing the
 * result nothing. Whatever else mentions one of the two is left to a call.
 */

#include "ptx-inline.h"

#include <errno.h>
#include <stdlib.h>

struct inlining {
	FILE *stream;
	const struct ptx_body *body;
	const char *argument, *suffix;
	struct ptx_range parameter, result; /* names */
};

static const char *text_of(const struct inlining *inlining)
{
	return inlining->body->module->text;
}

static bool same_name(const struct inlining *inlining, struct ptx_range name, const struct ptx_token *token)
{
	return name.length == token->length &&
	       !memcmp(text_of(inlining) + name.offset, text_of(inlining) + token->offset, name.length);
}

static bool is_label(const struct inlining *inlining, const struct ptx_token *token)
{
	const struct ptx_body *body = inlining->body;

	if (token->kind != PTX_TOKEN_WORD)
		return false;
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_token *label = &body->tokens[body->statements[i].first];

		if (body->statements[i].kind == PTX_STATEMENT_LABEL && label->length == token->length &&
		    !memcmp(text_of(inlining) + label->offset, text_of(inlining) + token->offset, token->length))
			return true;
	}
	return false;
}

/* Does an operand read or write memory at the name, without an offset or with +0? */
static bool operand_is(const struct inlining *inlining, const struct ptx_statement *statement, uint32_t operand,
		       struct ptx_range name)
{
	const struct ptx_operand *range;
	const struct ptx_token *tokens = inlining->body->tokens;
	uint32_t count;

	if (operand >= statement->operand_count)
		return false;
	range = &inlining->body->operands[statement->first_operand + operand];
	count = range->end - range->first;
	if ((count != 3 && count != 5) || !ptx_token_is_char(text_of(inlining), &tokens[range->first], '[') ||
	    !same_name(inlining, name, &tokens[range->first + 1]))
		return false;
	return count == 3 || (ptx_token_is_char(text_of(inlining), &tokens[range->first + 2], '+') &&
			      ptx_token_is(text_of(inlining), &tokens[range->first + 3], "0"));
}

static bool mentions(const struct inlining *inlining, const struct ptx_statement *statement, struct ptx_range name)
{
	for (uint32_t i = statement->first; i < statement->end; i++)
		if (same_name(inlining, name, &inlining->body->tokens[i]))
			return true;
	return false;
}

/* `@!%p ` if the statement has a guard. */
static void write_guard(const struct inlining *inlining, const struct ptx_statement *statement)
{
	const struct ptx_token *guard;

	if (statement->guard == PTX_NONE)
		return;
	guard = &inlining->body->tokens[statement->guard];
	fprintf(inlining->stream, "@%s%.*s ", statement->guard_negated ? "!" : "", (int)guard->length,
		text_of(inlining) + guard->offset);
}

/* The statement as it is, but for labels. */
static void write_statement(const struct inlining *inlining, const struct ptx_statement *statement)
{
	const struct ptx_token *tokens = inlining->body->tokens;
	uint32_t done = tokens[statement->first].offset;

	fputc('\t', inlining->stream);
	for (uint32_t i = statement->first; i < statement->end; i++) {
		uint32_t end = tokens[i].offset + tokens[i].length;

		fwrite(text_of(inlining) + done, 1, end - done, inlining->stream);
		if (is_label(inlining, &tokens[i]))
			fputs(inlining->suffix, inlining->stream);
		done = end;
	}
	fputc('\n', inlining->stream);
}

static void write_move(const struct inlining *inlining, const struct ptx_statement *statement)
{
	const struct ptx_operand *to = &inlining->body->operands[statement->first_operand];
	const struct ptx_token *first = &inlining->body->tokens[to->first];
	const struct ptx_token *last = &inlining->body->tokens[to->end - 1];

	fputc('\t', inlining->stream);
	write_guard(inlining, statement);
	fprintf(inlining->stream, "mov.b64 %.*s, %s;\n", (int)(last->offset + last->length - first->offset),
		text_of(inlining) + first->offset, inlining->argument);
}

static int write_instruction(const struct inlining *inlining, const struct ptx_statement *statement)
{
	const struct ptx_body *body = inlining->body;
	bool wide = ptx_instruction_has(body, statement, "b64") || ptx_instruction_has(body, statement, "u64");

	if (ptx_instruction_is(body, statement, "ret")) {
		fputc('\t', inlining->stream);
		write_guard(inlining, statement);
		fprintf(inlining->stream, "bra $L__end%s;\n", inlining->suffix);
		return 0;
	}
	if (ptx_instruction_is(body, statement, "ld") && wide &&
	    operand_is(inlining, statement, 1, inlining->parameter)) {
		write_move(inlining, statement);
		return 0;
	}
	if (ptx_instruction_is(body, statement, "st") && wide && operand_is(inlining, statement, 0, inlining->result))
		return 0;
	if (mentions(inlining, statement, inlining->parameter) || mentions(inlining, statement, inlining->result))
		return PTX_INLINE_E_CANNOT;
	write_statement(inlining, statement);
	return 0;
}

static int write_body(const struct inlining *inlining)
{
	const struct ptx_body *body = inlining->body;
	int r;

	fputs("{\n", inlining->stream);
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_statement *statement = &body->statements[i];

		switch (statement->kind) {
		case PTX_STATEMENT_INSTRUCTION:
			r = write_instruction(inlining, statement);
			if (r)
				return r;
			break;
		case PTX_STATEMENT_LABEL:
		case PTX_STATEMENT_REGISTERS:
		case PTX_STATEMENT_VARIABLE:
		case PTX_STATEMENT_SCOPE_OPEN:
		case PTX_STATEMENT_SCOPE_CLOSE:
			write_statement(inlining, statement);
			break;
		case PTX_STATEMENT_LOC: /* counts the files of another module */
			break;
		default:
			return PTX_INLINE_E_CANNOT;
		}
	}
	fprintf(inlining->stream, "$L__end%s:\n\t}\n", inlining->suffix);
	return 0;
}

int ptx_inline_write(FILE *stream, const struct ptx_module *module, const struct ptx_function *function,
		     const char *argument, const char *suffix)
{
	struct inlining inlining = { .stream = stream, .argument = argument, .suffix = suffix };
	struct ptx_error error;
	struct ptx_body body;
	int r;

	if (function->parameter_count != 1 || function->return_count != 1)
		return PTX_INLINE_E_CANNOT;
	inlining.parameter = module->parameters[function->first_parameter].name;
	inlining.result = module->parameters[function->first_return].name;
	r = ptx_body_parse(&body, module, function, &error);
	if (r)
		return r < 0 ? r : PTX_INLINE_E_CANNOT;
	inlining.body = &body;
	r = write_body(&inlining);
	ptx_body_deinit(&body);
	return r;
}
