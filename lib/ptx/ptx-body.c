/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses the body of a PTX function into statements (ptx-module.h).
 *
 * A body is tokenised whole, then cut into a flat list of statements. Scopes are statements too,
 * linked in pairs: whoever edits or runs a body walks one array and never recurses. The first token
 * decides what a statement is; an instruction ends at the `;` outside brackets, however many lines
 * that takes, and a word before `:` is a label even if it spells `ret`.
 */

#include "ptx-parser.h"

#include <errno.h>
#include <stdlib.h>

struct reader {
	struct ptx_parser parser;
	struct ptx_body body;
	uint32_t tokens_capacity, statements_capacity, operands_capacity, registers_capacity,
		variables_capacity;
	uint32_t open[PTX_NESTING_MAX]; /* the SCOPE_OPEN statements around the current one */
	uint16_t depth;
};

static int collect_tokens(struct reader *reader, const struct ptx_module *module,
			  const struct ptx_function *function) {
	struct ptx_lexer lexer;
	struct ptx_token token;
	int r;

	ptx_lexer_init(&lexer, module->text, function->body.offset + 1,
		       function->body.offset + function->body.length - 1);
	do {
		r = ptx_lexer_next(&lexer, &token, reader->parser.error);
		if (!r)
			r = PTX_ARRAY_ADD(reader->body.tokens, reader->tokens_capacity,
					  reader->body.token_count, token);
	} while (!r && token.kind != PTX_TOKEN_END);
	if (r)
		return r;
	reader->body.token_count--; /* END stays behind the last one */
	reader->parser.tokens = reader->body.tokens;
	reader->parser.token = reader->body.tokens[0];
	return 0;
}

static int add_operand(struct reader *reader, struct ptx_statement *statement, uint32_t first) {
	struct ptx_operand operand = { first, reader->parser.position };

	if (operand.first == operand.end)
		return ptx_parser_fail(&reader->parser, "an operand");
	statement->operand_count++;
	return PTX_ARRAY_ADD(reader->body.operands, reader->operands_capacity,
			     reader->body.operand_count, operand);
}

/* Operands up to and with `;`. */
static int read_operands(struct reader *reader, struct ptx_statement *statement) {
	struct ptx_parser *parser = &reader->parser;
	uint32_t first;
	int r;

	statement->first_operand = reader->body.operand_count;
	if (ptx_parser_at(parser, ';'))
		return ptx_parser_next(parser);
	for (;;) {
		first = parser->position;
		r = ptx_parser_skip_to_end(parser, true);
		if (!r)
			r = add_operand(reader, statement, first);
		if (r)
			return r;
		if (ptx_parser_at(parser, ';'))
			return ptx_parser_next(parser);
		r = ptx_parser_next(parser);
		if (r)
			return r;
	}
}

/* @%p, @!%p */
static int read_guard(struct reader *reader, struct ptx_statement *statement) {
	struct ptx_parser *parser = &reader->parser;
	int r;

	r = ptx_parser_next(parser);
	if (!r && ptx_parser_at(parser, '!')) {
		statement->guard_negated = true;
		r = ptx_parser_next(parser);
	}
	if (r)
		return r;
	if (parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "a predicate");
	statement->guard = parser->position;
	return ptx_parser_next(parser);
}

static int read_instruction(struct reader *reader, struct ptx_statement *statement) {
	struct ptx_parser *parser = &reader->parser;
	int r = 0;

	if (ptx_parser_at(parser, '@'))
		r = read_guard(reader, statement);
	if (r)
		return r;
	if (parser->token.kind != PTX_TOKEN_WORD || parser->text[parser->token.offset] == '%')
		return ptx_parser_fail(parser, "an instruction");
	statement->kind = PTX_STATEMENT_INSTRUCTION;
	statement->opcode = parser->position;
	do {
		r = ptx_parser_next(parser);
	} while (!r && parser->token.kind == PTX_TOKEN_DIRECTIVE);
	statement->opcode_end = parser->position;
	return r ? r : read_operands(reader, statement);
}

/* One name of a .reg: %r<33> or %SP */
static int read_register(struct reader *reader, struct ptx_register *out) {
	struct ptx_parser *parser = &reader->parser;
	int r;

	if (parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "the name of a register");
	out->name = (struct ptx_range){ parser->token.offset, parser->token.length };
	out->count = 0;
	r = ptx_parser_next(parser);
	if (!r && ptx_parser_at(parser, '<'))
		r = ptx_parser_count(parser, &out->name, &out->count);
	return r;
}

static int read_registers(struct reader *reader, const struct ptx_declaration *declaration) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_register one = {
		.statement = reader->body.statement_count,
		.type = declaration->base.type,
		.vector = declaration->base.vector,
	};
	int r;

	for (;;) {
		r = read_register(reader, &one);
		if (!r && one.name.length)
			r = PTX_ARRAY_ADD(reader->body.registers, reader->registers_capacity,
					  reader->body.register_count, one);
		if (r)
			return r;
		if (ptx_parser_at(parser, ';'))
			return ptx_parser_next(parser);
		r = ptx_parser_expect(parser, ',');
		if (r)
			return r;
	}
}

/* Registers or variables: .align may stand before the space that says which. */
static int read_declaration(struct reader *reader, struct ptx_statement *statement) {
	struct ptx_declaration declaration;
	const uint32_t *count = &reader->body.variable_count;
	int r;

	statement->kind = PTX_STATEMENT_VARIABLE;
	r = ptx_declaration_prefix(&reader->parser, &declaration);
	if (r)
		return r;
	if (declaration.base.space == PTX_SPACE_REG) {
		statement->kind = PTX_STATEMENT_REGISTERS;
		count = &reader->body.register_count;
	}
	statement->first_declaration = *count;
	if (declaration.base.space == PTX_SPACE_REG)
		r = read_registers(reader, &declaration);
	else
		r = ptx_declaration_variables(&reader->parser, &declaration,
					      &reader->body.variables, &reader->variables_capacity,
					      &reader->body.variable_count,
					      reader->body.statement_count);
	statement->declaration_count = *count - statement->first_declaration;
	return r;
}

/* .pragma, .callprototype and directives that we do not know. */
static int read_until_semicolon(struct reader *reader) {
	int r;

	r = ptx_parser_skip_to_end(&reader->parser, false);
	return r ? r : ptx_parser_next(&reader->parser);
}

static int read_section(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	int r;

	r = ptx_parser_next(parser);
	if (!r)
		r = ptx_parser_next(parser);
	if (r)
		return r;
	return ptx_parser_at(parser, '{') ? ptx_parser_skip_brackets(parser)
					  : ptx_parser_fail(parser, "'{'");
}

static int read_directive(struct reader *reader, struct ptx_statement *statement) {
	static const struct {
		const char *name;
		enum ptx_statement_kind kind;
	} plain[] = {
		{ ".loc", PTX_STATEMENT_LOC },
		{ ".file", PTX_STATEMENT_FILE },
		{ ".pragma", PTX_STATEMENT_PRAGMA },
		{ ".branchtargets", PTX_STATEMENT_BRANCH_TARGETS },
		{ ".calltargets", PTX_STATEMENT_CALL_TARGETS },
		{ ".callprototype", PTX_STATEMENT_CALL_PROTOTYPE },
		{ ".section", PTX_STATEMENT_SECTION },
	};
	struct ptx_parser *parser = &reader->parser;
	enum ptx_linkage linkage;
	int r;

	statement->kind = PTX_STATEMENT_OTHER;
	if (ptx_parser_at_linkage(parser, &linkage) && /* .extern .func f; */
	    ptx_token_is(parser->text, &parser->tokens[parser->position + 1], ".func"))
		return read_until_semicolon(reader);
	if (ptx_parser_at_declaration(parser) || ptx_parser_at_linkage(parser, &linkage))
		return read_declaration(reader, statement);
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (ptx_parser_at_word(parser, plain[i].name))
			statement->kind = plain[i].kind;
	switch (statement->kind) {
	case PTX_STATEMENT_LOC:
		return ptx_parser_loc(parser);
	case PTX_STATEMENT_FILE:
		return ptx_parser_file(parser);
	case PTX_STATEMENT_SECTION:
		return read_section(reader);
	case PTX_STATEMENT_BRANCH_TARGETS:
	case PTX_STATEMENT_CALL_TARGETS:
		r = ptx_parser_next(parser);
		return r ? r : read_operands(reader, statement);
	default:
		return read_until_semicolon(reader);
	}
}

static int read_scope_open(struct reader *reader, struct ptx_statement *statement) {
	statement->kind = PTX_STATEMENT_SCOPE_OPEN;
	if (reader->depth == PTX_NESTING_MAX) {
		ptx_error_set(reader->parser.error, reader->parser.text,
			      reader->parser.token.offset, "more than %d scopes in scopes",
			      PTX_NESTING_MAX);
		return PTX_E_LIMIT;
	}
	reader->open[reader->depth++] = reader->body.statement_count;
	return ptx_parser_next(&reader->parser);
}

static int read_scope_close(struct reader *reader, struct ptx_statement *statement) {
	statement->kind = PTX_STATEMENT_SCOPE_CLOSE;
	if (!reader->depth)
		return ptx_parser_fail(&reader->parser, "a statement");
	statement->partner = reader->open[--reader->depth];
	statement->depth = reader->depth;
	reader->body.statements[statement->partner].partner = reader->body.statement_count;
	return ptx_parser_next(&reader->parser);
}

static int read_statement(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_statement statement = {
		.first = parser->position,
		.guard = PTX_NONE,
		.opcode = PTX_NONE,
		.opcode_end = PTX_NONE,
		.partner = PTX_NONE,
		.depth = reader->depth,
	};
	int r;

	if (ptx_parser_at(parser, '{')) {
		r = read_scope_open(reader, &statement);
	} else if (ptx_parser_at(parser, '}')) {
		r = read_scope_close(reader, &statement);
	} else if (parser->token.kind == PTX_TOKEN_DIRECTIVE) {
		r = read_directive(reader, &statement);
	} else if (parser->token.kind == PTX_TOKEN_WORD &&
		   ptx_token_is_char(parser->text, &parser->tokens[parser->position + 1], ':')) {
		statement.kind = PTX_STATEMENT_LABEL;
		r = ptx_parser_next(parser);
		if (!r)
			r = ptx_parser_next(parser);
	} else if (parser->token.kind == PTX_TOKEN_WORD || ptx_parser_at(parser, '@')) {
		r = read_instruction(reader, &statement);
	} else {
		r = ptx_parser_fail(parser, "a statement");
	}
	if (r)
		return r;
	statement.end = parser->position;
	return PTX_ARRAY_ADD(reader->body.statements, reader->statements_capacity,
			     reader->body.statement_count, statement);
}

int ptx_body_parse(struct ptx_body *out, const struct ptx_module *module,
		   const struct ptx_function *function, struct ptx_error *error) {
	struct reader reader = { .body = { .module = module, .function = function } };
	int r;

	if (!function->body.length) {
		ptx_error_set(error, module->text, function->name.offset,
			      "a prototype has no body");
		return PTX_E_SYNTAX;
	}
	reader.parser.text = module->text;
	reader.parser.error = error;
	r = collect_tokens(&reader, module, function);
	while (!r && reader.parser.token.kind != PTX_TOKEN_END)
		r = read_statement(&reader);
	if (!r && reader.depth)
		r = ptx_parser_fail(&reader.parser, "'}'");
	if (r) {
		ptx_body_deinit(&reader.body);
		return r;
	}
	*out = reader.body;
	return 0;
}

void ptx_body_deinit(struct ptx_body *body) {
	free(body->tokens);
	free(body->statements);
	free(body->operands);
	free(body->registers);
	free(body->variables);
	*body = (struct ptx_body){ 0 };
}

/* Where a walk over the parts of a mnemonic is: the token, and the offset of its next part. */
struct part_cursor {
	uint32_t token;
	uint32_t at; /* 0: at the token's beginning */
};

/* Takes the next part; false if there is none. */
static bool next_part(const struct ptx_body *body, const struct ptx_statement *statement,
		      struct part_cursor *cursor, struct ptx_range *part) {
	const char *text = body->module->text, *dot;
	uint32_t end;

	if (statement->kind != PTX_STATEMENT_INSTRUCTION || cursor->token >= statement->opcode_end)
		return false;
	end = body->tokens[cursor->token].offset + body->tokens[cursor->token].length;
	if (!cursor->at)
		cursor->at = body->tokens[cursor->token].offset;
	if (text[cursor->at] == '.')
		cursor->at++;
	dot = memchr(text + cursor->at, '.', end - cursor->at);
	*part = (struct ptx_range){ cursor->at, (dot ? (uint32_t)(dot - text) : end) - cursor->at };
	cursor->at = dot ? (uint32_t)(dot - text) : 0;
	if (!dot)
		cursor->token++;
	return true;
}

struct ptx_range ptx_instruction_part(const struct ptx_body *body,
				      const struct ptx_statement *statement, unsigned int part) {
	struct part_cursor cursor = { .token = statement->opcode };
	struct ptx_range range;

	while (next_part(body, statement, &cursor, &range))
		if (!part--)
			return range;
	return (struct ptx_range){ 0, 0 };
}

bool ptx_instruction_is(const struct ptx_body *body, const struct ptx_statement *statement,
			const char *name) {
	return ptx_range_is(body->module->text, ptx_instruction_part(body, statement, 0), name);
}

bool ptx_instruction_has(const struct ptx_body *body, const struct ptx_statement *statement,
			 const char *modifier) {
	struct part_cursor cursor = { .token = statement->opcode };
	struct ptx_range part;

	if (!next_part(body, statement, &cursor, &part))
		return false;
	while (next_part(body, statement, &cursor, &part))
		if (ptx_range_is(body->module->text, part, modifier))
			return true;
	return false;
}

/* Is the operand in parentheses? */
static bool is_list(const struct ptx_body *body, const struct ptx_operand *operand) {
	return ptx_token_is_char(body->module->text, &body->tokens[operand->first], '(');
}

bool ptx_instruction_call(const struct ptx_body *body, const struct ptx_statement *statement,
			  struct ptx_call *call) {
	const struct ptx_operand *operand, *end;

	if (!statement->operand_count || !ptx_instruction_is(body, statement, "call"))
		return false;
	operand = body->operands + statement->first_operand;
	end = operand + statement->operand_count;
	*call = (struct ptx_call){ .target = PTX_NONE, .prototype = PTX_NONE };
	if (operand < end && is_list(body, operand)) {
		call->returns = operand->first + 1;
		call->returns_end = operand->end - 1;
		operand++;
	}
	if (operand == end || operand->end != operand->first + 1 ||
	    body->tokens[operand->first].kind != PTX_TOKEN_WORD)
		return false;
	call->target = operand++->first;
	if (operand < end && is_list(body, operand)) {
		call->arguments = operand->first + 1;
		call->arguments_end = operand->end - 1;
		operand++;
	}
	if (operand < end)
		call->prototype = operand->first;
	call->indirect =
		call->prototype != PTX_NONE || *ptx_body_token_text(body, call->target) == '%';
	return true;
}

struct ptx_range ptx_statement_text(const struct ptx_body *body,
				    const struct ptx_statement *statement) {
	const struct ptx_token *first = &body->tokens[statement->first],
			       *last = &body->tokens[statement->end - 1];

	return (struct ptx_range){ first->offset, last->offset + last->length - first->offset };
}

void ptx_statement_write_guard(const struct ptx_body *body, const struct ptx_statement *statement,
			       bool negate, FILE *stream) {
	const struct ptx_token *guard;

	if (statement->guard == PTX_NONE)
		return;
	guard = &body->tokens[statement->guard];
	fprintf(stream, "@%s%.*s ", statement->guard_negated != negate ? "!" : "",
		(int)guard->length, body->module->text + guard->offset);
}
