/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses a PTX module at module scope (ptx-module.h): functions, variables, where bodies end.
 *
 * Module scope: a directive says what follows, so one token decides. Bodies and debug sections are
 * not tokenised here; a scan that knows only comments, strings and braces finds their end, which
 * makes reading a module of 60 MB a matter of a fraction of a second. Names go into one array,
 * sorted: no hash that a hostile module could aim at.
 */

#include "ptx-parser.h"

#include <errno.h>
#include <stdlib.h>

enum symbol_kind {
	SYMBOL_DEFINITION, /* a function with a body; sorts before its prototypes */
	SYMBOL_PROTOTYPE,
	SYMBOL_VARIABLE, /* x<4> is one of the name x; sorts before what says that it is elsewhere
			  */
	SYMBOL_EXTERN, /* that */
	SYMBOL_ALIAS,
};

struct symbol {
	struct ptx_range name;
	uint32_t index;
	enum symbol_kind kind;
};

struct ptx_symbols {
	struct symbol *array;
	uint32_t count;
};

/* The module while it is read, and the capacities of its arrays. */
struct reader {
	struct ptx_parser parser;
	struct ptx_module module;
	struct symbol *symbols;
	uint32_t symbol_count;
	uint32_t symbols_capacity, functions_capacity, variables_capacity, parameters_capacity,
		directives_capacity, items_capacity;
};

static int add_symbol(struct reader *reader, struct ptx_range name, enum symbol_kind kind,
		      uint32_t index) {
	struct symbol symbol = { name, index, kind };

	return PTX_ARRAY_ADD(reader->symbols, reader->symbols_capacity, reader->symbol_count,
			     symbol);
}

static int add_item(struct reader *reader, enum ptx_item_kind kind, uint32_t start) {
	struct ptx_item item = { { start, reader->parser.last_end - start }, kind };

	return PTX_ARRAY_ADD(reader->module.items, reader->items_capacity,
			     reader->module.item_count, item);
}

/*
 * The parser stands at a `{`: moves it behind the `}` that closes it, reading no tokens in between.
 */
static int skip_braces(struct ptx_parser *parser) {
	const char *text = parser->text;
	uint32_t at = parser->token.offset, end = parser->lexer.length, open = at, after, depth = 0;
	const char *quote;

	for (; at < end; at++) {
		switch (text[at]) {
		case '{':
			if (++depth > PTX_NESTING_MAX) {
				ptx_error_set(parser->error, text, at,
					      "more than %d scopes in scopes", PTX_NESTING_MAX);
				return PTX_E_LIMIT;
			}
			break;
		case '}':
			if (--depth)
				break;
			parser->lexer.position = at + 1;
			parser->token.offset = at;
			parser->token.length = 1;
			return ptx_parser_next(parser);
		case '"':
			quote = memchr(text + at + 1, '"', end - at - 1);
			if (!quote) {
				ptx_error_set(parser->error, text, at, "string without end");
				return PTX_E_SYNTAX;
			}
			at = quote - text;
			break;
		case '/':
		case '#':
			after = ptx_comment_end(text, at, end);
			if (after == UINT32_MAX) {
				ptx_error_set(parser->error, text, at, "comment without end");
				return PTX_E_SYNTAX;
			}
			if (after > at)
				at = after - 1;
			break;
		case '\0':
			ptx_error_set(parser->error, text, at, "unexpected character at byte 0x00");
			return PTX_E_SYNTAX;
		}
	}
	ptx_error_set(parser->error, text, open, "'{' without '}'");
	return PTX_E_SYNTAX;
}

/* .version 8.3 */
static int read_version(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	uint64_t major, minor;
	const char *number, *dot;
	uint32_t length;
	int r;

	if (!ptx_parser_at_word(parser, ".version"))
		return ptx_parser_fail(parser, ".version");
	r = ptx_parser_next(parser);
	if (r)
		return r;
	number = parser->text + parser->token.offset;
	length = parser->token.length;
	dot = memchr(number, '.', length);
	if (parser->token.kind != PTX_TOKEN_FLOAT || !dot || dot == number || dot - number > 4 ||
	    number + length - dot != 2 || !ptx_integer_value(number, dot - number, &major) ||
	    !ptx_integer_value(dot + 1, 1, &minor))
		return ptx_parser_fail(parser, "a version like 8.3");
	reader->module.isa = major * 10 + minor;
	reader->module.isa_range = (struct ptx_range){ parser->token.offset, length };
	return ptx_parser_next(parser);
}

/* sm_90a, compute_75 */
static bool target_name(struct ptx_target *target, const char *text, uint32_t length) {
	uint32_t prefix, digits;
	uint64_t number;

	prefix = length > 3 && !memcmp(text, "sm_", 3)        ? 3
		 : length > 8 && !memcmp(text, "compute_", 8) ? 8
							      : 0;
	if (!prefix)
		return false;
	for (digits = prefix; digits < length && text[digits] >= '0' && text[digits] <= '9';)
		digits++;
	if (digits == prefix || digits - prefix > 4 || text[prefix] == '0' || length - digits > 1)
		return false;
	if (!ptx_integer_value(text + prefix, digits - prefix, &number))
		return false;
	if (digits < length && (text[digits] < 'a' || text[digits] > 'z'))
		return false;
	target->number = number;
	target->suffix = digits < length ? text[digits] : '\0';
	return true;
}

/* .target sm_90a, debug */
static int read_target(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_target *target = &reader->module.target;
	int r;

	if (!ptx_parser_at_word(parser, ".target"))
		return ptx_parser_fail(parser, ".target");
	do {
		r = ptx_parser_next(parser);
		if (r)
			return r;
		if (parser->token.kind != PTX_TOKEN_WORD)
			return ptx_parser_fail(parser, "a target like sm_90");
		if (ptx_parser_at_word(parser, "debug"))
			target->debug = true;
		else if (ptx_parser_at_word(parser, "texmode_independent"))
			target->texmode_independent = true;
		else if (target_name(target, parser->text + parser->token.offset,
				     parser->token.length))
			target->range =
				(struct ptx_range){ parser->token.offset, parser->token.length };
		else if (!target->number)
			return ptx_parser_fail(parser, "a target like sm_90");
		r = ptx_parser_next(parser);
	} while (!r && ptx_parser_at(parser, ','));
	if (!r && !target->number)
		return ptx_parser_fail(parser, "a target like sm_90");
	return r;
}

/* .version, one or more .target, and perhaps .address_size, in this order, as ptxas demands. */
static int read_header(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	uint64_t size;
	int r;

	r = ptx_parser_next(parser);
	if (!r)
		r = read_version(reader);
	do {
		if (!r)
			r = read_target(reader);
	} while (!r && ptx_parser_at_word(parser, ".target"));
	if (r)
		return r;
	reader->module.address_size = 64;
	reader->module.header_end = parser->last_end;
	if (!ptx_parser_at_word(parser, ".address_size"))
		return 0;
	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (parser->token.kind != PTX_TOKEN_INTEGER ||
	    !ptx_integer_value(parser->text + parser->token.offset, parser->token.length, &size) ||
	    (size != 32 && size != 64))
		return ptx_parser_fail(parser, "32 or 64");
	reader->module.address_size = size;
	r = ptx_parser_next(parser);
	reader->module.header_end = parser->last_end;
	return r;
}

/* ( .param .b32 a, .param .align 8 .b8 b[16] ) */
static int read_parameters(struct reader *reader, uint32_t *first, uint32_t *count) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_declaration declaration;
	struct ptx_variable parameter;
	int r;

	*first = reader->module.parameter_count;
	r = ptx_parser_expect(parser, '(');
	while (!r && !ptx_parser_at(parser, ')')) {
		r = ptx_declaration_prefix(parser, &declaration);
		if (!r)
			r = ptx_declaration_name(parser, &declaration, &parameter);
		if (!r)
			r = PTX_ARRAY_ADD(reader->module.parameters, reader->parameters_capacity,
					  reader->module.parameter_count, parameter);
		if (r)
			return r;
		if (ptx_parser_at(parser, ')'))
			break;
		r = ptx_parser_expect(parser, ',');
		if (!r && ptx_parser_at(parser, ')'))
			return ptx_parser_fail(parser, "a parameter");
	}
	*count = reader->module.parameter_count - *first;
	return r ? r : ptx_parser_expect(parser, ')');
}

/* .maxntid 128, 1, 1 .noreturn .pragma "x"; -- up to the `{` or `;` */
static int read_directives(struct reader *reader, struct ptx_function *function) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_directive directive;
	uint64_t number;
	bool pragma;
	int r = 0;

	function->first_directive = reader->module.directive_count;
	while (!r && parser->token.kind == PTX_TOKEN_DIRECTIVE) {
		pragma = ptx_parser_at_word(parser, ".pragma");
		directive.name = (struct ptx_range){ parser->token.offset, parser->token.length };
		r = ptx_parser_next(parser);
		directive.arguments = (struct ptx_range){ parser->token.offset, 0 };
		while (!r && (ptx_parser_at_number(parser, &number) ||
			      parser->token.kind == PTX_TOKEN_STRING ||
			      ptx_parser_at(parser, ',') || ptx_parser_at(parser, '('))) {
			r = ptx_parser_at(parser, '(') ? ptx_parser_skip_brackets(parser)
						       : ptx_parser_next(parser);
			directive.arguments.length = parser->last_end - directive.arguments.offset;
		}
		if (!r && pragma)
			r = ptx_parser_expect(parser, ';');
		if (!r)
			r = PTX_ARRAY_ADD(reader->module.directives, reader->directives_capacity,
					  reader->module.directive_count, directive);
	}
	function->directive_count = reader->module.directive_count - function->first_directive;
	return r;
}

/*
 * Between .func and the name: attributes and the return parameters; then the name and the
 * parameters.
 */
static int read_signature(struct reader *reader, struct ptx_function *function) {
	struct ptx_parser *parser = &reader->parser;
	bool attribute;
	int r;

	r = ptx_parser_next(parser);
	while (!r && parser->token.kind ==
			     PTX_TOKEN_DIRECTIVE) { /* .attribute(.unified(1, 2)), .noreturn */
		attribute = ptx_parser_at_word(parser, ".attribute");
		r = ptx_parser_next(parser);
		if (!r && attribute && !ptx_parser_at(parser, '('))
			return ptx_parser_fail(parser, "'('");
		if (!r && attribute)
			r = ptx_parser_skip_brackets(parser);
	}
	if (!r && ptx_parser_at(parser, '('))
		r = read_parameters(reader, &function->first_return, &function->return_count);
	if (r)
		return r;
	if (parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "the name of a function");
	function->name = (struct ptx_range){ parser->token.offset, parser->token.length };
	r = ptx_parser_next(parser);
	if (!r && ptx_parser_at(parser, '('))
		r = read_parameters(reader, &function->first_parameter, &function->parameter_count);
	return r;
}

static int read_function(struct reader *reader, enum ptx_linkage linkage, uint32_t start) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_function function = { .linkage = linkage,
					 .entry = ptx_parser_at_word(parser, ".entry") };
	uint32_t open;
	int r;

	r = read_signature(reader, &function);
	if (!r)
		r = read_directives(reader, &function);
	if (r)
		return r;
	if (ptx_parser_at(parser, '{')) {
		open = parser->token.offset;
		r = skip_braces(parser);
		function.body = (struct ptx_range){ open, parser->last_end - open };
	} else if (ptx_parser_at(parser, ';')) {
		r = ptx_parser_next(parser);
	} else {
		return ptx_parser_fail(parser, "a body or ';'");
	}
	if (r)
		return r;
	function.text = (struct ptx_range){ start, parser->last_end - start };
	r = add_symbol(reader, function.name,
		       function.body.length ? SYMBOL_DEFINITION : SYMBOL_PROTOTYPE,
		       reader->module.function_count);
	if (r)
		return r;
	return PTX_ARRAY_ADD(reader->module.functions, reader->functions_capacity,
			     reader->module.function_count, function);
}

static int read_variables(struct reader *reader, enum ptx_linkage linkage, uint32_t start) {
	struct ptx_declaration declaration;
	uint32_t first = reader->module.variable_count;
	int r;

	r = ptx_declaration_prefix(&reader->parser, &declaration);
	if (r)
		return r;
	declaration.start = start;
	if (declaration.base.linkage == PTX_LINKAGE_LOCAL)
		declaration.base.linkage = linkage;
	r = ptx_declaration_variables(&reader->parser, &declaration, &reader->module.variables,
				      &reader->variables_capacity, &reader->module.variable_count,
				      PTX_NONE);
	for (uint32_t i = first; !r && i < reader->module.variable_count; i++)
		r = add_symbol(reader, reader->module.variables[i].name,
			       reader->module.variables[i].linkage == PTX_LINKAGE_EXTERN
				       ? SYMBOL_EXTERN
				       : SYMBOL_VARIABLE,
			       i);
	return r;
}

/* .section .debug_info { ... } */
static int read_section(struct reader *reader, uint32_t start) {
	struct ptx_parser *parser = &reader->parser;
	int r;

	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (parser->token.kind != PTX_TOKEN_DIRECTIVE && parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "the name of a section");
	r = ptx_parser_next(parser);
	if (r)
		return r;
	if (!ptx_parser_at(parser, '{'))
		return ptx_parser_fail(parser, "'{'");
	r = skip_braces(parser);
	return r ? r : add_item(reader, PTX_ITEM_SECTION, start);
}

/* .pragma "x"; and .alias a, b; */
static int read_until_semicolon(struct reader *reader, enum ptx_item_kind kind, uint32_t start) {
	struct ptx_parser *parser = &reader->parser;
	struct ptx_range name;
	int r;

	r = ptx_parser_next(parser);
	name = (struct ptx_range){ parser->token.offset, parser->token.length };
	if (!r && kind == PTX_ITEM_ALIAS && parser->token.kind != PTX_TOKEN_WORD)
		return ptx_parser_fail(parser, "a name");
	if (!r)
		r = ptx_parser_skip_to_end(parser, false);
	if (!r)
		r = ptx_parser_next(parser);
	if (!r && kind == PTX_ITEM_ALIAS)
		r = add_symbol(reader, name, SYMBOL_ALIAS, reader->module.item_count);
	return r ? r : add_item(reader, kind, start);
}

/* @@DWARF ... to the end of the line */
static int read_dwarf(struct reader *reader, uint32_t start) {
	struct ptx_parser *parser = &reader->parser;
	const char *newline;

	if (parser->lexer.length - start < 7 || memcmp(parser->text + start, "@@DWARF", 7))
		return ptx_parser_fail(parser, "a directive");
	newline = memchr(parser->text + start, '\n', parser->lexer.length - start);
	parser->lexer.position =
		newline ? (uint32_t)(newline - parser->text) : parser->lexer.length;
	parser->token.length = parser->lexer.position - start;
	return ptx_parser_next(parser) ?: add_item(reader, PTX_ITEM_DWARF, start);
}

/* One thing at module scope. */
static int read_item(struct reader *reader) {
	struct ptx_parser *parser = &reader->parser;
	enum ptx_linkage linkage = PTX_LINKAGE_LOCAL;
	uint32_t start = parser->token.offset;
	int r;

	if (ptx_parser_at(parser, '@'))
		return read_dwarf(reader, start);
	if (ptx_parser_at_linkage(parser, &linkage)) {
		r = ptx_parser_next(parser);
		if (r)
			return r;
	} else if (ptx_parser_at_word(parser, ".file")) {
		r = ptx_parser_file(parser);
		return r ? r : add_item(reader, PTX_ITEM_FILE, start);
	} else if (ptx_parser_at_word(parser, ".loc")) {
		r = ptx_parser_loc(parser);
		return r ? r : add_item(reader, PTX_ITEM_LOC, start);
	} else if (ptx_parser_at_word(parser, ".section")) {
		return read_section(reader, start);
	} else if (ptx_parser_at_word(parser, ".pragma")) {
		return read_until_semicolon(reader, PTX_ITEM_PRAGMA, start);
	} else if (ptx_parser_at_word(parser, ".alias")) {
		return read_until_semicolon(reader, PTX_ITEM_ALIAS, start);
	}
	if (ptx_parser_at_word(parser, ".func") || ptx_parser_at_word(parser, ".entry"))
		return read_function(reader, linkage, start);
	if (ptx_parser_at_declaration(parser))
		return read_variables(reader, linkage, start);
	return ptx_parser_fail(parser, "a function, a variable or a directive");
}

static int compare_names(const char *left, uint32_t left_length, const char *right,
			 uint32_t right_length) {
	int order = memcmp(left, right, left_length < right_length ? left_length : right_length);

	return order ? order : (left_length > right_length) - (left_length < right_length);
}

static int compare_symbols(const void *a, const void *b, void *text) {
	const struct symbol *left = a, *right = b;
	int order = compare_names((const char *)text + left->name.offset, left->name.length,
				  (const char *)text + right->name.offset, right->name.length);

	if (order)
		return order;
	if (left->kind != right->kind)
		return left->kind < right->kind ? -1 : 1;
	return (left->name.offset > right->name.offset) - (left->name.offset < right->name.offset);
}

/* Whether it is the one of its name that has a body or memory. x<4> is none: it may stand beside x.
 */
static bool is_definition(const struct ptx_module *module, const struct symbol *symbol) {
	return symbol->kind == SYMBOL_DEFINITION ||
	       (symbol->kind == SYMBOL_VARIABLE && !module->variables[symbol->index].count);
}

static bool is_variable(const struct symbol *symbol) {
	return symbol && (symbol->kind == SYMBOL_VARIABLE || symbol->kind == SYMBOL_EXTERN);
}

/* 0, or PTX_E_SYNTAX where a name is defined twice. */
static int check_symbols(const struct reader *reader) {
	const struct ptx_module *module = &reader->module;
	const struct symbol *first = NULL;

	for (uint32_t i = 0; i < reader->symbol_count; i++) {
		const struct symbol *symbol = &reader->symbols[i];

		if (!is_definition(module, symbol))
			continue;
		if (first &&
		    !compare_names(module->text + first->name.offset, first->name.length,
				   module->text + symbol->name.offset, symbol->name.length)) {
			ptx_error_set(reader->parser.error, module->text, symbol->name.offset,
				      "%.*s is defined twice", (int)symbol->name.length,
				      module->text + symbol->name.offset);
			return PTX_E_SYNTAX;
		}
		first = symbol;
	}
	return 0;
}

/* Sorts the names and hands them to the module. */
static int build_symbols(struct reader *reader) {
	struct ptx_symbols *symbols;
	int r;

	symbols = malloc(sizeof(*symbols));
	if (!symbols)
		return -ENOMEM;
	if (reader->symbol_count)
		qsort_r(reader->symbols, reader->symbol_count, sizeof(*reader->symbols),
			compare_symbols, (void *)(uintptr_t)reader->module.text);
	r = check_symbols(reader);
	if (r) {
		free(symbols);
		return r;
	}
	*symbols = (struct ptx_symbols){ reader->symbols, reader->symbol_count };
	reader->symbols = NULL;
	reader->module.symbols = symbols;
	return 0;
}

int ptx_module_parse(struct ptx_module *out, const char *text, size_t length,
		     struct ptx_error *error) {
	struct reader reader = { .module = { .text = text, .length = length } };
	int r;

	if (length > PTX_SOURCE_MAX) {
		ptx_error_set(error, text, 0, "%zu bytes of PTX: more than %u", length,
			      PTX_SOURCE_MAX);
		return PTX_E_LIMIT;
	}
	reader.parser = (struct ptx_parser){ .text = text, .error = error };
	ptx_lexer_init(&reader.parser.lexer, text, 0, length);
	r = read_header(&reader);
	while (!r && reader.parser.token.kind != PTX_TOKEN_END)
		r = read_item(&reader);
	if (!r)
		r = build_symbols(&reader);
	if (r) {
		free(reader.symbols);
		ptx_module_deinit(&reader.module);
		return r;
	}
	*out = reader.module;
	return 0;
}

void ptx_module_deinit(struct ptx_module *module) {
	free(module->functions);
	free(module->variables);
	free(module->parameters);
	free(module->directives);
	free(module->items);
	if (module->symbols)
		free(module->symbols->array);
	free(module->symbols);
	*module = (struct ptx_module){ 0 };
}

/* The first symbol of that name, NULL if there is none. Those of the same name follow it. */
static const struct symbol *find_symbol(const struct ptx_module *module, const char *name,
					size_t length) {
	const struct symbol *array = module->symbols->array;
	uint32_t low = 0, high = module->symbols->count, middle;

	if (length > PTX_SOURCE_MAX)
		return NULL;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (compare_names(module->text + array[middle].name.offset,
				  array[middle].name.length, name, length) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == module->symbols->count || compare_names(module->text + array[low].name.offset,
							   array[low].name.length, name, length))
		return NULL;
	return &array[low];
}

const struct ptx_function *ptx_module_find_function(const struct ptx_module *module,
						    const char *name, size_t length) {
	const struct symbol *symbol = find_symbol(module, name, length);

	if (!symbol || symbol->kind > SYMBOL_PROTOTYPE)
		return NULL;
	return &module->functions[symbol->index];
}

/* The symbol x<13> for the name x12. */
static const struct symbol *find_numbered(const struct ptx_module *module, const char *name,
					  size_t length) {
	uint64_t number = 0, unit = 1;

	for (size_t digits = 1; digits < length && digits < 10; digits++, unit *= 10) {
		char digit = name[length - digits];
		const struct symbol *symbol;

		if (digit < '0' || digit > '9')
			break;
		number += (uint64_t)(digit - '0') * unit;
		if (digit == '0' && digits > 1)
			continue; /* x01 is not one of x<N> */
		symbol = find_symbol(module, name, length - digits);
		if (is_variable(symbol) && number < module->variables[symbol->index].count)
			return symbol;
	}
	return NULL;
}

const struct ptx_variable *ptx_module_find_variable(const struct ptx_module *module,
						    const char *name, size_t length) {
	const struct symbol *symbol = find_symbol(module, name, length);

	if (!symbol)
		symbol = find_numbered(module, name, length);
	if (!is_variable(symbol))
		return NULL;
	return &module->variables[symbol->index];
}

bool ptx_module_has_symbol(const struct ptx_module *module, const char *name, size_t length) {
	return find_symbol(module, name, length) || find_numbered(module, name, length);
}

const struct ptx_function *ptx_module_next_kernel(const struct ptx_module *module,
						  const struct ptx_function *after) {
	uint32_t next = after ? after - module->functions + 1 : 0;

	for (; next < module->function_count; next++)
		if (module->functions[next].entry)
			return &module->functions[next];
	return NULL;
}

const struct ptx_directive *ptx_function_directive(const struct ptx_module *module,
						   const struct ptx_function *function,
						   const char *name) {
	for (uint32_t i = 0; i < function->directive_count; i++)
		if (ptx_range_is(module->text,
				 module->directives[function->first_directive + i].name, name))
			return &module->directives[function->first_directive + i];
	return NULL;
}
