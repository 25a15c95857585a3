/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns a PTX function's body into a block that stands in place of a call (ptx-inline.h).
 *
 * Registers and variables that the body declares are the block's own, so they need no other names.
 * Labels are renamed all the same, and so is the way out: `ret` becomes a branch to the block's
 * end. Reading a parameter becomes a move; writing the
 * result becomes nothing, or a move of a word behind its first. Whatever else mentions one
 * of them, or the function itself, is left to a call; so are variables that all calls share, and a
 * label that would meet the one at the end.
 *
 * A thread that leaves early waits at the block's end for those of its warp that do not, as at the
 * end of any `if`: ptxas makes it the point of reconvergence. For loops that does not suffice
 * (PTX_LANES_BEGIN).
 */

#include "ptx-inline.h"

#include <errno.h>
#include <stdlib.h>

#define END_LABEL "$L__end"

struct inlining {
	FILE *stream;
	const struct ptx_body *body;
	const char *const *arguments, *const *results;
	size_t result_count;
	const char *suffix;
	struct ptx_range function, result; /* names */
	const struct ptx_variable *parameters;
	uint32_t parameter_count;
	struct ptx_range *labels; /* names, in order */
	size_t label_count;
};

static const char *text_of(const struct inlining *inlining) {
	return inlining->body->module->text;
}

static bool same_name(const char *text, struct ptx_range name, const struct ptx_token *token) {
	return name.length == token->length &&
	       !memcmp(text + name.offset, text + token->offset, name.length);
}

static int compare_names(const void *a, const void *b, void *text) {
	const struct ptx_range *left = a, *right = b;
	const char *bytes = text;

	if (left->length != right->length)
		return left->length < right->length ? -1 : 1;
	return memcmp(bytes + left->offset, bytes + right->offset, left->length);
}

/* Fills in labels. 0 or -ENOMEM. */
static int collect_labels(struct inlining *inlining) {
	const struct ptx_body *body = inlining->body;

	inlining->labels = calloc((size_t)body->statement_count + 1, sizeof(*inlining->labels));
	if (!inlining->labels)
		return -ENOMEM;
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_token *label = &body->tokens[body->statements[i].first];

		if (body->statements[i].kind == PTX_STATEMENT_LABEL)
			inlining->labels[inlining->label_count++] =
				(struct ptx_range){ label->offset, label->length };
	}
	qsort_r(inlining->labels, inlining->label_count, sizeof(*inlining->labels), compare_names,
		(void *)text_of(inlining));
	return 0;
}

static bool is_label(const struct inlining *inlining, const struct ptx_token *token) {
	struct ptx_range name = { token->offset, token->length };
	size_t from = 0, to = inlining->label_count;

	if (token->kind != PTX_TOKEN_WORD)
		return false;
	while (from < to) {
		size_t middle = from + (to - from) / 2;
		int order =
			compare_names(&name, &inlining->labels[middle], (void *)text_of(inlining));

		if (!order)
			return true;
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return false;
}

/* Does an operand read or write memory at the name, and how many bytes behind it? */
static bool operand_is(const struct inlining *inlining, const struct ptx_statement *statement,
		       uint32_t operand, struct ptx_range name, uint64_t *offset) {
	const struct ptx_operand *range;
	const struct ptx_token *tokens = inlining->body->tokens;
	uint32_t count;

	if (operand >= statement->operand_count)
		return false;
	range = &inlining->body->operands[statement->first_operand + operand];
	count = range->end - range->first;
	if ((count != 3 && count != 5) ||
	    !ptx_token_is_char(text_of(inlining), &tokens[range->first], '[') ||
	    !same_name(text_of(inlining), name, &tokens[range->first + 1]))
		return false;
	*offset = 0;
	return count == 3 ||
	       (ptx_token_is_char(text_of(inlining), &tokens[range->first + 2], '+') &&
		ptx_integer_value(text_of(inlining) + tokens[range->first + 3].offset,
				  tokens[range->first + 3].length, offset));
}

/* Is it one whose meaning a block inside another function cannot keep? */
static bool needs_function(const struct inlining *inlining, const struct ptx_statement *statement) {
	for (uint32_t i = statement->first; i < statement->end; i++) {
		const struct ptx_token *token = &inlining->body->tokens[i];

		if (same_name(text_of(inlining), inlining->result, token) ||
		    same_name(text_of(inlining), inlining->function, token))
			return true;
		for (uint32_t j = 0; j < inlining->parameter_count; j++)
			if (same_name(text_of(inlining), inlining->parameters[j].name, token))
				return true;
	}
	if (statement->kind == PTX_STATEMENT_LABEL)
		return ptx_token_is(text_of(inlining), &inlining->body->tokens[statement->first],
				    END_LABEL);
	if (statement->kind != PTX_STATEMENT_VARIABLE)
		return false;
	for (uint32_t i = 0; i < statement->declaration_count; i++) {
		uint8_t space = inlining->body->variables[statement->first_declaration + i].space;

		if (space != PTX_SPACE_LOCAL && space != PTX_SPACE_PARAM)
			return true;
	}
	return false;
}

/* The statement as it is, but for labels, which are operands or the statement itself. */
static void write_statement(const struct inlining *inlining,
			    const struct ptx_statement *statement) {
	const struct ptx_token *tokens = inlining->body->tokens;
	uint32_t done = tokens[statement->first].offset, from = statement->end;

	if (statement->kind == PTX_STATEMENT_LABEL)
		from = statement->first;
	else if (statement->kind == PTX_STATEMENT_INSTRUCTION)
		from = statement->opcode_end;
	fputc('\t', inlining->stream);
	for (uint32_t i = statement->first; i < statement->end; i++) {
		uint32_t end = tokens[i].offset + tokens[i].length;

		fwrite(text_of(inlining) + done, 1, end - done, inlining->stream);
		if (i >= from && is_label(inlining, &tokens[i]))
			fputs(inlining->suffix, inlining->stream);
		done = end;
	}
	fputc('\n', inlining->stream);
}

/* The text of an operand. */
static struct ptx_range operand_text(const struct inlining *inlining,
				     const struct ptx_statement *statement, uint32_t operand) {
	const struct ptx_operand *range =
		&inlining->body->operands[statement->first_operand + operand];
	const struct ptx_token *first = &inlining->body->tokens[range->first];
	const struct ptx_token *last = &inlining->body->tokens[range->end - 1];

	return (struct ptx_range){ first->offset, last->offset + last->length - first->offset };
}

/* A load of a parameter: its argument goes to the register. */
static void write_argument(const struct inlining *inlining, const struct ptx_statement *statement,
			   const char *argument) {
	const struct ptx_range to = operand_text(inlining, statement, 0);

	fputc('\t', inlining->stream);
	ptx_statement_write_guard(inlining->body, statement, false, inlining->stream);
	fprintf(inlining->stream, "mov.b64 %.*s, %s;\n", (int)to.length,
		text_of(inlining) + to.offset, argument);
}

/* A store to the result: nothing, or a move to where its word behind the first goes. */
static int write_result(const struct inlining *inlining, const struct ptx_statement *statement,
			uint64_t offset) {
	struct ptx_range from;

	if (offset % 8 || offset / 8 > inlining->result_count || statement->operand_count != 2)
		return PTX_INLINE_E_CANNOT;
	if (!offset)
		return 0;
	from = operand_text(inlining, statement, 1);
	fputc('\t', inlining->stream);
	ptx_statement_write_guard(inlining->body, statement, false, inlining->stream);
	fprintf(inlining->stream, "mov.b64 %s, %.*s;\n", inlining->results[offset / 8 - 1],
		(int)from.length, text_of(inlining) + from.offset);
	return 0;
}

static int write_instruction(const struct inlining *inlining,
			     const struct ptx_statement *statement) {
	const struct ptx_body *body = inlining->body;
	bool wide = (ptx_instruction_has(body, statement, "b64") ||
		     ptx_instruction_has(body, statement, "u64")) &&
		    !ptx_instruction_has(body, statement, "v2");
	uint64_t offset;

	if (ptx_instruction_is(body, statement, "ret")) {
		fputc('\t', inlining->stream);
		ptx_statement_write_guard(inlining->body, statement, false, inlining->stream);
		fprintf(inlining->stream, "bra " END_LABEL "%s;\n", inlining->suffix);
		return 0;
	}
	for (uint32_t i = 0; i < inlining->parameter_count; i++) {
		if (wide && ptx_instruction_is(body, statement, "ld") &&
		    operand_is(inlining, statement, 1, inlining->parameters[i].name, &offset) &&
		    !offset) {
			write_argument(inlining, statement, inlining->arguments[i]);
			return 0;
		}
	}
	if (ptx_instruction_is(body, statement, "st") && wide &&
	    operand_is(inlining, statement, 0, inlining->result, &offset))
		return write_result(inlining, statement, offset);
	if (needs_function(inlining, statement))
		return PTX_INLINE_E_CANNOT;
	write_statement(inlining, statement);
	return 0;
}

/* Does an instruction branch to a label before it? */
static bool has_loop(const struct ptx_body *body) {
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_statement *branch = &body->statements[i];
		struct ptx_range name;

		if (branch->kind != PTX_STATEMENT_INSTRUCTION ||
		    !ptx_instruction_is(body, branch, "bra"))
			continue;
		name = (struct ptx_range){ body->tokens[branch->opcode_end].offset,
					   body->tokens[branch->opcode_end].length };
		for (uint32_t j = 0; j < i; j++)
			if (body->statements[j].kind == PTX_STATEMENT_LABEL &&
			    same_name(body->module->text, name,
				      &body->tokens[body->statements[j].first]))
				return true;
	}
	return false;
}

bool ptx_inline_has_loop(const struct ptx_module *module) {
	bool found = false;

	for (uint32_t i = 0; !found && i < module->function_count; i++) {
		struct ptx_error error;
		struct ptx_body body;

		if (!module->functions[i].body.length)
			continue;
		if (ptx_body_parse(&body, module, &module->functions[i], &error))
			return true;
		found = has_loop(&body);
		ptx_body_deinit(&body);
	}
	return found;
}

static int write_body(const struct inlining *inlining) {
	const struct ptx_body *body = inlining->body;
	const bool loops = has_loop(body);
	int r;

	fputs(loops ? "{\n" PTX_LANES_BEGIN : "{\n", inlining->stream);
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
			if (needs_function(inlining, statement))
				return PTX_INLINE_E_CANNOT;
			write_statement(inlining, statement);
			break;
		case PTX_STATEMENT_LOC: /* counts the files of another module */
			break;
		default:
			return PTX_INLINE_E_CANNOT;
		}
	}
	fprintf(inlining->stream, END_LABEL "%s:\n%s\t}\n", inlining->suffix,
		loops ? PTX_LANES_END : "");
	return 0;
}

int ptx_inline_write(FILE *stream, const struct ptx_module *module,
		     const struct ptx_function *function, const char *const *arguments,
		     const char *const *results, size_t result_count, const char *suffix) {
	struct inlining inlining = {
		.stream = stream,
		.arguments = arguments,
		.results = results,
		.result_count = result_count,
		.suffix = suffix,
		.function = function->name,
		.parameters = module->parameters + function->first_parameter,
		.parameter_count = function->parameter_count,
	};
	struct ptx_error error;
	struct ptx_body body;
	int r;

	if (function->return_count != 1)
		return PTX_INLINE_E_CANNOT;
	inlining.result = module->parameters[function->first_return].name;
	r = ptx_body_parse(&body, module, function, &error);
	if (r)
		return r < 0 ? r : PTX_INLINE_E_CANNOT;
	inlining.body = &body;
	r = collect_labels(&inlining);
	if (!r)
		r = write_body(&inlining);
	free(inlining.labels);
	ptx_body_deinit(&body);
	return r;
}
